"""Attention in one kernel: equal to the bit to the product, the row kernel and the product one after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import softq
from softq.artifact import load
from softq.artifact.program import Program, evaluate
from tests.native import Executor, build_program

pytest.importorskip("tvm")

Array = NDArray[np.generic]

CASES = [
    *(("exact", mask) for mask in ("", "byte", "float")),
    *(("deferred-log", mask) for mask in ("", "byte", "float")),
    *((method, "byte") for method in ("uniform", "i-exp", "softermax", "bias-corrected")),
    pytest.param("sparsemax", "byte", marks=pytest.mark.slow),
]
"""Pairs with a float and an integer interior, probabilities, a scan, four passes, and 23."""

SHAPES = [(1, 1, 1), (1, 5, 1), (2, 50, 3), (50, 1, 64), (50, 101, 64), (197, 5, 64), (197, 50, 64), (513, 1, 33),
          (513, 60, 33)]  # fmt: skip
"""Lengths of a row, queries and widths: one block and several, whole and partial tiles, panels packed before or not."""


def model(
    *, width: str = "d", keys: int = 4, mask: str = "", queries: str = "m", length: str = "n", beside: bool = False
) -> onnx.ModelProto:
    """Return an attention of 4 heads on separate queries, keys and values.

    Args:
        width: The width of a head: a number or a symbol.
        keys: Heads of keys and values; fewer than 4 are repeated.
        mask: `byte`, `float` or none.
        queries: How many queries: a number or a symbol.
        length: How many keys: a number or a symbol.
        beside: Whether operands, then `qs`, `ks` and `vs`, and the result have their heads side by side.
    """

    def operand(name: str, heads: int, rows: str) -> str:
        if beside:
            return f"float[batch, {rows}, {heads}, {width}] {name}s"
        return f"float[batch, {heads}, {rows}, {width}] {name}"

    result = f"float[batch, {queries}, 4, {width}] out" if beside else f"float[batch, 4, {queries}, {width}] out"
    moved = "\n".join(f"{x} = Transpose <perm = [0, 2, 1, 3]> ({x}s)" for x in "qkv") if beside else ""
    repeats = """
        {0}5 = Unsqueeze({0}, two)
        shape{0} = Concat <axis = 0> (batch, heads, groups, lengthof{0}, widthof{0})
        {0}r = Expand({0}5, shape{0})
        flat{0} = Concat <axis = 0> (batch, four, lengthof{0}, widthof{0})
        {0}x = Reshape({0}r, flat{0})
    """
    sizes = "".join(
        f"lengthof{x} = Shape <start = 2, end = 3> ({x})\nwidthof{x} = Shape <start = 3, end = 4> ({x})\n" for x in "kv"
    )
    masks = {
        "": "masked = Identity(scaled)",
        "byte": "masked = Where(keep, scaled, hidden)",
        "float": "masked = Add(scaled, bias)",
    }
    given = {"": "", "byte": f", bool[batch, 1, {queries}, n] keep", "float": ", float[batch, 1, 1, n] bias"}
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    attention ({operand("q", 4, queries)}, {operand("k", keys, length)},
               {operand("v", keys, length)}{given[mask]}) => ({result})
    <int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] heads = {{{keys}}}, int64[1] groups = {{{4 // keys}}},
     float scale = {{0.3}}, float hidden = {{-inf}}>
    {{
        {moved}
        batch = Shape <start = 0, end = 1> (q)
        {sizes if keys < 4 else ""}
        {"".join(repeats.format(x) for x in "kv") if keys < 4 else "kx = Identity(k) vx = Identity(v)"}
        turned = Transpose <perm = [0, 1, 3, 2]> (kx)
        scores = MatMul(q, turned)
        scaled = Mul(scores, scale)
        {masks[mask]}
        p = Softmax <axis = -1> (masked)
        {"apart" if beside else "out"} = MatMul(p, vx)
        {"out = Transpose <perm = [0, 2, 1, 3]> (apart)" if beside else ""}
    }}
    """
    return onnx.parser.parse_model(text)


