"""What is wrong, with the smallest scores that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softq.audit.process import FailureError
from softq.audit.subject import Subject
from softq.audit.task import Array, Task

_TRIES = 60


@dataclass(frozen=True)
class Case:
    """Scores that show a fault.

    Attributes:
        task: The softmax of these scores: along the last axis it is the subject's axis to the runtime.
        scores: Of the task's shape and type.
        found: What came; None where nothing did.
        expected: The exact result in the type of the result, rounded; None where the fault is none of values.
    """

    task: Task
    scores: Array
    found: Array | None = None
    expected: Array | None = None


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        kind: A word or two: value, wraps, length, axis, batch, special, mask, repeat, threads, order, ended, hung...
        text: What is wrong, in a sentence.
        case: The smallest scores that were found to show it.
        count: How many of the rows that were tried show it; 0 where that was not counted.
    """

    kind: str
    text: str
    case: Case
    count: int = 0


@dataclass(frozen=True)
class Result:
    """What a check found.

    Attributes:
        facts: What was seen, as values that JSON has.
        faults: What is wrong.
    """

    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    faults: tuple[Fault, ...] = ()


def round_result(subject: Subject, exact: np.ndarray) -> Array:
    """Return an exact result (in units) in the type of the result."""
    if subject.result is not None:
        return np.rint(exact).astype(subject.result.dtype)
    return np.asarray(exact * subject.unit).astype(subject.dtype)


def case_of(subject: Subject, x: Array, axis: int = -1, threads: int = 1) -> Case:
    """Return the case of these scores with what the runtime makes of them now."""
    x = x.astype(subject.dtype)
    try:
        found = subject.compute(x, axis, threads)
    except FailureError:
        found = None
    return case_with(subject, x, found, axis, threads)


def case_with(subject: Subject, x: Array, found: Array | None, axis: int = -1, threads: int = 1) -> Case:
    """Return the case of these scores, of the subject's type, with what the runtime made of them."""
    return Case(subject.task(x.shape, axis, threads), x, found, round_result(subject, subject.exact(x, axis)))


def shrink(x: Array, shows: Callable[[Array], bool]) -> Array:
    """Return a row, as short as it was found, that still shows a fault.

    Args:
        x: [1, N] or [N], which shows it.
        shows: Whether scores [1, N] show it.
    """
    row = x.reshape(1, -1)
    tries = 0
    shorter = True
    while shorter and tries < _TRIES:
        shorter = False
        for part in _parts(row):
            tries += 1
            if shows(part):
                row, shorter = part, True
                break
            if tries >= _TRIES:
                break
    return row


def _parts(row: Array) -> Iterator[Array]:
    """Yield shorter rows: the greatest element stays in the first of them."""
    n = row.shape[-1]
    size = n // 2
    while size >= 1:
        for start in range(0, n, size):
            rest = np.delete(row, slice(start, start + size), axis=-1)
            if 0 < rest.shape[-1] < n:
                yield rest
        size //= 2


def is_wrong(subject: Subject, x: Array, limit: float | None = None) -> bool:
    """Tell whether an element of these rows is wrong by more than a limit, `subject.slack` where none is given."""
    try:
        return bool(subject.wrong_rows(x, subject.compute(x), limit).size)
    except FailureError:
        return False
