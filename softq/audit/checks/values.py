"""How far results are from the exact softmax, over all pairs of scores that there are and rows of one length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.audit.checks import Check, Setting
from softq.audit.faults import Fault, Result, case_of, is_wrong, shrink
from softq.audit.process import FailureError
from softq.audit.rows import long_rows, pairs, sum_rows
from softq.audit.subject import Reals, Subject
from softq.audit.task import Array
from softq.wording import counted, in_units

_WORST = 5
_PAIR = 2
_LONGEST_SUM = 512
"""Elements of the longest row of these: a result of 1 / 513 is below half of 1/256."""
_WRAPS = 0.9
"""Of the integers' range: what a result is wrong by that left it at one end and came in at the other."""
_MOST_SHOWN = 12
_APPROXIMATES, _ROOM = 0.02, 1.25
"""From this share of rows on a runtime approximates, and its errors elsewhere may be so much greater."""
_DEFECT = 0.3
"""Of the range from 0 to 1: what no approximation is wrong by."""
_LIKE_THE_WORST, _MOST_UNITS = 0.9, 1e30
"""A shorter row shows the same fault where it is about as wrong; units of an infinite error are none."""
_FAILURES = 24
"""Calls that may fail while those rows are looked for that make them fail."""


def _run(subject: Subject, setting: Setting) -> Result:
    names, rows = long_rows(subject, setting.length, setting.random())
    facts: dict[str, Any] = {}
    faults: list[Fault] = []
    asked: list[tuple[str, Array, Sequence[str] | None]] = [("pairs", pairs(subject), None), ("rows", rows, names)]
    if subject.has_all_sums and setting.length > _PAIR:
        every, facts["sums_left_out"] = sum_rows(subject, min(setting.length, _LONGEST_SUM))
        asked += [("sums", every, None)] if len(every) else []
    for title, x, kinds in asked:
        found, there, failure = _compute(subject, x)
        if failure is not None:
            faults.append(_failure(subject, x[~there][:1], failure, int(np.sum(~there))))
        if np.any(there):
            facts[title] = describe(subject, x[there], found[there], kinds)
            faults += _find_faults(subject, x[there], found[there])
    return Result(facts, tuple(faults))


def _compute(subject: Subject, x: Array) -> tuple[Array, NDArray[np.bool_], FailureError | None]:
    """Return results, for which rows there are any, and the failure of the others."""
    found = np.zeros(x.shape, subject.task(x.shape).result_dtype)
    there = np.zeros(len(x), np.bool_)
    failure: FailureError | None = None
    waiting, failures = [(0, len(x))], 0
    while waiting and failures < _FAILURES:
        start, end = waiting.pop()
        try:
            found[start:end] = subject.compute(x[start:end])
            there[start:end] = True
        except FailureError as error:
            failure, failures = error, failures + 1
            if end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
    return found, there, failure


def _failure(subject: Subject, x: Array, error: FailureError, count: int) -> Fault:
    def fails(part: Array) -> bool:
        try:
            subject.compute(part)
        except FailureError as other:
            return other.kind == error.kind
        return False

    row = shrink(x, fails) if fails(x) else x
    return Fault(error.kind, f"rows of finite scores give no result: {error}", case_of(subject, row), count)


def describe(subject: Subject, x: Array, found: Array, kinds: Sequence[str] | None = None) -> dict[str, Any]:
    """Return how far results are from the exact ones, as values that JSON has.

    Args:
        subject: Of whom they are.
        x: Scores [R, N].
        found: The results.
        kinds: What is special about each row, if that is known.
    """
    exact = subject.exact(x)
    errors = subject.errors(found, exact)
    of_row = np.max(errors, -1)
    sums = np.sum(_weights(subject, found), -1)
    worst = np.argsort(-of_row, kind="stable")[:_WORST]
    drops = _drops(subject, x, found)
    top = np.take_along_axis(subject.to_units(found), np.argmax(x, -1)[:, None], -1)[:, 0]
    return {
        "rows": len(x),
        "elements": x.size,
        "greatest_error": _plain(np.max(of_row)),
        "mean_error": _plain(np.mean(errors)),
        "beyond_tolerance": int(np.sum(of_row > subject.tolerance)),
        "row_sums": [_plain(np.min(sums)), _plain(np.max(sums))],
        "order_lost": int(np.sum(drops > 0)),
        "greatest_drop": _plain(np.max(drops, initial=0.0)),
        "first_choice_lost": int(np.sum(top < np.max(subject.to_units(found), -1))),
        "worst": [
            {
                "kind": None if kinds is None else kinds[row],
                "error": _plain(of_row[row]),
                "at": int(np.argmax(errors[row])),
                **({"scores": x[row].tolist(), "found": found[row].tolist()} if x.shape[1] <= _MOST_SHOWN else {}),
            }
            for row in worst
        ],
    }


