"""The same input, versions and options give the same artifact, whoever builds it and wherever."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import softq
from softq.artifact import write
from softq.artifact.toolchain import compiler
from softq.modelfile import as_model, save
from tests.handmade import HOST, needs_host, rows_program

MODEL = Path(__file__).parents[1] / "models" / "mnist_vit" / "mnist_vit.onnx"


@needs_host
def test_no_file_names_a_folder_of_this_computer(tmp_path: Path) -> None:
    built = write(rows_program(), HOST, tmp_path / "built", target="cpu")
    packages = Path(compiler(HOST)[0]).parents[1]
    for path in built.iterdir():
        for folder in (tmp_path, Path.home(), Path.cwd(), Path(sys.prefix), packages):
            assert os.fsencode(folder) + b"/" not in path.read_bytes(), (path.name, folder)
    assert b".debug_" not in (built / "libmodel.so").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "aarch64", "armv7", "riscv64", "cuda", "onnxruntime"])
def test_builds_of_two_users_are_equal_to_the_byte(target: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("tvm") is None:
        pytest.skip("builds need TVM")
    found: list[dict[str, bytes]] = []
    given = tmp_path / "given.onnx"
    # The kernels for onnxruntime are those of functions that converting puts in.
    save(softq.convert(as_model(MODEL)).model if target == "onnxruntime" else as_model(MODEL), given)
    # Homes are new: the compiler makes its own pieces of the C library in each, and nothing comes out of a cache.
    for name, settings in (("a", {}), ("other/user", {"SOFTQ_JOBS": "1", "SOFTQ_CACHE_SIZE": "0"})):
        home, there = tmp_path / name / "home", tmp_path / name / "work"
        for folder in (home, there):
            folder.mkdir(parents=True)
        environment = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "SOFTQ_JOBS")}
        environment |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(MODEL.parents[2]), **settings}
        model = there / f"{name[0]}.onnx"
        model.write_bytes(given.read_bytes())
        command = [sys.executable, "-m", "softq", "build", model.name, f"built-{name[0]}", "--target", target]
        done = subprocess.run(command, cwd=there, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append({path.name: path.read_bytes() for path in (there / f"built-{name[0]}").iterdir()})
    assert found[0].keys() == found[1].keys()
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []
