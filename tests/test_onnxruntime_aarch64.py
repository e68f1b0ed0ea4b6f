"""Custom operators on 64-bit Arm, in qemu: equal to the functions in onnxruntime here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import softq
from softq.artifact import manifest
from softq.prebuilt.building import build_library
from softq.prebuilt.functions import WIDTHS
from softq.rowprog.onnx.interface import arguments
from tests.emulators import emulator
from tests.fused import ATTENTIONS, DIMS
from tests.ort_cases import assert_close, session
from tests.ort_library import DROP_IN, calls, fused_model, hard_scores, model_of

_CODES = {"float32": 1, "bool": 9, "int32": 6, "int64": 7}


def run(built: Path, name: str, inputs: list[NDArray[np.generic]]) -> list[NDArray[np.float32]]:
    """Return what an operator of a library for aarch64 makes of its inputs."""
    emulated, program = emulator("aarch64"), built / "stand_in"
    if not program.exists():
        source = Path(__file__).with_name("ort_stand_in.c")
        flags = ["-std=c11", "-O1", "-static", "-fno-sanitize=all", f"-I{built}"]
        command = [sys.executable, "-m", "ziglang", "cc", "-target", emulated.zig, *flags]
        files = [str(source), str(built / "kernels.o"), "-lm", "-o", str(program)]
        subprocess.run([*command, *files], check=True)
    data = np.int64(len(inputs)).tobytes()
    for array in inputs:
        facts = [_CODES[array.dtype.name], array.ndim, *array.shape]
        data += np.array(facts, np.int64).tobytes() + np.ascontiguousarray(array).tobytes()
    (built / "in").write_bytes(data)
    subprocess.run([*emulated.command, str(program), name, str(built / "in"), str(built / "out")], check=True)
    taken, outputs = (built / "out").read_bytes(), list[NDArray[np.float32]]()
    at = 8
    for _ in range(int.from_bytes(taken[:8], "little")):
        rank = int(np.frombuffer(taken, np.int64, 2, at)[1])
        shape = np.frombuffer(taken, np.int64, rank, at + 16)
        at += 16 + 8 * rank
        outputs.append(np.frombuffer(taken, np.float32, int(shape.prod()), at).reshape(shape))
        at += outputs[-1].nbytes
    assert at == len(taken)
    return outputs


@pytest.mark.slow
def test_the_library_that_comes_with_softq(tmp_path: Path) -> None:
    emulator("aarch64")
    built = build_library(tmp_path / "operators", "aarch64")
    assert (built / manifest.OPERATOR_LIBRARY).stat().st_size <= 3_000_000
    for each in calls(DROP_IN, WIDTHS):
        inputs: list[NDArray[np.generic]] = [hard_scores((1, 3, 12, 45), each.program.scores)]
        if each.program.masked:
            inputs.append(np.random.default_rng(1).random((1, 1, 12, 45)) < 0.7)
        feeds = dict(zip(("scores", "valid"), inputs, strict=False))
        want = session(model_of(each, 4), None).run(None, feeds)
        inputs += arguments(each.program, each.values)
        for got, expected in zip(run(built, each.name, inputs), want, strict=True):
            assert_close(got, np.asarray(expected), each.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["added-mask", "side-by-side", "given-scores", "rows"])
def test_equal_to_the_function(name: str, tmp_path: Path) -> None:
    emulator("aarch64")
    given = ATTENTIONS["given-scores" if name == "rows" else name]
    model = softq.convert(given.model(), bits=4).model if name == "rows" else fused_model(given)
    built = softq.build(model, tmp_path / "operators", target="onnxruntime,family=aarch64").folder
    feeds = given.feeds({**DIMS, "S": 53, "N": 70}, whole=True)
    node = next(node for node in model.graph.node if node.domain == "softq")
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=output) for output in node.output)
    want = session(model.SerializeToString(), None).run(None, feeds)
    for got, expected in zip(run(built, node.op_type, [feeds[i] for i in node.input]), want, strict=True):
        np.testing.assert_array_equal(got, np.asarray(expected))