def slack_after(subject: Subject, facts: Mapping[str, Any]) -> float:
    """Return the slack of the checks that follow, from the facts of this one.

    A runtime that is beyond the tolerance in many rows approximates: what else breaks shows only beyond its usual
    errors. Few such rows, or results that are far from the exact ones, are a fault of their own, and make nothing else
    right.
    """
    parts = [facts[title] for title in ("pairs", "rows") if title in facts]
    rows, beyond = sum(part["rows"] for part in parts), sum(part["beyond_tolerance"] for part in parts)
    errors = [part["greatest_error"] for part in parts if part["greatest_error"] is not None]
    if not errors or beyond < _APPROXIMATES * rows or max(errors) > _DEFECT * subject.full_scale:
        return subject.tolerance
    return max(subject.tolerance, _ROOM * max(errors))


def _weights(subject: Subject, found: Array) -> Reals:
    return found.astype(np.float64) if subject.result is None else subject.result.decode(found)


def _drops(subject: Subject, x: Array, found: Array) -> Reals:
    """Return by how many units, in each row, some element is below one of a smaller score; 0 where order is kept."""
    order = np.argsort(x, -1, kind="stable")
    scores, units = (np.take_along_axis(a, order, -1) for a in (x.astype(np.float64), subject.to_units(found)))
    # Equal scores may differ: what counts is the greatest of those that are smaller.
    best = np.maximum.accumulate(units, -1)
    drops = np.where(scores[:, 1:] > scores[:, :-1], best[:, :-1] - units[:, 1:], 0.0)
    return np.max(drops, -1, initial=0.0)


def _find_faults(subject: Subject, x: Array, found: Array) -> list[Fault]:
    faults: list[Fault] = []
    wrong = subject.wrong_rows(x, found, subject.tolerance)
    if wrong.size:
        worst = float(np.max(subject.errors(found[wrong[:1]], subject.exact(x[wrong[:1]]))))
        least = max(subject.tolerance, min(_LIKE_THE_WORST * worst, _MOST_UNITS))
        row = shrink(x[wrong[:1]], lambda part: is_wrong(subject, part, least))
        case = case_of(subject, row)
        kind, text = _name(subject, case.found, row)
        faults.append(Fault(kind, f"{text}, in {len(wrong)} of {len(x)} rows of {x.shape[1]}", case, len(wrong)))
    drops = _drops(subject, x, found)
    lost = np.flatnonzero(drops >= 1)
    if lost.size:
        worst = lost[np.argmax(drops[lost])]
        row = shrink(x[worst], lambda part: _loses_order(subject, part))
        most, where = in_units(float(drops[worst])), counted(int(lost.size), "row")
        text = f"a greater score gets less than a smaller one, by up to {most}, in {where}"
        faults.append(Fault("order", text, case_of(subject, row), int(lost.size)))
    return faults


def _loses_order(subject: Subject, x: Array) -> bool:
    try:
        return bool(_drops(subject, x, subject.compute(x))[0] >= 1)
    except FailureError:
        return False


def _name(subject: Subject, found: Array | None, x: Array) -> tuple[str, str]:
    """Return what kind of wrong value this is, and what to say of it."""
    assert found is not None, "it was computed before"
    exact = subject.exact(x)
    errors = subject.errors(found, exact)
    at = int(np.argmax(errors))
    off = float(errors.flat[at])
    values = f"{found.flat[at]:g} where {exact.flat[at] * (1 if subject.result else subject.unit):.6g} is exact"
    if subject.result is not None and off > _WRAPS * (subject.result.high - subject.result.low):
        return "wraps", f"a result wraps around: {values}"
    return "value", f"a result is wrong by {in_units(off)}: {values}"


def _plain(value: Any) -> float | None:
    """Return a number as JSON has it: None for what is infinite or none."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


CHECK = Check(name="values", title="Values", run=_run, order=0)
