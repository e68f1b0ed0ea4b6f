"""Every axis of tensors of 1 to 5 axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from softq.audit.checks import Check, Setting
from softq.audit.faults import Fault, Result, case_of
from softq.audit.process import FailureError
from softq.audit.subject import Subject
from softq.audit.task import Array
from softq.wording import in_units

_SIZES = (5, 2, 3, 4, 6)
"""Of the axes from the last one on: all different, so that a mistaken axis shows."""


def _scores(subject: Subject, rank: int, setting: Setting) -> Array:
    shape = _SIZES[:rank][::-1]
    # Far apart, so that weights of another axis are quite other weights.
    spread = 4.0 if subject.scores is None else 4.0 / subject.scores.scale
    middle = 0.0 if subject.is_float else (subject.lowest + subject.highest + 1) / 2
    x = setting.random().normal(size=shape) * spread + middle
    return np.clip(x if subject.is_float else np.rint(x), subject.lowest, subject.highest).astype(subject.dtype)


def _run(subject: Subject, setting: Setting) -> Result:
    outcomes: list[dict[str, Any]] = []
    faults: list[Fault] = []
    for rank in range(1, len(_SIZES) + 1):
        axes = range(-rank, rank) if subject.any_axis else (-1,)
        x = _scores(subject, rank, setting)
        for axis in axes:
            outcome = _try(subject, x, axis)
            outcomes.append({"rank": rank, "axis": axis, "outcome": outcome})
            # A runtime may refuse an axis.
            if not outcome.startswith(("as exact", "refused")):
                other = _other_axis(subject, x, axis) if outcome.startswith("wrong") else ""
                text = f"axis {axis} of {rank} axes: {outcome}{other}"
                faults.append(Fault("axis", text, case_of(subject, x, axis)))
    return Result({"tried": outcomes}, tuple(faults[:1]))


def _try(subject: Subject, x: Array, axis: int) -> str:
    try:
        found = subject.compute(x, axis)
    except FailureError as error:
        return f"{error.kind}: {error}"
    off = float(np.max(subject.errors(found, subject.exact(x, axis))))
    return "as exact" if off <= subject.slack else f"wrong by {in_units(off)}"


def _other_axis(subject: Subject, x: Array, axis: int) -> str:
    """Return the axis that was taken instead, in words, if one was."""
    found = subject.compute(x, axis)
    for other in range(x.ndim):
        if other != axis % x.ndim and np.max(subject.errors(found, subject.exact(x, other))) <= subject.slack:
            return f"; that is the softmax along axis {other}"
    return ""


CHECK = Check(name="axes", title="Axes", run=_run, order=3)
