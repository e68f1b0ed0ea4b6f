"""Profiles and what they say, as text for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from softq.formatting import table
from softq.profiles.judging import Judgement, Ruling
from softq.profiles.meeting import NEEDS_DATA, ProfileConversion
from softq.profiles.schema import Profile
from softq.visible import lines
from softq.wording import softmaxes

SCHEMA = 1
"""Version of the JSON: fields may be added, a change of meaning is another version."""

FROM_DOCUMENTS = "The rules are from documents, not from a device"


def judgements_to_text(judged: Sequence[Judgement], profile: Profile, asked: str) -> str:
    """Return what `softq inspect --for` prints: a line per site, and below those that are not taken as they are why.

    Args:
        judged: What a model's sites are to the profile.
        profile: The profile.
        asked: What it was asked for by, its name or its file.
    """
    if not judged:
        return "no softmax\n"
    rows = [(one.site, one.operator, one.role, _taken(one)) for one in judged]
    text = table(("site", "operator", "role", "taken"), rows)
    groups: dict[tuple[str, tuple[Ruling, ...]], list[str]] = {}
    for one in judged:
        why = tuple(ruling for ruling in one.rulings if ruling.state != "met")
        if why:
            groups.setdefault((_taken(one), why), []).append(one.site)
    for (taken, why), sites in groups.items():
        text += lines(["", f"{', '.join(sites)}: {'not taken' if taken == 'no' else taken}"])
        for ruling in why:
            text += lines([
                f"  {ruling.subject}: {ruling.found} ({ruling.state})", f"    {ruling.says}",
                f"    {ruling.source} ({ruling.version}; read {ruling.read})",
            ])  # fmt: skip
    counts = {taken: sum(one.taken == taken for one in judged) for taken in ("as it is", "after convert", "no")}
    data = sum(one.needs_data for one in judged)
    taken = f"{counts['as it is']} taken as is, {counts['after convert']} after `convert --for {shlex.quote(asked)}`"
    taken += f" ({data} with `--calibration DATA`)" if data else ""
    text += lines(["", f"{softmaxes(len(judged))}: {taken}, {counts['no']} not"])
    return text + lines(_closing(profile))


def _taken(one: Judgement) -> str:
    return f"{one.taken}, with data" if one.needs_data else one.taken


def profile_conversion_to_text(
    found: ProfileConversion[onnx.ModelProto] | ProfileConversion[ir.Model], profile: Profile, out: str | None
) -> str:
    """Return what `softq convert --for` prints."""
    got = {"as it is": "as it is taken", "after convert": "converted", "no": "as it was: not taken"}
    got |= dict.fromkeys((one.site for one in found.waiting), "as it was: needs data")
    rows = [(one.site, got.get(one.site, got[one.taken]), "; ".join(_reasons(one))) for one in found.sites]
    end = "nothing written (dry run)" if out is None else f"wrote {out}"
    text = table(("site", "is", "for the rules on"), rows) if rows else ""
    if found.waiting:
        text += lines([f"needs data: {NEEDS_DATA}"])
    closing = f"converted {len(found.converted)} of {softmaxes(len(found.sites))} for {profile.name}; {end}"
    return text + lines([closing, f"{FROM_DOCUMENTS}."])


def _reasons(judged: Judgement) -> list[str]:
    wanted = ("after convert",) if judged.taken == "after convert" else ("not met", "unknown")
    return [f"{one.subject} ({one.found})" for one in judged.rulings if one.state in wanted]


def describe_judgements(judged: Sequence[Judgement], profile: Profile) -> dict[str, object]:
    """Return what `softq inspect --for --json` prints, without the model."""
    return {
        "schema": SCHEMA, "profile": profile.name, "release": profile.release, "about": f"{FROM_DOCUMENTS}.",
        "not_stated": {part: list(said) for part, said in profile.not_stated.items()},
        "sites": [one.to_json() for one in judged],
    }  # fmt: skip


def _closing(profile: Profile) -> list[str]:
    silent = "; ".join(f"{part}: {', '.join(said)}" for part, said in profile.not_stated.items() if said)
    return [
        f"{FROM_DOCUMENTS}; read from {profile.release}. Not stated in them: {silent or 'nothing that softq asks for'}"
    ]


def describe_profile(profile: Profile) -> dict[str, object]:
    """Return what there is to know about a profile as plain values."""
    rules = [
        {"site": part, "subject": rule.subject, "says": rule.says, "source": rule.source.url,
         "title": rule.source.title, "version": rule.source.version, "read": rule.source.read.isoformat()}
        for part in ("softmax", "attention") for rule in getattr(profile, part)
    ]  # fmt: skip
    silent = {part: list(said) for part, said in profile.not_stated.items()}
    methods = list(profile.methods)
    head = {"name": profile.name, "summary": profile.summary, "release": profile.release}
    return {**head, "methods": methods, "rules": rules, "not_stated": silent}


def profile_to_text(profile: Profile) -> str:
    """Return what `softq profiles NAME` prints."""
    text = lines([f"{profile.name}: {profile.summary}"])
    for part in ("softmax", "attention"):
        for rule in getattr(profile, part):
            text += lines([
                "", f"{part}, {rule.subject}: {rule.says}",
                f"  {rule.source.title}, {rule.source.version} (read {rule.source.read})", f"  {rule.source.url}",
            ])  # fmt: skip
    kernels = [f"What its kernels compute: {', '.join(profile.methods)}."] if profile.methods else []
    return text + lines(["", *kernels, *_closing(profile)])


def profiles_to_text(profiles: Sequence[Profile]) -> str:
    """Return what `softq profiles` prints."""
    rows = [(profile.name, profile.summary, profile.release) for profile in profiles]
    return table(("profile", "what it is", "read from"), rows)
