"""Whether a row's result is its own, whatever rows stand beside it and however the rows are laid out."""

from __future__ import annotations

from typing import Any

import numpy as np

from softq.audit.checks import Check, Setting
from softq.audit.faults import Fault, Result, case_with
from softq.audit.process import FailureError
from softq.audit.rows import long_rows
from softq.audit.subject import Reals, Subject
from softq.audit.task import Array
from softq.wording import in_units

_MOST = 48


def _rows(subject: Subject, setting: Setting) -> Array:
    """Return rows of all kinds, special values among them where there are any."""
    names, rows = long_rows(subject, setting.length, setting.random(), count=10)
    first = {name: number for number, name in reversed(list(enumerate(names)))}
    kept = rows[sorted({*range(10), *first.values()})][:_MOST]
    if not subject.is_float:
        return kept
    row = kept[0]
    lost = [np.full_like(row, -np.inf), np.where(np.arange(row.size) == 0, np.nan, row)]
    return np.concatenate([kept[:6], np.stack(lost).astype(row.dtype), kept[6:]])


def _run(subject: Subject, setting: Setting) -> Result:
    x = _rows(subject, setting)
    try:
        alone = np.concatenate([subject.compute(row[None]) for row in x])
    except FailureError as error:
        return Result({"skipped": f"a row alone gives no result: {error}"})
    facts: dict[str, Any] = {"rows": len(x), "layouts": []}
    for shape in ((len(x),), (1, len(x)), (len(x), 1), (1, 1, len(x))):
        try:
            together = subject.compute(x.reshape(*shape, -1)).reshape(x.shape)
        except FailureError as error:
            facts["layouts"].append({"shape": [*shape, x.shape[1]], "outcome": f"{error.kind}: {error}"})
            continue
        off = _difference(subject, together, alone)
        same = np.array_equal(together, alone, equal_nan=subject.is_float)
        outcome = "equal to the bit" if same else f"apart by {in_units(float(np.max(off)))}"
        facts["layouts"].append({"shape": [*shape, x.shape[1]], "outcome": outcome})
        bad = np.flatnonzero(np.max(off, -1) > subject.tolerance)
        if bad.size:
            return Result(facts, (_fault(subject, x, alone, bad, shape),))
    return Result(facts)


def _difference(subject: Subject, a: Array, b: Array) -> Reals:
    return subject.errors(a, subject.to_units(b))


def _fault(subject: Subject, x: Array, alone: Array, bad: Array, shape: tuple[int, ...]) -> Fault:
    """Return the fault, with two rows if two show it, else with all."""
    last = int(bad[0])
    for first in range(len(x)):
        two = x[[first, last]]
        found = subject.compute(two)
        if first != last and np.max(_difference(subject, found[1:], alone[last : last + 1])) > subject.tolerance:
            text = "a row's result is another one behind this row than alone"
            return Fault("batch", text, case_with(subject, two, found), len(bad))
    whole = x.reshape(*shape, -1)
    text = f"{len(bad)} of {len(x)} rows give other results together than alone"
    return Fault("batch", text, case_with(subject, whole, subject.compute(whole)), len(bad))


CHECK = Check(name="batches", title="Rows beside each other", run=_run, order=2)
