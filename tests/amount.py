"""How much a test does: less in the quick run (`-m 'not slow'`, as `make test` says), everything in every other one."""

from __future__ import annotations

import os
import random
from collections.abc import Container, Iterable, Sequence, Set
from typing import TypeVar

import pytest

T = TypeVar("T")
VARIABLE = "SOFTQ_QUICK_TESTS"
"""Set by tests/conftest.py before tests are collected."""


def slow_but(cases: Iterable[T], quick: Container[T]) -> list[object]:
    """Return cases for `parametrize`, of which only some are in the quick run."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def spread(cases: Sequence[Set[object]], count: int, seed: str) -> set[int]:
    """Return the numbers of some cases, drawn by a seed: first such as have a value that no earlier one has."""
    order = random.Random(seed).sample(range(len(cases)), len(cases))
    seen: set[object] = set()
    first: list[int] = []
    for number in order:
        if not cases[number] <= seen:
            first.append(number)
            seen |= cases[number]
    return set([*first, *(number for number in order if number not in first)][:count])


def amount(quick: T, every: T) -> T:
    """Return the first in the quick run, else the second: a number of examples, a list of cases, a machine."""
    return quick if os.environ.get(VARIABLE) else every
