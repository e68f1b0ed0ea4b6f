"""Products of 8-bit integers in built models: equal to the bit to NumPy's, and to each other where they are fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import softq
from tests.native import Executor, build_program

pytest.importorskip("tvm")

Array = NDArray[Any]

LOWEST = {"int8": -128, "uint8": 0}


def codes(seed: int, dtype: str, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(LOWEST[dtype], LOWEST[dtype] + 256, shape).astype(dtype)


def product(a: Array, b: Array, zeros: tuple[int, int]) -> NDArray[np.int32]:
    left, right = a.astype(np.int64) - zeros[0], b.astype(np.int64) - zeros[1]
    return np.asarray(left @ right, np.int32)


@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("left", ["int8", "uint8"])
def test_products(left: str, right: str) -> None:
    low, fixed = LOWEST[right], [LOWEST[right] + 17 * i for i in range(15)]
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    products ({left}[b, m, k] a, {right}[b, n, k] bt, {right}[k, n] c, {left} z)
             => (int32[b, m, n] turned, int32[b, m, n] plain, int32[b, m, 5] fixed)
    <int64[1] zero = {{0}}, int64[1] three = {{3}}, int64[1] last = {{2}}, {right} w = {{{low + 100}}},
     {right}[3, 5] d = {{{str(fixed)[1:-1]}}}>
    {{
        b = Transpose <perm = [0, 2, 1]> (bt)
        turned = MatMulInteger(a, b, z, w)
        plain = MatMulInteger(a, c)
        head = Slice(a, zero, three, last)
        fixed = MatMulInteger(head, d, z)
    }}
    """
    execute = Executor(build_program(onnx.parser.parse_model(text)))
    d = np.array(fixed).reshape(3, 5)
    for b, m, k, n in ((1, 1, 3, 1), (2, 7, 3, 65), (1, 70, 33, 129), (3, 64, 64, 16), (1, 1, 260, 200)):
        z = LOWEST[left] + 250
        given = {
            "a": codes(1, left, b, m, k), "bt": codes(2, right, b, n, k), "c": codes(3, right, k, n),
            "z": np.array(z, left),
        }  # fmt: skip
        found = execute(given)
        np.testing.assert_array_equal(found["turned"], product(given["a"], given["bt"].swapaxes(1, 2), (z, low + 100)))
        np.testing.assert_array_equal(found["plain"], product(given["a"], given["c"], (0, 0)))
        np.testing.assert_array_equal(found["fixed"], product(given["a"][..., :3], d, (z, 0)))


@pytest.mark.parametrize("right", ["int8", "uint8"])
def test_products_of_words(right: str) -> None:
    low, fixed = LOWEST[right], [LOWEST[right] + 17 * i for i in range(15)]
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    products (int16[b, m, k] a, {right}[b, n, k] bt, {right}[k, n] c)
             => (float[b, m, n] turned, float[b, m, n] plain, float[b, m, 5] fixed)
    <int64[1] first = {{0}}, int64[1] three = {{3}}, int64[1] last = {{2}}, {right} w = {{{low + 100}}},
     float step = {{0.3}}, {right}[3, 5] d = {{{str(fixed)[1:-1]}}}>
    {{
        words = Cast <to = 1> (a)
        b = Transpose <perm = [0, 2, 1]> (bt)
        br = DequantizeLinear(b, step, w)
        turned = MatMul(words, br)
        cr = DequantizeLinear(c, step)
        plain = MatMul(words, cr)
        some = Slice(a, first, three, last)
        head = Cast <to = 1> (some)
        dr = DequantizeLinear(d, step, w)
        fixed = MatMul(head, dr)
    }}
    """)
    execute = Executor(build_program(model))
    d = np.array(fixed).reshape(3, 5)

    def expected(a: Array, b: Array, zero: int) -> NDArray[np.float32]:
        total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
        for start in range(0, a.shape[-1], 256):
            end = start + 256
            total += product(a[..., start:end], b[..., start:end, :], (0, zero)).astype(np.float32)
        return total * np.float32(0.3)

    for b, m, k, n in ((1, 1, 3, 1), (2, 7, 3, 65), (1, 70, 33, 129), (2, 9, 700, 16)):
        a = np.random.default_rng(k).integers(-(2**15), 2**15, (b, m, k), dtype=np.int16)
        a[0, 0] = -(2**15)
        given = {"a": a, "bt": codes(2, right, b, n, k), "c": codes(3, right, k, n)}
        found = execute(given)
        cases = {"turned": (a, given["bt"].swapaxes(1, 2), low + 100), "plain": (a, given["c"], 0)}
        for name, (left, matrix, zero) in (cases | {"fixed": (a[..., :3], d, low + 100)}).items():
            np.testing.assert_array_equal(found[name], expected(left, matrix, zero), err_msg=name)


@pytest.mark.parametrize("given", ["float[4, 4] a, int8[4, 4] b, int8[1] z", "int16[4, 4] a, int8[4, 4] b, int8[1] z"])
def test_words_of_a_file_are_checked(given: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18, "softq.compiler" : 1]>
        g ({given}) => (float[4, 4] y) {{ y = softq.compiler.MatMulWords(a, b, z) }}""")
    with pytest.raises(softq.RefusalError, match="takes int16, bytes and a constant of theirs"):
        build_program(model)


