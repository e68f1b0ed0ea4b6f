"""The same call again, with the same and with other numbers of threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from softq.audit.checks import Check, Setting
from softq.audit.faults import Case, Fault, Result
from softq.audit.process import FailureError
from softq.audit.rows import long_rows
from softq.audit.subject import Subject
from softq.wording import counted, in_units

_TIMES = 20
_THREADS = (2, 3, 4)


def _run(subject: Subject, setting: Setting) -> Result:
    _, x = long_rows(subject, setting.length, setting.random())
    facts: dict[str, Any] = {"times": _TIMES}
    try:
        first = subject.compute(x)
        for _ in range(_TIMES - 1):
            again = subject.compute(x)
            if not np.array_equal(again, first, equal_nan=subject.is_float):
                changed = int(np.sum(again != first))
                which = f"{changed} of {counted(x.size, 'element')} changed within {_TIMES} runs"
                text = f"the same scores give other results: {which}"
                return Result(facts, (Fault("repeat", text, Case(subject.task(x.shape), x, again, first), changed),))
    except FailureError as error:
        return Result(facts | {"skipped": str(error)})
    faults: list[Fault] = []
    facts["threads"] = []
    for threads in _THREADS:
        try:
            found = subject.compute(x, threads=threads)
        except FailureError as error:
            facts["threads"].append({"threads": threads, "outcome": f"{error.kind}: {error}"})
            continue
        off = float(np.max(subject.errors(found, subject.to_units(first))))
        outcome = "equal to the bit" if off == 0 else f"apart by {in_units(off)}"
        facts["threads"].append({"threads": threads, "outcome": outcome})
        if off > subject.tolerance and not faults:
            text = f"{threads} threads give other results than one, by {in_units(off)}"
            faults.append(Fault("threads", text, Case(subject.task(x.shape, threads=threads), x, found, first)))
    return Result(facts, tuple(faults))


CHECK = Check(name="repeats", title="The same again, and threads", run=_run, order=6)
