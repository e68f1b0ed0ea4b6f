"""Integers of a model's own operators in C: what C leaves undefined is defined, and no sanitizer finds anything."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, parser

pytest.importorskip("tvm")

import softq
from softq.codegen.c.defined import define
from softq.codegen.c.prelude import prelude
from tests import sanitized

Array = NDArray[Any]
COUNT = 64

SUMS = """<ir_version: 10, opset_import: ["": 21]> f (int32[64] a, int32[64] b, int64[64] c, int64[64] d, int16[64] e)
 => (int32[64] sum, int32[64] difference, int32[64] product, int32[64] negative, int32[64] magnitude,
     int64[64] wide_sum, int64[64] wide_product, int16[64] narrow, int32[1] total, int32[1] all, int32[64] chain) {
  sum = Add(a, b)  difference = Sub(a, b)  product = Mul(a, b)  negative = Neg(a)  magnitude = Abs(a)
  wide_sum = Add(c, d)  wide_product = Mul(c, d)  narrow = Mul(e, e)
  total = ReduceSum(a)  all = ReduceProd(b)
  one = Mul(a, a)  two = Add(one, b)  chain = Sub(two, one)
}"""
QUOTIENTS = """<ir_version: 10, opset_import: ["": 21]> f (int32[64] a, int32[64] b, int64[64] c, int64[64] d,
   int8[64] e, int8[64] g, uint32[64] u, uint32[64] w)
 => (int32[64] q, int64[64] q64, int8[64] q8, uint32[64] qu, int32[64] m, int64[64] m64) {
  q = Div(a, b)  q64 = Div(c, d)  q8 = Div(e, g)  qu = Div(u, w)  m = Mod(a, b)  m64 = Mod<fmod=1>(c, d)
}"""
CASTS = """<ir_version: 10, opset_import: ["": 21]> f (float[64] x, double[64] y)
 => (int32[64] i32, int64[64] i64, int8[64] i8, uint8[64] u8, int16[64] i16, uint16[64] u16, uint32[64] u32,
     int32[64] from_double, int64[64] wide_from_double, float[64] exponential, uint8[64] quantized) {
  i32 = Cast<to=6>(x)  i64 = Cast<to=7>(x)  i8 = Cast<to=3>(x)  u8 = Cast<to=2>(x)  i16 = Cast<to=5>(x)
  u16 = Cast<to=4>(x)  u32 = Cast<to=12>(x)  from_double = Cast<to=6>(y)  wide_from_double = Cast<to=7>(y)
  exponential = Exp(x)
  scale = Constant<value_float=0.5>()  zero = Constant<value=uint8 {7}>()  quantized = QuantizeLinear(x, scale, zero)
}"""


def extremes(kind: Any, seed: int) -> Array:
    """Return the ends of a type of integers, small numbers, and any others, in some order."""
    info, rng = np.iinfo(kind), np.random.default_rng(seed)
    ends = [v for v in (info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, -1, -2) if info.min <= v]
    whole = rng.integers(info.min, info.max, COUNT, dtype=kind, endpoint=True)
    whole[: 2 * len(ends)] = np.array(ends * 2, kind)
    return rng.permutation(whole)


def numbers(kind: Any) -> Array:
    """Return floats around the ends of integers, and those that are none."""
    ends = [0.0, 127.0, 255.0, 32767.0, 65535.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64]
    near = [np.nextafter(kind(v), kind(to)) for v in ends for to in (-np.inf, np.inf)]
    whole = [math.nan, math.inf, -math.inf, *ends, *(-v for v in ends), *near, 1e30, -1e30, 0.5, -0.5, 300.0, -300.0]
    found = [*whole, *(-v for v in near)]
    return np.array(found + [7.5] * (COUNT - len(found)), kind)


def run(text: str, given: dict[str, Array], folder: Path) -> dict[str, Array]:
    """Return what the C of a model gives under sanitizers."""
    model = parser.parse_model(text)
    outputs = {v.name: np.empty([d.dim_value for d in v.type.tensor_type.shape.dim],
                                helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))
               for v in model.graph.output}  # fmt: skip
    return sanitized.run(model, given, outputs, folder)


def test_sums_wrap_as_in_onnxruntime_and_on_the_cpu(tmp_path: Path) -> None:
    given = {"a": extremes(np.int32, 0), "b": extremes(np.int32, 1), "c": extremes(np.int64, 2),
             "d": extremes(np.int64, 3), "e": extremes(np.int16, 4)}  # fmt: skip
    found = run(SUMS, given, tmp_path)
    a, b, c, d, e = given.values()
    with np.errstate(over="ignore"):
        wanted = {"sum": a + b, "difference": a - b, "product": a * b, "negative": -a, "magnitude": np.abs(a),
                  "wide_sum": c + d, "wide_product": c * d, "narrow": e * e, "chain": b}  # fmt: skip
        wanted |= {"total": a.sum(keepdims=True, dtype=np.int32), "all": b.prod(keepdims=True, dtype=np.int32)}
    for name, expected in wanted.items():
        np.testing.assert_array_equal(found[name], expected, name)
    model = _without(parser.parse_model(SUMS), "narrow")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [v.name for v in session.get_outputs()]
    for name, expected in zip(names, session.run(None, {n: given[n] for n in "abcd"}), strict=True):
        np.testing.assert_array_equal(found[name], np.asarray(expected), name)


def _without(model: Any, output: str) -> Any:
    """Return a model without an output that onnxruntime has no kernel for, and without its node and input."""
    kept = [node for node in model.graph.node if output not in node.output]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for values in (model.graph.output, model.graph.input):
        left = [v for v in values if v.name not in (output, "e")]
        del values[:]
        values.extend(left)
    return model


def test_quotients_by_zero_and_beyond_the_type_are_numbers(tmp_path: Path) -> None:
    kinds = {"a": np.int32, "b": np.int32, "c": np.int64, "d": np.int64, "e": np.int8, "g": np.int8, "u": np.uint32,
             "w": np.uint32}  # fmt: skip
    given = {name: extremes(kind, seed) for seed, (name, kind) in enumerate(kinds.items())}
    given["b"][:4], given["a"][2:4] = (0, 0, -1, -1), np.iinfo(np.int32).min
    given["d"][:2], given["c"][:2] = (0, -1), np.iinfo(np.int64).min
    given["g"][:2], given["e"][:2] = (0, -1), -128
    given["w"][0] = 0
    found = run(QUOTIENTS, given, tmp_path)

    def quotient(a: int, b: int) -> int:
        return 0 if b == 0 else abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)

    for name, (one, other) in {"q": "ab", "q64": "cd", "q8": "eg", "qu": "uw"}.items():
        pairs = zip(given[one].tolist(), given[other].tolist(), strict=True)
        kind, bits = found[name].dtype, 8 * found[name].dtype.itemsize
        exact = [quotient(x, y) % (1 << bits) for x, y in pairs]
        np.testing.assert_array_equal(found[name], np.array(exact, f"uint{bits}").view(kind), name)
    a, b, c, d = (given[name].tolist() for name in "abcd")
    np.testing.assert_array_equal(found["m"], [x if y == 0 else x % y for x, y in zip(a, b, strict=True)])
    rest = [x if y == 0 else x - quotient(x, y) * y for x, y in zip(c, d, strict=True)]
    np.testing.assert_array_equal(found["m64"], rest)


def test_floats_that_are_no_integers_become_the_nearest_ones(tmp_path: Path) -> None:
    x, y = numbers(np.float32), numbers(np.float64)
    found = run(CASTS, {"x": x, "y": y}, tmp_path)

    def whole(value: float, bits: int) -> int:
        if math.isnan(value):
            return 0
        least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return least if value < least else most if value > most else int(value)

    for name, source in {"i32": x, "i8": x, "u8": x, "i16": x, "u16": x, "from_double": y}.items():
        bits = 8 * found[name].dtype.itemsize
        exact = [whole(float(v), 32) % (1 << bits) for v in source]
        np.testing.assert_array_equal(found[name], np.array(exact, f"uint{bits}").view(found[name].dtype), name)
    for name, source in {"i64": x, "u32": x, "wide_from_double": y}.items():
        bits = 8 * found[name].dtype.itemsize
        exact = [whole(float(v), 64) % (1 << bits) for v in source]
        np.testing.assert_array_equal(found[name], np.array(exact, f"uint{bits}").view(found[name].dtype), name)
    with np.errstate(over="ignore", under="ignore"):
        wanted = np.exp(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found["exponential"], wanted, rtol=2e-6, atol=2e-38)
    is_number = ~np.isnan(x)
    quantized = np.clip(np.rint(x[is_number] / np.float32(0.5)) + 7, 0, 255)
    np.testing.assert_array_equal(found["quantized"][is_number], quantized.astype(np.uint8))


def test_no_function_stands_where_bounds_prove_that_it_does_nothing(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> f (float[64] x, int32[64] a) => (uint8[64] y, int32[64] q) {
      scale = Constant<value_float=0.5>()  zero = Constant<value=uint8 {7}>()  y = QuantizeLinear(x, scale, zero)
      seven = Constant<value=int32 {7}>()  q = Div(a, seven)
    }"""
    softq.build(parser.parse_model(text), tmp_path / "built", target="c,name=m")
    kernels = (tmp_path / "built" / "m_kernels.c").read_text()
    assert "sq_whole" not in kernels
    assert "sq_quotient" not in kernels


