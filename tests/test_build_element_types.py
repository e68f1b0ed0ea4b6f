"""Built models against NumPy, ml_dtypes and ONNX's reference: each element type, and round trips between two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import softq

Array = NDArray[Any]
FLOAT8 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
SMALL_INTEGERS = ("INT4", "UINT4", "INT2", "UINT2")


def code_of(name: str) -> int:
    return int(TensorProto.DataType.Value(name))


def numpy_type(name: str) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(code_of(name)))


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.ModelProto:
    """Return a model; inputs and outputs are types and shapes by name."""
    given, made = (
        [helper.make_tensor_value_info(name, code_of(t), shape) for name, (t, shape) in values.items()]
        for values in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def run(model: onnx.ModelProto, folder: Path, **feeds: Array) -> dict[str, Array]:
    softq.build(model, folder / "built", target="cpu")
    with softq.load(folder / "built") as artifact:
        return dict(artifact(feeds))


def same(a: Array, b: Array) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


MIDDLE = {
    "FLOAT": ("BFLOAT16", "FLOAT16", "DOUBLE", "INT32", "INT64", "INT8", "UINT8", "BOOL", *FLOAT8, "INT4"),
    "DOUBLE": ("FLOAT", "BFLOAT16", "FLOAT16", "INT32", "INT64", "FLOAT8E4M3FN"),
    "FLOAT16": ("FLOAT", "BFLOAT16", "INT8", "INT32", *FLOAT8),
    "BFLOAT16": ("FLOAT", "FLOAT16", "INT32", "FLOAT8E5M2"),
    "INT32": ("INT8", "UINT8", "INT16", "FLOAT", "FLOAT16", "BOOL", "UINT32", "INT64", "BFLOAT16", *SMALL_INTEGERS),
    "INT64": ("INT32", "INT8", "UINT16", "FLOAT", "DOUBLE", "INT4"),
    "UINT8": ("INT8", "FLOAT16", "UINT4", "BOOL", "UINT2"),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("source", MIDDLE)
def test_a_round_trip_through_another_type_loses_what_that_type_cannot_hold(source: str, tmp_path: Path) -> None:
    nodes: list[onnx.NodeProto] = []
    for name in MIDDLE[source]:
        nodes.append(helper.make_node("Cast", ["x"], [f"t_{name}"], to=code_of(name)))
        nodes.append(helper.make_node("Cast", [f"t_{name}"], [f"y_{name}"], to=code_of(source)))
    model = model_of(nodes, {"x": (source, ["n"])}, {f"y_{name}": (source, ["n"]) for name in MIDDLE[source]})
    rng, dtype = np.random.default_rng(0), numpy_type(source)
    if source.startswith(("INT", "UINT")):
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, 300, dtype=dtype, endpoint=True)
    else:
        # Within the range of every integer: what is beyond is not defined.
        x = np.concatenate([rng.uniform(0, 100, 300), [0.0, 0.3, 0.999, 2.5, 127.9, 3.14159265358979]]).astype(dtype)
    results = run(model, tmp_path, x=x)
    for name in MIDDLE[source]:
        there = numpy_type(name)
        with np.errstate(over="ignore", invalid="ignore"):
            if name in FLOAT8:
                middle = numpy_helper.saturate_cast(x.astype(np.float32), there).astype(np.float32)
            elif name in SMALL_INTEGERS and x.dtype.kind not in "iu":
                middle = x.astype(np.int32).astype(there)
            else:
                middle = x.astype(np.float32).astype(there) if name == "BFLOAT16" else x.astype(there)
            same(results[f"y_{name}"], middle.astype(dtype))
        if there.itemsize < dtype.itemsize:
            assert (results[f"y_{name}"] != x).any(), "a round trip that changes nothing shows nothing"


HALVES: Array = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
CASTS = [*((name, saturate) for name in FLOAT8 for saturate in (0, 1)), ("FLOAT4E2M1", 1), ("BFLOAT16", 1)]


def test_every_float16_becomes_the_float_of_8_or_4_bits_of_the_reference(tmp_path: Path) -> None:
    outputs = {f"{name}_{saturate}": (name, ["n"]) for name, saturate in CASTS}
    nodes = [helper.make_node("Cast", ["x"], [f"{n}_{s}"], to=code_of(n), saturate=s) for n, s in CASTS]
    with np.errstate(all="ignore"):
        model = model_of(nodes, {"x": ("FLOAT16", ["n"])}, outputs)
        wanted: list[Array] = ReferenceEvaluator(model).run(None, {"x": HALVES})  # type: ignore[assignment]
        results = run(model, tmp_path, x=HALVES)
    for name, expected in zip(outputs, wanted, strict=True):
        # A float of 4 bits has no NaN; ONNX leaves open what it becomes.
        there = np.isfinite(HALVES) | ("FLOAT4" not in name)
        bits = np.uint8 if expected.dtype.itemsize == 1 else np.uint16
        np.testing.assert_array_equal(results[name].view(bits)[there], expected.view(bits)[there], err_msg=name)


def test_every_code_becomes_the_number_that_it_stands_for(tmp_path: Path) -> None:
    names = (*FLOAT8, "FLOAT8E8M0", "FLOAT4E2M1", *SMALL_INTEGERS, "BFLOAT16")
    nodes, inputs, outputs, feeds = list[onnx.NodeProto](), dict[str, Any](), dict[str, Any](), dict[str, Array]()
    for name in names:
        dtype = numpy_type(name)
        codes = np.arange(1 << (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
        feeds[f"x{name}"], inputs[f"x{name}"] = codes.view(dtype), (name, ["a", codes.size])
        feeds[f"x{name}"] = feeds[f"x{name}"].reshape(1, -1)
        for to in ("FLOAT", "FLOAT16"):
            nodes.append(helper.make_node("Cast", [f"x{name}"], [f"{to}{name}"], to=code_of(to)))
            outputs[f"{to}{name}"] = (to, ["a", codes.size])
        nodes.append(helper.make_node("Identity", [f"x{name}"], [f"z{name}"]))
        outputs[f"z{name}"] = (name, ["a", codes.size])
    results = run(model_of(nodes, inputs, outputs), tmp_path, **feeds)
    for name in names:
        codes = feeds[f"x{name}"]
        # Bits beyond the type's do not count, in what is handed on neither.
        bits = {"FLOAT4E2M1": 4, "INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2}.get(name)
        if bits is not None:
            codes = (codes.view(np.uint8) & ((1 << bits) - 1)).view(codes.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            same(results[f"FLOAT{name}"], codes.astype(np.float32))
            same(results[f"FLOAT16{name}"], codes.astype(np.float32).astype(np.float16))
            same(results[f"z{name}"], codes)


MODES = [(mode, saturate) for mode in ("up", "down", "nearest") for saturate in (0, 1)]


def test_powers_of_two_are_those_of_the_reference_and_of_the_specification(tmp_path: Path) -> None:
    outputs = {f"{mode}_{saturate}": ("FLOAT8E8M0", ["n"]) for mode, saturate in MODES}
    nodes = [
        helper.make_node("Cast", ["x"], [f"{m}_{s}"], to=code_of("FLOAT8E8M0"), round_mode=m, saturate=s)
        for m, s in MODES
    ]
    rng = np.random.default_rng(0)
    normal = np.exp2(rng.uniform(-126, 127.99, 500)).astype(np.float32)
    special = np.array([0, np.inf, np.nan, 2.0**-127, 2.0**-130, 1.5, 3.4e38], np.float32)
    results = run(
        model_of(nodes, {"x": ("FLOAT", ["n"])}, outputs), tmp_path, x=np.concatenate([special, normal]).astype("f4")
    )
    for mode, saturate in MODES:
        got = results[f"{mode}_{saturate}"].view(np.uint8)
        np.testing.assert_array_equal(got[7:], numpy_helper.to_float8e8m0(normal, bool(saturate), mode).view(np.uint8))
        # The specification's table; the reference gives NaN for infinity, and 0 for 0, in any case.
        assert got[:5].tolist() == ([0, 254, 255, 0, 0] if saturate else [255, 255, 255, 0, 255])
        assert got[6] == (255 if not saturate and mode != "down" else 254)


def test_operators_of_bfloat16_round_each_result_as_onnxs_reference_does(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (bfloat16[n,6] x, bfloat16[n,6] k) => (bfloat16[n,6] y, bfloat16[n,4] p, bool[n,6] less, bfloat16[6,n] t) {
            s = Add (x, k)
            d = Div (s, k)
            y = Mul (d, x)
            p = MatMul (x, w)
            less = Less (x, k)
            t = Transpose (x)
        }""")
    rng = np.random.default_rng(0)
    w = rng.normal(size=(6, 4)).astype(ml_dtypes.bfloat16)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    x, k = (rng.uniform(1, 9, (5, 6)).astype(ml_dtypes.bfloat16) for _ in range(2))
    results = run(model, tmp_path, x=x, k=k)
    wanted = ReferenceEvaluator(model).run(None, {"x": x, "k": k})
    for name, expected in zip(("y", "less", "t"), [wanted[0], *wanted[2:]], strict=True):  # type: ignore[misc]
        same(results[name], expected)
    # The reference rounds each of the products' sums; onnxruntime and softq the whole.
    same(results["p"], (x.astype(np.float32) @ w.astype(np.float32)).astype(ml_dtypes.bfloat16))


