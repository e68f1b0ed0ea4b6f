"""Benchmarks are not run by tests; that each can be imported shows that what they name is there."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import benchmarks

pytest.importorskip("tvm")

MODULES = [m.name for m in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)
