"""What is private in TVM is used in one file, for one version."""

from __future__ import annotations

from pathlib import Path

import pytest

import softq
from softq.artifact.program import evaluate
from softq.compiler.steps.memory_plan import Buffer, slots

pytest.importorskip("tvm")


def test_the_installed_version_is_the_one_that_the_importer_is_for() -> None:
    from softq.compiler.frontend.imported import check_version

    check_version()


@pytest.mark.parametrize("version", ["0.26.0", "0.28.0", "1.0.0"])
def test_another_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    from softq.compiler.frontend.imported import check_version

    monkeypatch.setattr(tvm, "__version__", version)
    with pytest.raises(softq.SoftqError, match=rf"needs TVM 0\.27\.0, installed is {version}"):
        check_version()


def test_only_the_importer_touches_the_frontend() -> None:
    home = Path(softq.__file__).parent
    users = [p.name for p in home.rglob("*.py") if "onnx_frontend" in p.read_text(encoding="utf-8")]
    assert users == ["importer.py"]


def test_tensors_that_live_together_share_no_slot() -> None:
    spans = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 3), (4, 6), (5, 6), (6, 9)]
    buffers = [Buffer(4 << i, first, last) for i, (first, last) in enumerate(spans)]
    placed, sizes = slots(buffers, [])
    for i, a in enumerate(buffers):
        assert evaluate(sizes[placed[i]], {}) >= evaluate(a.bytes, {})
        for j, b in enumerate(buffers[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert placed[i] != placed[j]
    assert len(sizes) < len(buffers)
