"""Random attentions, built and run with guard bytes around and between all memory, against onnxruntime.

Tolerances are float32's for sums of up to 1,500 terms; where weights are rounded to 8 bits, a weight at the border of
two codes may have either.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq.compiler.fusion import attention
from tests.built import Array
from tests.native import Executor, build_program
from tests.random_attentions import DrawnAttention, draw_attention
from tests.sanitized import ADDRESS, run
from tests.test_gpu_build import on_device, opencl_of


def compare(found: Mapping[str, Array], wanted: Mapping[str, Array], coarse: float = 0.0) -> None:
    for name, want in wanted.items():
        assert (found[name].shape, found[name].dtype) == (want.shape, want.dtype), name
        got, expected = np.float64(found[name]), np.float64(want)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 + coarse, equal_nan=False, err_msg=name)


def run_attention(drawn: DrawnAttention) -> None:
    """Build an attention for the processor, and in C if its lengths are numbers, and compare what each gives."""
    executor = Executor(build_program(drawn.model))
    for feed, wanted in zip(drawn.feeds, drawn.wanted, strict=True):
        compare(executor(feed), wanted, drawn.coarse)
    if len(drawn.feeds) == 1:
        with tempfile.TemporaryDirectory() as folder:
            found = run(drawn.model, drawn.feeds[0], drawn.wanted[0], Path(folder), ADDRESS)
        compare(found, drawn.wanted[0], drawn.coarse)


@pytest.mark.parametrize("seed", range(12))
def test_random_attentions(seed: int) -> None:
    run_attention(draw_attention(Random(seed)))


@pytest.mark.slow
def test_four_hundred_random_attentions() -> None:
    for seed in range(400):
        run_attention(draw_attention(Random(seed)))


OPERANDS = "float[B,2,S,4] q, float[B,2,4,L] k, float[B,2,L,3] v"
ALONG: Mapping[int, str] = {1: "heads", 2: "rows", 3: "columns"}


def joined(axis: int, other: str) -> str:
    """Return the text of a model whose scores are joined with others, whose weights are cut off."""
    return f"""({OPERANDS}, float[{other}] x) => (float[B,2,S,3] y)
        <int64[1] first = {{0}}, int64[1] end = {{-1}}, int64[1] axis = {{{axis}}}> {{
        s = MatMul(q, k)  c = Concat<axis = {axis}>(s, x)  w = Softmax(c)  p = Slice(w, first, end, axis)
        y = MatMul(p, v) }}"""


def cut_result(axis: int, perm: str = "0,1,2,3") -> str:
    """Return the text of a model whose result is cut and turned."""
    return f"""({OPERANDS}) => (float[b,h,s,d] y)
        <int64[1] first = {{0}}, int64[1] end = {{-1}}, int64[1] axis = {{{axis}}}> {{
        s = MatMul(q, k)  p = Softmax(s)  o = MatMul(p, v)  c = Slice(o, first, end, axis)
        y = Transpose<perm = [{perm}]>(c) }}"""


def padded_result(axis: int) -> str:
    pads = ",".join("2" if i == 4 + axis else "0" for i in range(8))
    return f"""({OPERANDS}) => (float[b,h,s,d] y) <int64[8] pads = {{{pads}}}> {{
        s = MatMul(q, k)  p = Softmax(s)  o = MatMul(p, v)  y = Pad(o, pads) }}"""


LONGER = {
    "sinks": joined(3, "B,2,S,1"),
    "cut before and padded after": f"""({OPERANDS}) => (float[B,2,S,3] y)
        <int64[1] first = {{0}}, int64[1] end = {{-1}}, int64[1] axis = {{3}}, int64[8] pads = {{0,0,0,0,0,0,0,1}}> {{
        s = MatMul(q, k)  c = Slice(s, first, end, axis)  w = Softmax(c)  p = Pad(w, pads)  y = MatMul(p, v) }}""",
    "many columns more": f"""({OPERANDS}) => (float[B,2,S,3] y)
        <int64[1] first = {{0}}, int64[1] end = {{-40}}, int64[1] axis = {{3}}, int64[8] pads = {{0,0,0,0,0,0,0,40}}> {{
        s = MatMul(q, k)  c = Pad(s, pads)  w = Softmax(c)  p = Slice(w, first, end, axis)  y = MatMul(p, v) }}""",
}
"""Attentions whose rows have several lengths: they are one kernel on processors."""

OTHER_ROWS = {
    "given scores of all batches": """(float[1,2,S,L] s, float[B,2,L,3] v) => (float[B,2,S,3] y) {
        p = Softmax(s)  y = MatMul(p, v) }""",
    "weights of all batches": """(float[1,2,S,L] s, float[B,2,S,L] m, float[B,2,L,3] v) => (float[B,2,S,3] y) {
        w = Softmax(s)  p = Mul(w, m)  y = MatMul(p, v) }""",
    "heads joined": joined(1, "B,1,S,L"),
    "rows joined": joined(2, "B,2,1,L"),
    **{f"{ALONG[axis]} of the result cut": cut_result(axis) for axis in (1, 2, 3)},
    **{f"{ALONG[axis]} of the result padded": padded_result(axis) for axis in (2, 3)},
    "rows of a turned result cut": cut_result(2, "0,2,1,3"),
}
"""Attentions some of whose rows are not those of the scores: each part is a kernel of its own."""


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> f {text}')


def feeds_of(model: onnx.ModelProto, **lengths: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {v.name: [lengths.get(d.dim_param, d.dim_value) for d in v.type.tensor_type.shape.dim]
              for v in model.graph.input}  # fmt: skip
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def wanted_of(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return {"y": np.asarray(session.run(["y"], dict(feeds))[0])}


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", [*LONGER, *OTHER_ROWS])
def test_rows_of_other_lengths_and_numbers(name: str) -> None:
    model = model_of({**LONGER, **OTHER_ROWS}[name])
    program = build_program(model)
    assert name in OTHER_ROWS or any("attention" in step.kernel for step in program.steps)
    executor = Executor(program)
    for batch, rows, length in ((1, 3, 4), (2, 5, 33), (2, 60, 32), (3, 9, 700)):
        feeds = feeds_of(model, B=batch, S=rows, L=length)
        compare(executor(feeds), wanted_of(model, feeds))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", [*LONGER, *OTHER_ROWS])
def test_rows_of_other_lengths_and_numbers_on_gpus(name: str) -> None:
    model = model_of({**LONGER, **OTHER_ROWS}[name])
    found, _ = on_device(opencl_of(model))
    feeds = feeds_of(model, B=2, S=5, L=33)
    compare(found(feeds), wanted_of(model, feeds))


def test_rows_that_are_not_proved_to_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_has_same_shape", lambda *_, **__: True)
    for name in ("rows joined", "heads joined", "rows of the result cut"):
        with pytest.raises(softq.RefusalError, match="rows that are not proved to be those of its scores"):
            build_program(model_of(OTHER_ROWS[name]))
