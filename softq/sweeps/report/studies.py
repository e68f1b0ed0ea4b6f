"""Folders as the studies of one report: which of them belong together, what tells them apart, what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from softq.errors import UsageError
from softq.reports import parse_drop
from softq.sweeps.records import Outcome, Study
from softq.sweeps.report.columns import columns_of
from softq.sweeps.report.content import Content, Shared, StudyContent
from softq.sweeps.report.verdicts import loss_text
from softq.wording import counted


@dataclass(frozen=True)
class Folders:
    """What the folders of one study hold together.

    Attributes:
        study: What all settings have in common.
        outcomes: What was measured.
        folder: The first of the folders, as the user named it.
    """

    study: Study
    outcomes: tuple[Outcome, ...]
    folder: str


def merge(found: Sequence[tuple[str, Study, Sequence[Outcome]]]) -> list[Folders]:
    """Return the studies that folders hold.

    Folders are one study where model, data, samples, metric and framework are the same and no setting has two values;
    of equal settings the first is kept.
    """
    studies: list[Folders] = []
    for folder, study, outcomes in found:
        for number, known in enumerate(studies):
            if _belongs(known, study, outcomes):
                studies[number] = _join(known, study, outcomes)
                break
        else:
            studies.append(_join(Folders(study, (), folder), study, outcomes))
    return studies


_COMMON = ("graph", "weights", "data_hash", "samples", "metric", "relative")
"""What the numbers of one study have in common."""

_FRAMEWORK = "framework"
"""A condition that they have in common, too: a setting has other values in each."""


def _belongs(known: Folders, study: Study, outcomes: Sequence[Outcome]) -> bool:
    if any(_common(known.study, name) != _common(study, name) for name in (*_COMMON, _FRAMEWORK)):
        return False
    values = {one.setting.key: one.metric.value for one in known.outcomes if one.samples}
    again = [one for one in outcomes if one.samples and one.setting.key in values]
    return all(_is_same(values[one.setting.key], one.metric.value) for one in again)


def _is_same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _join(known: Folders, study: Study, outcomes: Sequence[Outcome]) -> Folders:
    kept: dict[str, Outcome] = {}
    for outcome in (*known.outcomes, *outcomes):
        kept.setdefault(outcome.setting.key, outcome)
    commands = dict.fromkeys([*known.study.command.splitlines(), *study.command.splitlines()])
    return replace(known, study=replace(known.study, command="\n".join(commands)), outcomes=tuple(kept.values()))


def _common(study: Study, name: str) -> object:
    # Records of earlier versions name no framework.
    return study.conditions.get(name, "onnx") if name == _FRAMEWORK else getattr(study, name)


_LABELS: tuple[Callable[[Folders], str], ...] = (
    lambda one: Path(one.study.model).stem,
    lambda one: one.study.model,
    lambda one: Path(one.study.data).stem,
    lambda one: one.study.data,
    lambda one: one.study.metric,
    lambda one: f"{one.study.model}, {one.study.metric}",
    lambda one: f"{one.study.model} on {one.study.data}",
    lambda one: Path(one.folder).name,
    lambda one: one.folder,
)
"""What may tell studies apart, the plainest first."""


def label_studies(studies: Sequence[Folders]) -> list[str]:
    """Return a label for each study: of what may tell them apart the first that does; of one study the model's name."""
    if len(studies) == 1:
        return [studies[0].study.model]
    for label in _LABELS:
        found = [label(one) for one in studies]
        if len(set(found)) == len(found):
            return found
    # Folders of the same name in different places are told apart by a number.
    return [f"{one.folder} ({number})" for number, one in enumerate(studies, 1)]


def check_budget(studies: Sequence[Folders], budget: str | float | None) -> None:
    """Refuse a budget in a metric's unit where the studies have different metrics.

    Raises:
        UsageError: they have.
    """
    if budget is None or parse_drop(budget, "budget").relative:
        return
    metrics = sorted({one.study.metric for one in studies})
    if len(metrics) > 1:
        raise UsageError(f"the budget is {budget}, and the studies have the metrics {', '.join(metrics)}; "
                         "give a share of the float value as X%")  # fmt: skip


def compare(contents: Sequence[Content]) -> Content:
    """Return the reports of several studies as one, the first with the others beside it."""
    first, *others = contents
    if not others:
        return first
    studies = [one.as_study() for one in contents]
    shared = _share(studies)
    return replace(
        first,
        columns=columns_of(row.numbers for one in studies for row in one.settings),
        compared=tuple(studies[1:]),
        shared=shared,
        together=_decide(studies, shared),
    )


def _share(studies: Sequence[StudyContent]) -> tuple[Shared, ...]:
    """Return what all studies measured: by bits, then what loses least in all."""
    found = [{row.name: row for row in study.whole} for study in studies]
    # Losses of different metrics cannot be added; ranks within each study can.
    places = [_places(study) for study in studies]
    shared: list[tuple[tuple[bool, int, bool, int, str], Shared]] = []
    for name in found[0]:
        rows = [rows[name] for rows in found if name in rows]
        if len(rows) == len(found):
            known, bits = [row.within for row in rows], rows[0].bits
            within = None if None in known else all(known)
            place = sum(of[row.setting] for of, row in zip(places, rows, strict=True))
            rank = (bits is None, bits or 0, not rows[0].integer_only, place, name)
            shared.append((rank, Shared(name, bits, tuple(row.setting for row in rows), within)))
    return tuple(one for _, one in sorted(shared, key=itemgetter(0)))


def _decide(studies: Sequence[StudyContent], shared: Sequence[Shared]) -> str:
    """Return the setting with the fewest bits that keeps the budget in all studies, as a sentence."""
    if not shared:
        return "No setting was measured in all studies."
    if shared[0].within is None:
        measured = counted(len(shared), "setting was", "settings were")
        return f"{measured} measured in all {len(studies)} studies; --max-drop chooses among them."
    best = next((one for one in shared if one.within and one.bits is not None), None)
    if best is None:
        return f"No setting is shown to keep the budget in all {len(studies)} studies."
    losses = "; ".join(
        f"{study.label}: loss {loss_text(study.settings[number].loss.value, study.subject)}"
        for study, number in zip(studies, best.settings, strict=True)
    )
    return f"{best.name} keeps the budget in all {len(studies)} studies with the fewest bits ({losses})."


def _places(study: StudyContent) -> dict[int, int]:
    """Return the place of each setting among those of its study, by loss."""
    ordered = sorted(study.whole, key=lambda row: (row.loss.value is None, row.loss.value or 0.0, row.name))
    return {row.setting: place for place, row in enumerate(ordered)}