def inputs(batch: int, queries: int, length: int, width: int, *, keys: int = 4, mask: str = "") -> dict[str, Array]:
    rng = np.random.default_rng(length)

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    given: dict[str, Array] = {
        "q": normal(batch, 4, queries, width) * 3,
        "k": normal(batch, keys, length, width),
        "v": normal(batch, keys, length, width),
    }
    if mask == "byte":
        keep = rng.random((batch, 1, queries, length)) < 0.7
        keep[:, :, 0] = False  # a row without any element
        given["keep"] = keep
    if mask == "float":
        given["bias"] = np.where(rng.random((batch, 1, 1, length)) < 0.3, np.float32(-1e9), np.float32(0))
    return given


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[onnx.ModelProto], tuple[Program, Program]]:
    """Return what builds a model with and without attentions in one kernel."""

    def build(converted: onnx.ModelProto) -> tuple[Program, Program]:
        from softq.compiler import pipeline

        fused = build_program(converted)
        with monkeypatch.context() as patched:
            patched.setattr(pipeline, "find_attentions", lambda *_: ({}, set()))
            plain = build_program(converted)
        assert [k for k in kernels(fused) if "attention" in k]
        assert not [k for k in kernels(fused) if "matmul" in k]
        assert [k for k in kernels(plain) if "matmul" in k]
        assert not [k for k in kernels(plain) if "attention" in k]
        return fused, plain

    return build


def kernels(program: Program) -> list[str]:
    return [step.kernel for step in program.steps]


def same(programs: tuple[Program, Program], given: Mapping[str, Array]) -> NDArray[np.float32]:
    fused, plain = (Executor(program)(given)["out"] for program in programs)
    np.testing.assert_array_equal(fused, plain)
    return np.asarray(fused, np.float32)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("method", "mask"), CASES)
def test_equal_to_the_bit(method: str, mask: str, both: Callable[..., tuple[Program, Program]]) -> None:
    converted = softq.convert(model(mask=mask), method=method, allow_substitute=True).model
    programs = both(converted)
    runs = [Executor(program) for program in programs]
    for length, queries, width in SHAPES:
        given = inputs(2 if length < 500 else 1, queries, length, width, mask=mask)
        fused, plain = (run(given)["out"] for run in runs)
        np.testing.assert_array_equal(fused, plain)
        assert fused.any() or mask == "byte"


def test_against_onnxruntime(both: Callable[..., tuple[Program, Program]]) -> None:
    plain = model(width="64", mask="float")
    session = ort.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    programs = both(softq.convert(plain, method="exact").model)
    for length, queries in ((1, 1), (50, 7), (197, 197), (513, 100)):
        given = inputs(2, queries, length, 64, mask="float")
        # Sums of 64 products of scores up to 60, then weights of a sum of 1: a few roundings of 6e-8 each.
        np.testing.assert_allclose(same(programs, given), np.asarray(session.run(None, given)[0]), rtol=2e-4, atol=2e-5)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("width", ["32", "64", "80", "d"])
@pytest.mark.parametrize("keys", [1, 2])
def test_fewer_heads_of_keys(keys: int, width: str, both: Callable[..., tuple[Program, Program]]) -> None:
    programs = both(softq.convert(model(width=width, keys=keys), method="deferred-log").model)
    fused = programs[0]
    # Neither keys nor values are copied: what repeats them is gone.
    assert not [k for k in kernels(fused) if "broadcast" in k]
    for queries, length in itertools.product((1, 3, 70), (2, 64, 300)):
        result = same(programs, inputs(2, queries, length, 16 if width == "d" else int(width), keys=keys))
        assert len(np.unique(result)) > 4


def test_numbers_of_heads(both: Callable[..., tuple[Program, Program]]) -> None:
    plan = softq.convert(model(mask="byte"), method="deferred-log").plan
    site = replace(plan.sites[0], options={**plan.sites[0].options, "r": "head"}, fitted={"r": (0.5, 0.8, 1.1, 1.7)})
    converted = softq.convert(model(mask="byte"), plan=replace(plan, sites=(site,))).model
    programs = both(converted)
    for queries in (1, 100):
        same(programs, inputs(2, queries, 130, 16, mask="byte"))


