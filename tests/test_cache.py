"""The cache of compiled kernels: what it spares, and that it never decides what is in an artifact."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import softq
from softq.artifact import load
from softq.cache import cached
from softq.errors import UsageError
from tests.attention import attention, inputs


class Compiler:
    """Gives text of a length and counts how often."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, *parts: str, length: int = 100) -> bytes:
        def make() -> bytes:
            self.runs += 1
            return (" ".join(parts) or "nothing").encode() * length

        return cached(parts, make)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOFTQ_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SOFTQ_CACHE_SIZE", raising=False)
    return tmp_path / "cache"


def test_the_same_parts_are_made_once(folder: Path) -> None:
    compiler = Compiler()
    assert compiler("kernel", "machine") == compiler("kernel", "machine") == b"kernel machine" * 100
    assert compiler.runs == 1
    for others in (("kernelm", "achine"), ("kernel", "machine", ""), ("machine", "kernel"), ()):
        compiler(*others)
    assert compiler.runs == 5
    assert len(list(folder.iterdir())) == 5


@pytest.mark.parametrize("damage", ["emptied", "cut", "longer", "another bit", "another entry"])
def test_damaged_entries_are_made_again(folder: Path, damage: str) -> None:
    compiler = Compiler()
    whole = compiler("kernel")
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    compiler("other")
    (other,) = set(folder.iterdir()) - {entry}
    flipped = data[:50] + bytes([data[50] ^ 1]) + data[51:]
    wrong = {"emptied": b"", "cut": data[:-1], "longer": data + b" ", "another bit": flipped}
    entry.write_bytes(wrong.get(damage, other.read_bytes()))
    assert compiler("kernel") == whole
    assert compiler.runs == 3
    assert entry.read_bytes() == data
    assert compiler("kernel") == whole
    assert compiler.runs == 3


def test_what_was_not_read_for_the_longest_time_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_CACHE_SIZE", "1")
    compiler = Compiler()
    kernels = [f"{i:8}" for i in range(4)]
    for age, kernel in enumerate(kernels):
        before = set(folder.iterdir()) if folder.exists() else set[Path]()
        compiler(kernel, length=30_000)
        (entry,) = set(folder.iterdir()) - before
        os.utime(entry, (1_000_000 + age, 1_000_000 + age))
    (folder / "left by a crash").write_bytes(b"")
    os.utime(folder / "left by a crash", (0, 0))
    compiler(kernels[0], length=30_000)  # read, so it is the youngest
    assert compiler.runs == 4
    compiler("a fifth", length=30_000)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3 << 18
    assert len(list(folder.iterdir())) == 3
    compiler(kernels[0], length=30_000)
    assert compiler.runs == 5
    compiler(kernels[1], length=30_000)
    assert compiler.runs == 6


def test_with_size_zero_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_CACHE_SIZE", "0")
    compiler = Compiler()
    assert compiler("kernel") == compiler("kernel")
    assert compiler.runs == 2
    assert not folder.exists()


def test_a_size_that_is_none_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTQ_CACHE_SIZE", "256M")
    with pytest.raises(UsageError, match="SOFTQ_CACHE_SIZE is '256M'; expected a number of megabytes"):
        Compiler()("kernel")


def test_a_folder_that_cannot_be_written_costs_only_time(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    compiler = Compiler()
    assert compiler("kernel") == compiler("kernel") == b"kernel" * 100
    assert compiler.runs == 2


def test_processes_share_the_folder(folder: Path) -> None:
    """Three write 20 entries of 60 kB each over and over, of which the folder holds some twelve at a time."""
    script = """
import random, sys
from softq.cache import cached
order = random.Random(sys.argv[1])
for _ in range(400):
    text = f"{order.randrange(20):02}" * 30_000
    assert cached([text], text.encode) == text.encode()
"""
    environment = os.environ | {"SOFTQ_CACHE_SIZE": "1"}
    commands = [[sys.executable, "-c", script, str(seed)] for seed in range(3)]
    for process in [subprocess.Popen(command, env=environment) for command in commands]:
        assert process.wait() == 0
    assert all(len(entry.name) == 64 and entry.stat().st_size == 60_032 for entry in folder.iterdir())


@pytest.fixture
def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The symbols of the kernels that were compiled."""
    pytest.importorskip("tvm")
    from softq.codegen.cpu import object_code

    found: list[str] = []
    generate = object_code.object_code

    def counted(functions: Any, machine: Any) -> bytes:
        found.extend(str(function.attrs["global_symbol"]) for function in functions)
        return generate(functions, machine)

    monkeypatch.setattr(object_code, "object_code", counted)
    return found


MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    model (float[batch, 2, 5, 4] q, float[batch, 2, 4, keys] k, float[batch, 2, keys, 4] v, float[4, 24] w)
        => (float[batch, 2, 5, 24] out)
    {
        scores = MatMul(q, k)
        p = Softmax <axis = -1> (scores)
        attended = MatMul(p, v)
        product = MatMul(attended, w)
        out = Tanh(product)
    }
""")


def test_another_method_compiles_what_changes(tmp_path: Path, compiled: list[str]) -> None:
    first, other = (softq.convert(MODEL, method=method).model for method in ("deferred-log", "exact"))
    softq.build(first, tmp_path / "first", target="cpu")
    everything = set(compiled)
    assert len(compiled) == len(everything)
    compiled.clear()
    softq.build(first, tmp_path / "again", target="cpu")
    assert compiled == []
    softq.build(other, tmp_path / "other", target="cpu")
    # The row program, the attention that calls it, and the two small kernels that LLVM may put into that.
    assert {"softq_exact_f32", "softq_attention_exact_f32"} == set(compiled) - everything
    assert len(compiled) == 4
    spared = {re.sub("_tanh.*", "", symbol) for symbol in everything - set(compiled)}
    assert {"softq_block", "softq_pack", "softq_matmul"} <= spared


def test_an_artifact_has_the_same_bytes_with_and_without(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = softq.convert(attention()).model
    for name, megabytes in (("cold", ""), ("warm", ""), ("without", "0")):
        monkeypatch.setenv("SOFTQ_CACHE_SIZE", megabytes)
        softq.build(converted, tmp_path / name, target="cpu")
    assert len(compiled) == 2 * len(set(compiled))
    cold = {file.name: file.read_bytes() for file in (tmp_path / "cold").iterdir()}
    for name in ("warm", "without"):
        assert {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} == cold
    feed = inputs()
    with load(tmp_path / "warm") as model:
        assert np.isfinite(model(feed)["out"]).all()
