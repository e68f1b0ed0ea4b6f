"""Memory of intermediate tensors: slots, scratch of row programs, and kernels that do their work items in parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from softq.artifact.program import Op, Size, evaluate
from softq.compiler.steps.memory_plan import Buffer, slots
from softq.rowprog import DType, Trace, run
from tests.native import Array, Executor, build_program

pytest.importorskip("tvm")

_SIZES: st.SearchStrategy[Size] = st.one_of(
    st.integers(0, 1 << 16),
    st.just("n"),
    st.builds(lambda a, b: Op("mul", a, b), st.integers(1, 64), st.sampled_from(["n", "m"])),
)


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    found: list[Buffer] = []
    for _ in range(draw(st.integers(0, 24))):
        first = draw(st.integers(0, 20))
        found.append(Buffer(draw(_SIZES), first, first + draw(st.integers(0, 6))))
    return found


@settings(deadline=None, max_examples=200)
@given(buffers(), st.integers(0, 300), st.integers(0, 300))
def test_buffers_that_live_together_share_no_slot(given_: list[Buffer], n: int, m: int) -> None:
    placed, sizes = slots(given_, ["n", "m"])
    dims: Mapping[str, int] = {"n": n, "m": m}
    assert len(placed) == len(given_)
    for position, buffer in enumerate(given_):
        assert evaluate(buffer.bytes, dims) <= evaluate(sizes[placed[position]], dims)
        for other in range(position):
            if buffer.first <= given_[other].last and given_[other].first <= buffer.last:
                assert placed[position] != placed[other]
    # A slot is as large as one of its buffers, so all of them are never larger than the buffers side by side.
    assert sum(evaluate(size, dims) for size in sizes) <= sum(evaluate(b.bytes, dims) for b in given_)


class InParts(Executor):
    """Runs every step in two calls: the work items up to a part of them, then the rest, the last part first."""

    part = 0.5

    def call(self, kernel: str, arrays: list[Array], numbers: list[int]) -> None:
        *scalars, begin, end = numbers
        middle = begin + int((end - begin) * self.part)
        for bounds in ((middle, end), (begin, middle)):
            super().call(kernel, arrays, [*scalars, *bounds])


@settings(deadline=None, max_examples=20)
@given(st.floats(0, 1), st.integers(0, 5), st.integers(1, 40))
def test_work_items_in_two_parts_give_the_same_as_in_one_go(part: float, rows: int, length: int) -> None:
    executor, halves = _executors()
    halves.part = part
    rng = np.random.default_rng(rows * 64 + length)
    inputs: dict[str, Array] = {
        "x": rng.normal(size=(rows, 3, length)).astype(np.float32),
        "i": rng.integers(0, 3, (rows,)),
    }
    whole, parts = executor(inputs), halves(inputs)
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value)


_CACHE: list[tuple[Executor, InParts]] = []


def _executors() -> tuple[Executor, InParts]:
    if not _CACHE:
        text = """<ir_version: 10, opset_import: ["" : 18]>
            g (float[n, 3, m] x, int64[n] i) => (float[n, 3, m] a, float[n, 1, m] b, float[n, 3, 3] c, float[n, 3, m] d)
            <int64[1] axis = {1}, int64 last = {-1}> {
                a = Softmax(x)
                e = Exp(x)
                b = ReduceSum(e, axis)
                t = Transpose<perm=[0, 2, 1]>(x)
                c = MatMul(x, t)
                d = CumSum(x, last)
            }"""
        program = build_program(parser.parse_model(text))
        _CACHE.append((Executor(program), InParts(program)))
    return _CACHE[0]


def test_a_row_program_gets_the_scratch_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from softq.codegen.cpu import machines
    from softq.codegen.cpu.rows import row_kernel
    from softq.compiler.frontend.converters import softmaxes

    t = Trace("stored", structure="x", scores=DType.F32)
    root = t.sqrt(t.max(t.scores, 0.0))
    log = t.log2(t.max(t.scores, 1.0))
    cube = t.sqrt(t.max(t.scores, 2.0))
    least = t.row_max(root) + t.row_max(log) + t.row_max(cube)
    weights = root + log + cube * least
    program = t.program(weights=weights, normalizer=t.row_sum(weights))
    machine = machines.host("cpu", "native", "")
    kernel = row_kernel(program, machine, symbol="softq_x", max_length=64)
    assert kernel.scratch_bytes

    class Method:
        operator = "Softmax"

        def configure(self, settings: Mapping[str, str]) -> None:
            return None

        def program(self, options: None) -> object:
            return program

    class Methods:
        def entries(self) -> dict[str, Method]:
            return {"stored": Method()}

    monkeypatch.setattr(softmaxes, "METHODS", Methods())
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n, 33] x) => (float[n, 33] z) { z = Softmax(x) }'
    built = build_program(parser.parse_model(text))
    x = np.random.default_rng(0).normal(0, 3, (7, 33)).astype(np.float32)
    wanted = run(program, x)
    expected = wanted["weights"].astype(np.float64) / wanted["normalizer"].astype(np.float64)
    for executor in (Executor(built), InParts(built)):
        np.testing.assert_allclose(executor({"x": x})["z"].astype(np.float64), expected, rtol=1e-6)
    (step,) = [s for s in built.steps if s.site is not None]
    scratch = built.tensors[step.tensors[-1]]
    assert (scratch.dtype, evaluate(Op("mul", 1, scratch.shape[-1]), {})) == ("uint8", kernel.scratch_bytes)
