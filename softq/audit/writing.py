"""An audit as text, Markdown, JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from softq.audit.records import IDENTIFICATION, TABLE, Audit, FaultRecord, Step
from softq.files import write_files
from softq.visible import lines, visible, visible_value
from softq.wording import counted, in_units

_HOME = Path(__file__).parent


def write_reports(audit: Audit, folder: Path) -> tuple[str, ...]:
    """Write `audit.json`, `audit.md` and, where jinja2 is installed, `audit.html`; return the names.

    Raises:
        InputError: the folder cannot be written.
    """
    texts = {
        "audit.json": json.dumps(audit.to_json(), indent=1, allow_nan=False) + "\n",
        "audit.md": to_markdown(audit),
    }
    page = to_html(audit)
    if page is not None:
        texts["audit.html"] = page
    write_files({folder / name: text.encode() for name, text in texts.items()})
    return tuple(texts)


def title_of(audit: Audit) -> str:
    """Return what was looked at, in a line."""
    c = audit.conditions
    versions = ", ".join(f"{name} {version}" for name, version in c["versions"].items() if name != "python")
    options = "".join(f", {key}={value}" for key, value in c["options"].items())
    name = versions if c["runtime"] in versions else f"{c['runtime']} ({versions})"
    return f"{name}{options}: {_encoding(c['dtype'], c['scores'])} to {_encoding(c['dtype'], c['result'])}"


def _encoding(dtype: str, encoding: Mapping[str, Any] | None) -> str:
    if encoding is None:
        return dtype
    return f"{encoding['dtype']} (scale {encoding['scale']:g}, zero point {encoding['zero_point']})"


def summary(audit: Audit) -> list[tuple[str, str]]:
    """Return what was found: a heading and a sentence for each step, and what is missing."""
    found = [(step.title, _say(step)) for step in audit.steps]
    missing = [("Not done", f"{', '.join(audit.missing)}: the time was up; the same command goes on")]
    return found + missing * bool(audit.missing)


def _say(step: Step) -> str:
    facts = step.facts
    if "skipped" in facts:
        return f"not asked: {facts['skipped']}"
    if step.name == IDENTIFICATION:
        return _identity(facts)
    if step.name == TABLE:
        return (
            f"weights are a table of 256 distances, rounded {_rounded(facts['rounding'])}; it gives "
            f"{facts['equal']:.4%} of the results, and the others within {in_units(facts['greatest'])}: "
            f"{facts['method_file']}"
        )
    sentence = "; ".join(_facts(facts))
    faults = len(step.faults)
    return sentence + (f"; {counted(faults, 'fault')}" if faults else "")


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, part in facts.items():
        if isinstance(part, dict) and "greatest_error" in part:
            yield (
                f"{counted(part['elements'], 'element')} in {name}: greatest error "
                f"{in_units(0, _number(part['greatest_error']))}, mean {_number(part['mean_error'])}, sums "
                f"{_number(part['row_sums'][0])} to {_number(part['row_sums'][1])}, {_order(part)}"
            )
    tried = [(key, entry) for key in ("tried", "layouts", "rows", "threads") for entry in _entries(facts.get(key))]
    if tried:
        good = [entry for _, entry in tried if _is_good(entry["outcome"])]
        yield (
            f"{len(good)} of {len(tried)} as exact"
            if tried[0][0] in ("tried", "rows")
            else (f"{len(good)} of {len(tried)} equal to the bit")
        )
        for _, entry in tried:
            if not _is_good(entry["outcome"]):
                what = " ".join(str(value) for key, value in entry.items() if key != "outcome")
                yield f"{what}: {entry['outcome']}"
    if "times" in facts:
        yield f"{facts['times']} runs alike" if "threads" in facts else f"{facts['times']} runs"


def _order(part: Mapping[str, Any]) -> str:
    if not part["order_lost"]:
        return "order kept"
    return f"order lost in {counted(part['order_lost'], 'row')} by up to {in_units(0, _number(part['greatest_drop']))}"


def _entries(value: object) -> list[dict[str, Any]]:
    return value if isinstance(value, list) else []


def _is_good(outcome: str) -> bool:
    return outcome.startswith(("as exact", "equal to the bit", "NaN, as by arithmetic"))


def _identity(facts: Mapping[str, Any]) -> str:
    equal = [one for one in facts["candidates"] if one["is_equal"]]
    if equal:
        more = "; " + ", ".join(_candidate(one) for one in equal[1:]) + " cannot be told from it" if equal[1:] else ""
        return f"{_candidate(equal[0])}, equal to the bit{more}"
    if not facts["candidates"]:
        return "no method takes such scores"
    return "none to the bit; nearest: " + ", ".join(
        f"{_candidate(one)} ({one['equal']:.4%} equal, up to {in_units(one['greatest'])} apart)"
        for one in facts["candidates"][:3]
    )


def _candidate(one: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key}={value}" for key, value in one["options"].items())
    rounding = f", rounded {_rounded(one['rounding'])}" if one["rounding"] else ""
    return f"{one['method']}({options}){rounding}"


def _rounded(rounding: str) -> str:
    return "to the nearest" if rounding == "nearest" else rounding


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def to_text(audit: Audit) -> str:
    """Return an audit as lines for a terminal."""
    found = summary(audit)
    width = max((len(title) for title, _ in found), default=0)
    faults = [f"fault  {fault.kind}: {fault.text} ({fault.folder})" for fault in audit.faults]
    return lines([title_of(audit), *(f"{title:{width}}  {text}" for title, text in found), *(faults or ["no fault"])])


def to_markdown(audit: Audit) -> str:
    """Return an audit as Markdown."""
    c = audit.conditions
    rows = [f"| {title} | {text} |" for title, text in summary(audit)]
    length = counted(c["length"], "element")
    conditions = (
        f"Rows of {length}, axis {c['axis']}, at most {c['longest']}; a result may be wrong by "
        f"{in_units(c['tolerance'])}. A unit is the scale of the result; of floats, the distance from 1 to the next "
        f"number. softq {c['softq']}, seed {c['seed']}."
    )
    faults = [_fault(fault) for fault in audit.faults] or ["None."]
    worst = worst_rows(audit)
    table = ["| error, units | row | at | scores and results |", "|---|---|---|---|", *(_worst(row) for row in worst)]
    shown = ["## Worst rows", "\n".join(table)] if worst else []
    parts = [f"# {title_of(audit)}", conditions, "\n".join(["| | |", "|---|---|", *rows]), "## Faults", *faults, *shown]
    return "\n".join(map(visible, "\n\n".join(parts).split("\n"))) + "\n"


def worst_rows(audit: Audit) -> list[Mapping[str, Any]]:
    """Return the rows with the greatest errors, the worst first, of those that the step `values` has kept."""
    step = audit.step("values")
    parts = [] if step is None else [part for part in step.facts.values() if isinstance(part, dict)]
    rows = [row | {"of": part["elements"] // part["rows"]} for part in parts for row in part["worst"]]
    return sorted(rows, key=lambda row: -(float("inf") if row["error"] is None else row["error"]))


def _worst(row: Mapping[str, Any]) -> str:
    kind = row["kind"] or "a maximum and a score"
    found = f"{row['scores']} to {row['found']}" if "scores" in row else ""
    return f"| {_number(row['error'])} | {kind}, {counted(row['of'], 'element')} | {row['at']} | {found} |"


def _fault(fault: FaultRecord) -> str:
    shape = " x ".join(map(str, fault.shape))
    return f"* **{fault.kind}**: {fault.text}. Shown by scores of {shape}: `{fault.folder}`."


def to_html(audit: Audit) -> str | None:
    """Return an audit as a page, or None where jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        return None
    loader = FileSystemLoader(_HOME / "assets")
    environment = Environment(autoescape=True, finalize=visible_value, undefined=StrictUndefined, loader=loader,
                              trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    return environment.get_template("audit.html").render(
        title=title_of(audit), audit=audit, found=summary(audit), conditions=audit.conditions, worst=worst_rows(audit)
    )