def test_positions_keep_their_plain_text(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> f (float[7, 9] a, float[9, 5] b) => (float[7, 5] y) {
      y = MatMul(a, b)
    }"""
    softq.build(parser.parse_model(text), tmp_path / "built", target="c,name=m")
    assert "(uint32_t)" not in (tmp_path / "built" / "m_kernels.c").read_text()


def test_functions_are_those_of_their_names(tmp_path: Path) -> None:
    names = [
        f"{which}_{sign}int{bits}" for which in ("quotient", "rest") for sign in ("", "u") for bits in (8, 16, 32, 64)
    ]
    names += [f"whole_{kind}_{of}" for kind in ("int32", "int64", "uint64") for of in ("float32", "float64")]
    text = (
        prelude(names)
        + "uint64_t last(float x);\nuint64_t last(float x)\n{\n    return sq_whole_uint64_float32(x);\n}\n"
    )
    assert all(define(name) in text for name in names)
    (tmp_path / "x.c").write_text(text)
    command = ["gcc", *sanitized.STRICT, "-Wno-unused-function", "-shared", "-fPIC", "x.c", "-o", "x.so"]
    subprocess.run(command, check=True, cwd=tmp_path)
    function = ctypes.CDLL(str(tmp_path / "x.so")).last
    function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_float]
    wanted = {1e30: 2**64 - 1, 2.0**63: 2**63, 1.5: 1, -3.0: 0, math.nan: 0}
    assert {x: function(x) for x in wanted} == wanted
