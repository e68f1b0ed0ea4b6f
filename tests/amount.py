"""How much a test does: less in the quick run (`-m 'not slow'`, as `make test` says), everything in every other one."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
VARIABLE = "SOFTQ_QUICK_TESTS"
"""Set by tests/conftest.py before tests are collected."""


def slow_but(cases: Iterable[T], quick: Container[T]) -> list[object]:
    """Return cases for `parametrize`, of which only some are in the quick run."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def amount(quick: T, every: T) -> T:
    """Return the first in the quick run, else the second: a number of examples, a list of cases, a machine."""
    return quick if os.environ.get(VARIABLE) else every
