"""Rows of 1, 2, 4, ... elements, until something breaks."""

from __future__ import annotations

from typing import Any

import numpy as np

from softq.audit.checks import Check, Setting
from softq.audit.faults import Fault, Result, case_of, is_wrong, shrink
from softq.audit.process import FailureError
from softq.audit.rows import long_rows
from softq.audit.subject import Subject
from softq.audit.task import Array
from softq.wording import counted, in_units

_ROWS = 3


def _rows(subject: Subject, length: int, setting: Setting) -> Array:
    """Return some rows: random ones, and of those that are chosen the first of each kind."""
    names, rows = long_rows(subject, length, setting.random(), count=_ROWS)
    first = {name: number for number, name in reversed(list(enumerate(names)))}
    return rows[sorted(first.values())]


def _breaks(subject: Subject, x: Array) -> tuple[str, Array] | None:
    """Return what goes wrong with these rows, and one that shows it; None if nothing does."""
    try:
        found = subject.compute(x)
    except FailureError as error:
        return f"{error.kind}: {error}", next((row for row in x if _fails(subject, row[None])), x[0])[None]
    wrong = subject.wrong_rows(x, found)
    if wrong.size == 0:
        return None
    row = x[wrong[:1]]
    off = float(np.max(subject.errors(found[wrong[:1]], subject.exact(row))))
    return f"value: wrong by {in_units(off)}", row


def _fails(subject: Subject, x: Array) -> bool:
    try:
        subject.compute(x)
    except FailureError:
        return True
    return False


def _run(subject: Subject, setting: Setting) -> Result:
    facts: dict[str, Any] = {"tried": []}
    good, length = 0, 1
    while length <= setting.longest:
        broken = _breaks(subject, _rows(subject, length, setting))
        facts["tried"].append({"length": length, "outcome": "as exact" if broken is None else broken[0]})
        if broken is not None:
            return Result(facts, (_fault(subject, setting, good, length, broken),))
        good, length = length, length * 2
    return Result(facts | {"longest": good})


def _fault(subject: Subject, setting: Setting, good: int, bad: int, broken: tuple[str, Array]) -> Fault:
    """Return the fault of the shortest row that breaks, as far as halving finds it."""
    # Each row that hangs takes as long as a call may.
    hangs = broken[0].startswith("hung")
    while bad - good > 1 and not hangs:
        middle = (good + bad) // 2
        found = _breaks(subject, _rows(subject, middle, setting))
        good, bad, broken = (middle, bad, broken) if found is None else (good, middle, found)
    text, row = broken
    kind, _, reason = text.partition(": ")
    ends = kind != "value"
    if not hangs:
        row = shrink(row, lambda part: _fails(subject, part) if ends else is_wrong(subject, part))
    text = f"of the rows that were tried, those of {counted(bad, 'element')} are the shortest that break: {reason}"
    return Fault("length" if good else kind, text, case_of(subject, row))


CHECK = Check(name="lengths", title="Lengths of a row", run=_run, order=1)