def test_numbers_of_heads_that_share_keys(both: Callable[..., tuple[Program, Program]]) -> None:
    plan = softq.convert(model(keys=2), method="deferred-log").plan
    site = replace(plan.sites[0], options={**plan.sites[0].options, "r": "head"}, fitted={"r": (0.5, 0.8, 1.1, 1.7)})
    converted = softq.convert(model(keys=2), plan=replace(plan, sites=(site,))).model
    # Blocks of rows reach over the border between two heads.
    same(both(converted), inputs(2, 31, 130, 16, keys=2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("length", ["n", "90"])
@pytest.mark.parametrize("keys", [4, 2])
def test_heads_side_by_side(keys: int, length: str, both: Callable[..., tuple[Program, Program]]) -> None:
    plain = model(keys=keys, width="32", beside=True, length=length)
    programs = both(softq.convert(plain, method="exact").model)
    # Queries that share keys are copied; nothing else is.
    copies = [k for k in kernels(programs[0]) if "tvm_" in k and "transpose" in k]
    assert len(copies) == (keys == 2)
    apart = build_program(softq.convert(model(keys=keys, width="32"), method="exact").model)
    for queries in (1, 70):
        given = inputs(2, queries, 90, 32, keys=keys)
        result = same(programs, {f"{x}s": np.ascontiguousarray(given[x].swapaxes(1, 2)) for x in "qkv"})
        np.testing.assert_array_equal(result, Executor(apart)(given)["out"].swapaxes(1, 2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("method", ["exact", "deferred-log"])
def test_not_a_number_stays_in_its_row(method: str, both: Callable[..., tuple[Program, Program]]) -> None:
    programs = both(softq.convert(model(width="16"), method=method).model)
    given = inputs(2, 60, 70, 16)
    given["q"][0, 1, 3, 5] = np.nan
    given["q"][1, 2, 50] = np.inf
    result = same(programs, given)
    assert np.isnan(result[0, 1, 3]).all()
    rest = np.ones(result.shape[:3], bool)
    rest[0, 1, 3] = rest[1, 2, 50] = False
    assert np.isfinite(result[rest]).all()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("queries", ["1", "7", "60"])
def test_static_shapes(queries: str, both: Callable[..., tuple[Program, Program]]) -> None:
    programs = both(softq.convert(model(width="32", queries=queries), method="exact").model)
    for length in (1, 33, 200):
        same(programs, inputs(1, int(queries), length, 32))


def test_keys_of_the_past(both: Callable[..., tuple[Program, Program]]) -> None:
    """The length of a row is a sum of two sizes, of which kernels need one: no tensor has it."""
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    attention (float[1, 4, past, 8] before, float[1, 4, n, 8] x) => (float[1, 4, n, 8] out)
    <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[2] pair = {-1, 1}, float hidden = {-1e9}>
    {
        keys = Concat <axis = 2> (before, x)
        turned = Transpose <perm = [0, 1, 3, 2]> (keys)
        scores = MatMul(x, turned)
        p1 = Shape <start = 2, end = 3> (before)
        n1 = Shape <start = 2, end = 3> (x)
        p = Squeeze(p1, first)
        n = Squeeze(n1, first)
        all = Add(p, n)
        columns = Range(zero, all, one)
        row = Range(p, all, one)
        rows = Reshape(row, pair)
        seen = LessOrEqual(columns, rows)
        masked = Where(seen, scores, hidden)
        weights = Softmax <axis = -1> (masked)
        out = MatMul(weights, keys)
    }
    """
    converted = softq.convert(onnx.parser.parse_model(text), method="exact").model
    fused, plain = both(converted)
    rng = np.random.default_rng(0)
    for past, count in ((0, 5), (7, 1), (60, 3)):
        given = {n: rng.normal(size=(1, 4, k, 8)).astype(np.float32) for n, k in (("before", past), ("x", count))}
        np.testing.assert_array_equal(Executor(fused)(given)["out"], Executor(plain)(given)["out"])


def test_memory_does_not_grow_with_the_number_of_scores(both: Callable[..., tuple[Program, Program]]) -> None:
    fused, plain = both(softq.convert(model(width="64"), method="exact").model)

    def bytes_of(program: Program, queries: int, length: int) -> int:
        dims = {"batch": 3, "m": queries, "n": length}
        return sum(evaluate(size, dims) for size in (*program.slots, program.scratch))

    scores = 3 * 4 * 4096 * 4096 * 4
    assert bytes_of(plain, 4096, 4096) > 2 * scores
    assert bytes_of(fused, 4096, 4096) < scores / 20
    # Each query more has a normalizer more, and that is all.
    more = bytes_of(fused, 40960, 4096) - bytes_of(fused, 4096, 4096)
    assert more == 3 * 4 * (40960 - 4096) * 4
    # A single query needs no panels of keys at all.
    assert bytes_of(fused, 1, 4096) < 3 * 4096 * 4 * 4


def test_threads_have_memory_of_their_own(tmp_path: Path) -> None:
    converted = softq.convert(model(width="16"), method="deferred-log").model
    softq.build(converted, tmp_path / "built", target="cpu")
    given = inputs(3, 150, 200, 16)
    expected = Executor(build_program(converted))(given)["out"]
    with load(tmp_path / "built", threads=5) as built:
        for _ in range(20):
            np.testing.assert_array_equal(built(given)["out"], expected)


def test_scores_that_something_else_needs_are_computed() -> None:
    twice = model()
    twice.graph.output.append(onnx.helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, ["batch", 4, "m", "n"]))
    program = build_program(softq.convert(twice, method="exact").model)
    assert not [k for k in kernels(program) if "attention" in k]
    result = Executor(program)(inputs(1, 5, 6, 7))
    np.testing.assert_allclose(result["p"].sum(-1), 1, rtol=1e-6)