def attention(kind: str, *, zeros: bool, beside: bool, mask: bool, scores: bool) -> onnx.ModelProto:
    """Return an attention of 3 heads between QuantizeLinear and DequantizeLinear, as onnxruntime's quantizer writes it.

    Args:
        kind: Type of all codes.
        zeros: Whether zero points are not those of symmetric codes.
        beside: Whether operands and result have their heads side by side.
        mask: Whether a mask is added to the scores.
        scores: Whether the scores are quantized too.
    """
    point = {"int8": (5, -128), "uint8": (131, 0)}[kind] if zeros else {"int8": (0, 0), "uint8": (128, 0)}[kind]
    dims = "batch, {0}, 3, {1}" if beside else "batch, 3, {0}, {1}"
    given = ", ".join(f"{kind}[{dims.format(*d)}] {x}" for x, d in (("q", "mc"), ("k", "nc"), ("v", "nd")))
    heads, keys = ("[0, 2, 1, 3]", "[0, 2, 3, 1]") if beside else ("[0, 1, 2, 3]", "[0, 1, 3, 2]")
    moved = "".join(
        f"{x}r = DequantizeLinear({x}, s{x}, z) {x}m = Transpose <perm = {p}> ({x}r)\n"
        f"{x}c = QuantizeLinear({x}m, s{x}, z) {x}x = DequantizeLinear({x}c, s{x}, z)\n"
        for x, p in (("q", heads), ("k", keys), ("v", heads))
    )
    return onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    attention ({given}{", float[batch, 1, 1, n] bias" * mask}) => ({kind}[{dims.format("m", "d")}] out)
    <float sq = {{0.02}}, float sk = {{0.03}}, float sv = {{0.05}}, float sp = {{0.0039}}, float so = {{0.04}},
     float ss = {{0.1473}}, float factor = {{0.25}}, {kind} z = {{{point[0]}}}, {kind} zp = {{{point[1]}}}>
    {{
        {moved}
        s = MatMul(qx, kx)
        {"sc = QuantizeLinear(s, ss, z) sx = DequantizeLinear(sc, ss, z)" if scores else "sx = Identity(s)"}
        scaled = Mul(sx, factor)
        {"masked = Add(scaled, bias)" if mask else "masked = Identity(scaled)"}
        p = Softmax <axis = -1> (masked)
        pc = QuantizeLinear(p, sp, zp)
        px = DequantizeLinear(pc, sp, zp)
        y = MatMul(px, vx)
        yc = QuantizeLinear(y, so, z)
        yx = DequantizeLinear(yc, so, z)
        {"turned = Transpose <perm = [0, 2, 1, 3]> (yx)" if beside else "turned = Identity(yx)"}
        out = QuantizeLinear(turned, so, z)
    }}
    """)


CASES = [
    ("uint8", {"zeros": True, "beside": True, "mask": False, "scores": True}, "deferred-log"),
    ("int8", {"zeros": False, "beside": False, "mask": True, "scores": False}, "deferred-log"),
    ("int8", {"zeros": True, "beside": True, "mask": True, "scores": True}, "exact"),
    ("uint8", {"zeros": False, "beside": False, "mask": False, "scores": False}, "i-exp"),
]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("kind", "form", "method"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_attention(kind: str, form: dict[str, bool], method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused as unfused, to the bit; as onnxruntime up to rounding at the boundaries of codes."""
    from softq.compiler import pipeline

    original = attention(kind, **form)
    converted = softq.convert(original, method=method).model
    fused = build_program(converted)
    symbols = [step.kernel for step in fused.steps]
    assert [x for x in symbols if "attention" in x]
    assert not [x for x in symbols if "matmul" in x]
    # Values whose rows are far apart are packed from where they lie.
    assert not [x for x in symbols if "tvm" in x]
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "find_attentions", lambda *_: ({}, set()))
        plain = build_program(converted)
    assert len([x for x in (step.kernel for step in plain.steps) if x.startswith("softq_matmul_")]) == 2
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = ort.InferenceSession(converted.SerializeToString(), options, providers=["CPUExecutionProvider"])
    executors = Executor(fused), Executor(plain)
    for n, m, c, d in (
        (1, 1, 1, 1),
        (3, 5, 2, 3),
        (50, 50, 16, 16),
        (197, 61, 64, 64),
        (70, 1, 33, 80),
        (515, 50, 64, 33),
    ):
        lengths = {"q": (m, c), "k": (n, c), "v": (n, d)}
        given: dict[str, Array] = {
            x: codes(i, kind, 2, *((w[0], 3, w[1]) if form["beside"] else (3, *w)))
            for i, (x, w) in enumerate(lengths.items())
        }
        if form["mask"]:
            given["bias"] = np.where(np.arange(n) % 5 == 3, np.float32(-1e9), np.float32(0))[None, None, None].repeat(
                2, 0
            )
        ours, theirs = (execute(given)["out"] for execute in executors)
        np.testing.assert_array_equal(ours, theirs)
        (other,) = reference.run(None, given)
        difference = np.abs(ours.astype(int) - np.asarray(other).astype(int))
        # A score or weight beside a boundary of codes may fall on its other side, and take the result along: a score by
        # 0.15 x 0.25, which is 4 % of a weight.
        assert difference.max() <= (3 if form["scores"] else 1)
        assert (difference > 0).mean() < 0.02
