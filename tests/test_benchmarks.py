"""Benchmarks are not run by tests; that each can be imported shows that what they name is there."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from onnx import parser

import benchmarks

pytest.importorskip("tvm")

MODULES = [m.name for m in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)


def test_seconds_of_building_are_those_without_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.cpu.models import SMALL, build_seconds

    monkeypatch.setenv("SOFTQ_CACHE_DIR", str(tmp_path / "kernels"))
    assert build_seconds(parser.parse_model(SMALL), tmp_path / "built", "cpu") > 0
    assert (tmp_path / "built" / "manifest.json").exists()
    assert not (tmp_path / "kernels").exists()
