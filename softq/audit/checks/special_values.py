"""Infinities, NaN, subnormal numbers, and the least and the greatest that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from softq.audit.checks import Check, Setting
from softq.audit.faults import Fault, Result, case_of, is_wrong, shrink
from softq.audit.process import FailureError
from softq.audit.subject import Subject
from softq.audit.task import Array
from softq.wording import counted, in_units

_CHOICES = ("only -inf", "+inf once", "+inf twice")
"""Rows whose result is NaN by arithmetic, and that runtimes give other results for on purpose."""


def _rows(subject: Subject, n: int, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    x = rng.normal(size=n) * 2
    at = np.arange(n)
    info = np.finfo(subject.dtype)
    yield "-inf in places", np.where(at % 3 == 1, -np.inf, x)
    yield "-inf but one", np.where(at == n - 1, x, -np.inf)
    yield "greatest and least number", np.where(at == 0, float(info.max), float(info.min))
    yield "all the greatest number", np.full(n, float(info.max))
    yield "all the least number", np.full(n, float(info.min))
    yield "zeros of both signs", np.where(at % 2 == 0, -0.0, 0.0)
    yield "subnormal", np.where(at % 2 == 0, 1.0, -1.0) * float(info.smallest_subnormal)
    yield "NaN first", np.where(at == 0, np.nan, x)
    yield "NaN last", np.where(at == n - 1, np.nan, x)
    yield "NaN and -inf", np.where(at == n // 2, np.nan, -np.inf)
    yield "only -inf", np.full(n, -np.inf)
    yield "+inf once", np.where(at == n // 2, np.inf, x)
    yield "+inf twice", np.where(at < 2, np.inf, x)


def _run(subject: Subject, setting: Setting) -> Result:
    if not subject.is_float:
        return Result({"skipped": "integers have no special values"})
    facts: dict[str, Any] = {"rows": []}
    faults: list[Fault] = []
    for name, row in _rows(subject, max(setting.length, 3), setting.random()):
        x = row.astype(subject.dtype)[None]
        try:
            found = subject.compute(x)
        except FailureError as error:
            facts["rows"].append({"row": name, "outcome": f"{error.kind}: {error}"})
            faults.append(Fault(error.kind, f"a row with {name}: {error}", case_of(subject, x)))
            continue
        right = subject.wrong_rows(x, found).size == 0
        outcome = _say(subject, x, found, right)
        facts["rows"].append({"row": name, "outcome": outcome})
        if not right and name not in _CHOICES:
            small = shrink(x, lambda part: is_wrong(subject, part))
            faults.append(Fault("special", f"a row with {name}: {outcome}", case_of(subject, small)))
    return Result(facts, tuple(faults))


def _say(subject: Subject, x: Array, found: Array, right: bool) -> str:
    if right:
        return "NaN, as by arithmetic" if np.all(np.isnan(found)) else "as exact"
    values = found.astype(np.float64)
    if np.all(np.isnan(values)):
        return "NaN"
    if np.any(np.isnan(values)):
        return f"NaN in {int(np.sum(np.isnan(values)))} of {counted(values.size, 'element')}"
    if np.any(np.isnan(x)):
        return "numbers, as if there were no NaN"
    if not np.any(values):
        return "zeros"
    if np.allclose(values, 1 / values.size, rtol=1e-3):
        return "all the same, 1 / N"
    infinite = np.isposinf(x.astype(np.float64))
    if np.any(infinite) and np.allclose(values, infinite / np.sum(infinite), atol=1e-3):
        return "all the weight at +inf"
    return f"wrong by {in_units(float(np.max(subject.errors(found, subject.exact(x)))))}"


CHECK = Check(name="special-values", title="Special values", run=_run, order=4)
