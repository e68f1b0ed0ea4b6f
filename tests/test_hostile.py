"""What no file may do: hang, fill memory, or end in another error than softq's own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import softq
from softq import limits
from softq.cli import main
from softq.errors import InputError, SoftqError, UsageError
from softq.passes.raise_opset import RaiseOpset
from softq.sweeps import records
from tests.hostile import BOMBS, SLOWEST, WRONG, Make, called, calls, chain, old, replaced, text

SECONDS = 10.0
"""The bound of docs/limits.md."""


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("name", [*BOMBS, *WRONG])
def test_a_hostile_model_is_read_or_refused(name: str) -> None:
    make, words = {**BOMBS, **WRONG}[name]
    model, start = make(), time.monotonic()
    if words:
        # Less than the usual memory, which takes longer to fill.
        with limits.limited(memory=1 << 26), pytest.raises(InputError, match=words):
            softq.inspect(model)
    else:
        softq.convert(model)
    assert time.monotonic() - start < SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("option", ["", "--inline", "--fuse-attention", "--qdq"])
@pytest.mark.parametrize("name", SLOWEST)
def test_the_slowest_files_of_a_megabyte_are_converted_in_time(name: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(SLOWEST[name]().SerializeToString())
    assert (tmp_path / "m.onnx").stat().st_size < 1_100_000
    command = [sys.executable, "-m", "softq", "convert", "m.onnx", "o.onnx", "--all", *filter(None, [option])]
    process = subprocess.Popen(command, cwd=tmp_path)
    # What this process took and those that it waited for; not what other tests have run.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert used.ru_utime + used.ru_stime < SECONDS
    assert used.ru_maxrss < 1 << 20


@pytest.mark.parametrize("name", ["calls-twice", "concat-doubles", "calls-itself"])
def test_a_hostile_model_in_memory_is_refused(name: str) -> None:
    make, words = BOMBS[name]
    with limits.limited(memory=1 << 26), pytest.raises(InputError, match=words):
        softq.convert(ir.from_proto(cast("onnx.ModelProto", make())))


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (lambda: calls(4, 2), {"nodes": 20}),
        (lambda: calls(4, 1), {"depth": 3}),
        (lambda: calls(4, 1), {"functions": 3}),
        (lambda: chain("Softmax(@)", 4), {"softmaxes": 4}),
        (lambda: text("q = Identity(x)"), {"rank": 3}),
        (BOMBS["expand"][0], {"memory": 1 << 20}),
    ],
    ids=["nodes", "depth", "functions", "softmaxes", "rank", "memory"],
)
def test_limits_are_those_of_the_caller(make: Make, changes: dict[str, int]) -> None:
    (name,) = changes
    with limits.limited(**changes), pytest.raises(InputError, match=f"--limit-{name}"):
        softq.inspect(make())
    with pytest.raises(UsageError, match="there is no limit"), limits.limited(wishes=3):
        pass
    with pytest.raises(UsageError, match="expected a number"), limits.limited(nodes=0):
        pass


def test_functions_that_are_opened_are_counted_before() -> None:
    with limits.limited(opened=100):
        softq.convert(called(100), all_sites=True)
        with pytest.raises(InputError, match=r"106 nodes; the limit is 100 \(--limit-opened"):
            softq.convert(called(106), all_sites=True)


def test_nodes_of_older_operators_are_counted_before_they_are_replaced() -> None:
    model = ir.from_proto(replaced(40, 20))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    with (
        limits.limited(opened=79),
        pytest.raises(InputError, match=r"80 nodes; the limit is 79 \(--limit-opened"),
    ):
        RaiseOpset().call(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    with limits.limited(opened=80):
        RaiseOpset().call(model)
    assert len(model.graph) == 80 + 2 + 20
    with limits.limited(opened=3):
        RaiseOpset().call(ir.from_proto(old(chain("Abs(@)", 40))))  # Nothing of it is replaced.


def test_commands_print_and_change_limits(tmp_path: Path) -> None:
    path = str(tmp_path / "m.onnx")
    onnx.save(calls(4, 2), path)
    printed = json.loads(CliRunner().invoke(main, ["limits", "--json"]).stdout)["limits"]
    assert printed == dataclasses.asdict(limits.Limits())
    assert CliRunner().invoke(main, ["limits"]).stdout.count("\n") == len(printed)
    for number, exit_code in (("20", 2), ("1K", 0), ("many", 2)):
        assert CliRunner().invoke(main, ["inspect", path, "--limit-nodes", number]).exit_code == exit_code
    assert limits.current() == limits.Limits()


def test_limits_grow() -> None:
    with limits.limited(depth=90):
        assert softq.inspect(calls(80, 1))
    with pytest.raises(InputError, match="--limit-depth"):
        softq.inspect(calls(80, 1))


def test_values_of_a_chain_are_what_they_were() -> None:
    """A chain that is short enough to be followed without a memo: 2 ** 12 times -1e4 masks, 12 times 0 does not."""
    masks = chain("Add(@, @)", 12, "v0 = Constant<value=float{-10000.0}>()", "q = Where(c, x, {})")
    nothing = chain("Add(@, @)", 12, "v0 = Constant<value=float{0.0}>()", "q = Where(c, x, {})")
    assert [softq.inspect(model)[0].mask for model in (masks, nothing)] == ["where", "none"]


# Files that are no files


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "read",
    [
        lambda path: softq.inspect(path),
        lambda path: softq.load_plan(path),
        lambda path: softq.convert(text("q = Identity(x)"), calibration=path),
    ],
    ids=["model", "plan", "data"],
)
@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_only_regular_files_are_read(read: Callable[[Path], object], kind: str, tmp_path: Path) -> None:
    path = pipe(tmp_path / "given") if kind == "pipe" else Path("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        read(path)


def test_a_pipe_in_a_folder_is_no_part_of_it(tmp_path: Path) -> None:
    pipe(tmp_path / "manifest.json")
    with pytest.raises(InputError, match="not a regular file"):
        softq.load(tmp_path)
    for name in ("a.npz", "study.json"):
        pipe(tmp_path / name)
    with pytest.raises(InputError, match="not a regular file"):
        softq.convert(text("q = Identity(x)"), calibration=tmp_path)
    with pytest.raises(InputError, match="not a regular file"):
        records.read(tmp_path)


@pytest.mark.parametrize("read", [softq.load_plan, lambda path: records.read(path.parent)], ids=["plan", "study"])
def test_json_may_not_be_deep(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("[" * 200_000)
    with pytest.raises(InputError, match="too deep"):
        read(tmp_path / "study.json")


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    header = np.lib.format.magic(1, 0) + b"v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % (1 << 24)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.ljust(127) + b"\n" + bytes(1 << 24))
    with limits.limited(memory=1 << 20), pytest.raises(InputError, match=r"unpack to .*--limit-memory"):
        softq.convert(text("q = Identity(x)"), calibration=path)


@pytest.mark.parametrize("header", [b"{'descr': '<f4', 'shape': (1,", b"(" * 5000, b"{}", b"\xff\xfe", b"'" * 9])
def test_headers_that_are_no_headers(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header)
    with pytest.raises(InputError, match="is damaged"):
        softq.convert(text("q = Identity(x)"), calibration=path)


def test_tensors_may_not_share_their_bytes_again_and_again(tmp_path: Path) -> None:
    model = text("q = Identity(x)")
    (tmp_path / "w.bin").write_bytes(bytes(1 << 20))
    for number in range(100):
        entries = {"location": "w.bin", "offset": "0", "length": str(1 << 20)}
        tensor = model.graph.initializer.add(name=f"w{number}", data_type=onnx.TensorProto.UINT8, dims=[1 << 20])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="many must be the same ones"):
        softq.inspect(tmp_path / "m.onnx")


def leave() -> None:
    raise SystemExit(3)


def test_a_function_that_ends_the_program_does_not() -> None:
    with pytest.raises(SoftqError, match="SystemExit"):
        softq.convert(text("q = Identity(x)"), calibration=f"{__name__}:leave")
