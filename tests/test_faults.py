"""What the system does to a command: too little memory, interrupts, folders of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from softq.errors import UsageError
from tests.hostile import text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and signals are Linux's")

WITH_LITTLE_MEMORY = """
import resource, sys
import psutil
import softq.conversion, softq.modelfile
from softq.cli import main
most = psutil.Process().memory_info().vms + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
main(sys.argv[2:])
"""


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_too_little_memory_is_one_line(command: str, tmp_path: Path) -> None:
    model, path = text("q = Identity(x)"), tmp_path / "m.onnx"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(8 << 20, np.float32), "weight"))
    onnx.save(model, path)
    out = [tmp_path / "out.onnx"] * (command == "convert")
    done = run_python(WITH_LITTLE_MEMORY, 16 << 20, command, path, *out)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "softq: there is not enough memory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_building_asks_for_address_space_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    import resource

    import softq

    monkeypatch.setattr(resource, "getrlimit", lambda which: (600 << 20, resource.RLIM_INFINITY))
    with pytest.raises(UsageError, match=r"1024 MiB of address space; this process may have 600"):
        softq.build(text("q = Identity(x)"), tmp_path / "out", target="cpu")
    assert list(tmp_path.iterdir()) == []
