"""Models that softq af0a849 converted are built as models that today's softq converts by the same plan.

`converted_af0a849.zip` has the original, an attention without a mask and one with a boolean mask, and what that version
made of it with each method's usual options.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import softq
from softq.provenance import plan_of, row_functions
from tests.built import Array

ARCHIVE = Path(__file__).parent / "converted_af0a849.zip"
RNG = np.random.default_rng(8)
FEEDS: dict[str, Array] = {
    name: RNG.standard_normal(shape).astype(np.float32) * 2
    for name, shape in {"q": (2, 5, 8), "k": (2, 8, 7), "v": (2, 7, 8)}.items()
}
FEEDS["m"] = RNG.random((5, 7)) < 0.7


def read(name: str) -> onnx.ModelProto:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return onnx.load_from_string(archive.read(f"{name}.onnx"))


def names() -> list[str]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return [name.removesuffix(".onnx") for name in archive.namelist() if name != "original.onnx"]


def convert_again(name: str) -> onnx.ModelProto:
    plan = plan_of(ir.from_proto(read(name)))
    assert plan is not None
    return softq.convert(read("original"), plan=plan, allow_substitute=True).model


def run(model: onnx.ModelProto) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, FEEDS)]


def build_and_run(model: onnx.ModelProto, folder: Path) -> list[Array]:
    softq.build(model, folder, target="cpu")
    with softq.load(folder) as built:
        results = built(dict(FEEDS))
        return [np.asarray(results[output.name]) for output in model.graph.output]


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("name", names())
def test_each_function_is_recognised_and_gives_the_same_bits(name: str) -> None:
    before, now = read(name), convert_again(name)
    functions = row_functions(ir.from_proto(before))
    assert functions
    assert functions.keys() == row_functions(ir.from_proto(now)).keys()
    for old, new in zip(run(before), run(now), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", names())
def test_it_is_built_to_the_same_bits(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    old, new = (
        build_and_run(model, tmp_path / kind) for kind, model in (("before", read(name)), ("now", convert_again(name)))
    )
    for one, other in zip(old, new, strict=True):
        np.testing.assert_array_equal(one, other)