def test_bfloat16_within_a_loop_and_a_branch(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (int64 m, bool c, bfloat16[2] x) => (bfloat16[2] y, bfloat16[r,2] s) {
            z, s = Loop (m, , x) <body = b (int64 i, bool go, bfloat16[2] v) => (
                bool on, bfloat16[2] w, bfloat16[2] o) {
                on = Identity (go)
                w = Mul (v, third)
                o = Add (w, x)
            }>
            y = If (c) <then_branch = t () => (bfloat16[2] a) { a = Exp (z) }, else_branch = e () => (bfloat16[2] a2) {
                a2 = Identity (z) }>
        }""")
    third: Array = np.array([0.333], ml_dtypes.bfloat16)
    model.graph.initializer.append(numpy_helper.from_array(third, "third"))
    softq.build(model, tmp_path / "built", target="cpu")
    x = np.array([3.7, -1.1], ml_dtypes.bfloat16)
    with softq.load(tmp_path / "built") as artifact:
        for rounds, branch in ((3, True), (2, False), (0, True)):
            results = artifact({"m": np.array(rounds), "c": np.array(branch), "x": x})
            v: Any = x
            outs = list[Array]()
            for _ in range(rounds):
                v = v * third
                outs.append(v + x)
            same(results["s"], np.stack(outs) if outs else np.zeros((0, 2), ml_dtypes.bfloat16))
            if not branch:
                same(results["y"], v)
            else:
                error = np.abs(results["y"].astype(np.float64) - np.exp(v.astype(np.float64)))
                assert (error <= 2.0**-8 * np.exp(v.astype(np.float64))).all()


@pytest.mark.parametrize("block", [0, 3])
def test_quantized_numbers_are_those_of_the_reference(block: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(4, 6, 2)) * 40).astype(np.float32)
    scale = rng.uniform(0.5, 30, (4, 2, 2) if block else 6).astype(np.float32)
    inputs = {"x": ("FLOAT", list(x.shape)), "s": ("FLOAT", list(scale.shape))}
    nodes, outputs, feeds = list[onnx.NodeProto](), dict[str, Any](), {"x": x, "s": scale}
    for name in (*FLOAT8, "FLOAT4E2M1", *SMALL_INTEGERS, "INT8"):
        zero = [f"z{name}"] if "INT" in name else []
        if zero:
            inputs[zero[0]] = (name, list(scale.shape))
            feeds[zero[0]] = rng.integers(0, 2, scale.shape).astype(numpy_type(name))
        places: dict[str, Any] = {"axis": 1, **({"block_size": block} if block else {})}
        kind: dict[str, Any] = {} if zero else {"output_dtype": code_of(name)}
        nodes.append(helper.make_node("QuantizeLinear", ["x", "s", *zero], [f"q{name}"], **places, **kind))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{name}", "s", *zero], [f"y{name}"], **places))
        outputs |= {f"q{name}": (name, list(x.shape)), f"y{name}": ("FLOAT", list(x.shape))}
    model = model_of(nodes, inputs, outputs)
    wanted: list[Array] = ReferenceEvaluator(model).run(None, feeds)  # type: ignore[assignment]
    results = run(model, tmp_path, **feeds)
    for name, expected in zip(outputs, wanted, strict=True):
        same(results[name], np.asarray(expected))


def test_one_scale_and_one_zero_point_are_for_all_elements(tmp_path: Path) -> None:
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=0)
    model = model_of([node], {"x": ("INT4", [5]), "s": ("FLOAT", []), "z": ("INT4", [1])}, {"y": ("FLOAT", [5])})
    feeds = {"x": np.array([0, 1, 7, -4, -8]), "z": np.array([1])}
    small = {name: array.astype(ml_dtypes.int4) for name, array in feeds.items()}
    results = run(model, tmp_path, **small, s=np.array(2, np.float32))
    assert results["y"].tolist() == [-2, 0, 12, -10, -18]


def test_what_computes_with_float8_is_refused_by_name() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=code_of("FLOAT8E5M2")),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=code_of("FLOAT")),
    ]
    model = model_of(nodes, {"x": ("FLOAT", [3])}, {"y": ("FLOAT", [3])})
    with pytest.raises(softq.RefusalError, match="Relu 'b' of float8_e5m2: built models move and convert"):
        softq.build(model, "unused", target="cpu")


def test_a_value_of_a_loop_whose_type_is_not_known_is_refused_by_name() -> None:
    number, going, on = (
        helper.make_tensor_value_info(name, code_of(kind), [])
        for name, kind in (("i", "INT64"), ("go", "BOOL"), ("on", "BOOL"))
    )
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["v"], ["w"])]
    unknown = [onnx.ValueInfoProto(name=name) for name in ("v", "w")]
    body = helper.make_graph(nodes, "b", [number, going, unknown[0]], [on, unknown[1]])
    node = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    model = model_of([node], {"m": ("INT64", []), "x": ("FLOAT8E5M2", [2])}, {"y": ("FLOAT8E5M2", [2])})
    with pytest.raises(softq.RefusalError, match="the element type of 'v' is not known; it may be float8_e5m2"):
        softq.build(model, "unused", target="cpu")
