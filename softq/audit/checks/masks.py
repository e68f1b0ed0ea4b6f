"""Rows of which a part is masked by great negative scores, as models write their masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from softq.audit.checks import Check, Setting
from softq.audit.faults import Fault, Result, case_of, is_wrong, shrink
from softq.audit.process import FailureError
from softq.audit.subject import Subject
from softq.wording import in_units


def _masks(subject: Subject) -> dict[str, float]:
    if not subject.is_float:
        return {"the least score": subject.lowest}
    values = (-1e4, -65504.0, -1e9, float(np.finfo(np.float32).min))
    return {f"{value:g}": value for value in values if value >= subject.lowest}


def _run(subject: Subject, setting: Setting) -> Result:
    facts: dict[str, Any] = {"rows": []}
    faults: list[Fault] = []
    rng, n = setting.random(), max(setting.length, 2)
    spread = 1.0 if subject.scores is None else 1.0 / subject.scores.scale
    x = rng.normal(size=n) * spread
    x = x if subject.is_float else np.rint(np.clip(x + subject.highest - 2 * spread, subject.lowest, subject.highest))
    for name, value in _masks(subject).items():
        for title, masked in (
            (f"{name} in half of a row", np.arange(n) % 2 == 1),
            (f"{name} but for one element", np.arange(n) != n // 2),
            (f"{name} in a whole row", np.ones(n, np.bool_)),
        ):
            row = np.where(masked, value, x).astype(subject.dtype)[None]
            try:
                found = subject.compute(row)
            except FailureError as error:
                facts["rows"].append({"row": title, "outcome": f"{error.kind}: {error}"})
                faults.append(Fault(error.kind, f"{title}: {error}", case_of(subject, row)))
                continue
            off = float(np.max(subject.errors(found, subject.exact(row))))
            outcome = "as exact" if off <= subject.slack else f"wrong by {in_units(off)}"
            facts["rows"].append({"row": title, "outcome": outcome})
            if off > subject.slack:
                small = shrink(row, lambda part: is_wrong(subject, part))
                faults.append(Fault("mask", f"{title}: {outcome}", case_of(subject, small)))
    return Result(facts, tuple(faults[:1]))


CHECK = Check(name="masks", title="Masks", run=_run, order=5)
