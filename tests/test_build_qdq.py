"""Models between QuantizeLinear and DequantizeLinear, built: their integers are the same for every target."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import softq
from tests.built import Array
from tests.native import build_program

pytest.importorskip("tvm")

TARGETS = ("cpu", "cpu,mcpu=x86-64")


def model_of(graph: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


def results(model: onnx.ModelProto, feed: dict[str, Array], target: str, folder: Path) -> list[Array]:
    softq.build(model, folder, target=target)
    with softq.load(folder) as built:
        found = built(feed)
    return [np.asarray(found[value.name]) for value in model.graph.output]


def by_onnxruntime(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, feed)]


PRODUCT = """
g (int8[7, 50] a) => (int8[7, 11] y, float[7, 11] real)
<float s = {{0.013}}, int8 z = {{{zero}}}, float t = {{0.021}}, int8 w = {{0}}, float u = {{0.09}}, int8 p = {{-9}},
 float bs = {{0.000273}}, int32 bz = {{0}}>
{{
    x = DequantizeLinear(a, s, z)
    m = DequantizeLinear(b, t, w)
    c = DequantizeLinear(bias, bs, bz)
    {product}
    y = QuantizeLinear(real, u, p)
}}
"""
FORMS = {
    "Gemm": "real = Gemm <transB = 1> (x, m, c)",
    "MatMul": "plain = MatMul(x, m) real = Add(plain, c)",
}


def product(form: str, zero: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    rng = np.random.default_rng(3)
    model = model_of(PRODUCT.format(product=FORMS[form], zero=zero))
    b, bias = rng.integers(-128, 128, (11, 50)).astype(np.int8), rng.integers(-4000, 4000, 11).astype(np.int32)
    b = b if form == "Gemm" else np.ascontiguousarray(b.T)
    model.graph.initializer.extend([onnx.numpy_helper.from_array(b, "b"), onnx.numpy_helper.from_array(bias, "bias")])
    return model, {"a": rng.integers(-128, 128, (7, 50)).astype(np.int8)}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zero", [0, 7])
def test_gemm_gives_what_matmul_gives(zero: int, target: str, tmp_path: Path) -> None:
    """Exact sums, each rounded once; onnxruntime's sums of floats are within 50 roundings of terms up to 7.3."""
    found = {form: results(*product(form, zero), target, tmp_path / form) for form in FORMS}
    for ours, theirs in zip(found["Gemm"], found["MatMul"], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    codes, real = by_onnxruntime(*product("Gemm", zero))
    np.testing.assert_allclose(found["Gemm"][1], real, rtol=0, atol=50 * 7.3 * 2**-23)
    assert np.abs(found["Gemm"][0].astype(int) - codes).max() <= 1


CHAINS = {
    "gelu-by-erf": "a = Mul(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
    "gelu": "y = Gelu(x)",
    "gelu-tanh": 'y = Gelu <approximate = "tanh"> (x)',
    "silu": "a = Sigmoid(x) y = Mul(a, x)",
    "tanh": "y = Tanh(x)",
    "sigmoid": "y = Sigmoid(x)",
    "clip": "a = HardSwish(x) b = Clip(a, half, four) y = Sub(b, one)",
    "codes-alone": "y = Identity(x)",
    "twice": "a = Tanh(x) b = QuantizeLinear(a, fine, z) c = DequantizeLinear(b, fine, z) y = Mul(c, c)",
    "number-that-is-quantized": "n = DequantizeLinear(quarter, fine, z) y = Mul(x, n)",
}


def chain(name: str, kind: str, shape: str = "4, 64") -> onnx.ModelProto:
    zero = {"int8": 3, "uint8": 131}[kind]
    return model_of(f"""
    g ({kind}[{shape}] q) => ({kind}[{shape}] out)
    <float s = {{0.047}}, {kind} z = {{{zero}}}, float t = {{0.0213}}, {kind} w = {{{zero + 20}}}, float one = {{1.0}},
     float half = {{0.5}}, float four = {{4.0}}, float r = {{0.70710677}}, float fine = {{0.008}},
     {kind} quarter = {{{zero + 31}}}>
    {{
        x = DequantizeLinear(q, s, z)
        {CHAINS[name]}
        out = QuantizeLinear(y, t, w)
    }}
    """)


def steps_of(folder: Path) -> list[str]:
    return [step["kernel"] for step in json.loads((folder / "manifest.json").read_text())["steps"]]


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_between_quantizations_are_tables(name: str, kind: str, tmp_path: Path) -> None:
    """Of all 256 codes those of onnxruntime: no result of these is within its error of a boundary between codes."""
    low = np.iinfo(kind).min
    feed = {"q": np.arange(low, low + 256).astype(kind).reshape(4, 64)}
    model = chain(name, kind)
    expected = by_onnxruntime(model, feed)
    assert len(np.unique(expected[0])) > 16
    for target in ("cpu", "c"):
        folder = tmp_path / target
        np.testing.assert_array_equal(results(model, feed, target, folder), expected)
        assert all("look_up" in kernel for kernel in steps_of(folder))


OTHERS = {
    "two-tensors": ("q2", "b = DequantizeLinear(q2, s, z) y = Add(x, b)"),
    "columns": ("q2", "y = Mul(x, many)"),
    "rows": ("q2", "y = Softmax(x)"),
    "floats": ("q2", "y = Add(x, real)"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_made_of_one_code_is_no_table(name: str, tmp_path: Path) -> None:
    model = model_of(f"""
    g (int8[4, 8] q, int8[4, 8] q2, float[4, 8] real) => (int8[4, 8] out)
    <float s = {{0.047}}, int8 z = {{3}}, float t = {{0.0213}}, float[8] many = {{1, 2, 3, 4, 5, 6, 7, 8}}>
    {{
        x = DequantizeLinear(q, s, z)
        {OTHERS[name][1]}
        out = QuantizeLinear(y, t, z)
    }}
    """)
    rng = np.random.default_rng(0)
    feed = {
        "q": rng.integers(-128, 128, (4, 8)).astype(np.int8),
        "q2": rng.integers(-128, 128, (4, 8)).astype(np.int8),
        "real": rng.standard_normal((4, 8), np.float32),
    }
    found = results(model, feed, "cpu", tmp_path / "cpu")
    np.testing.assert_array_equal(found, by_onnxruntime(model, feed))
    assert not any("look_up" in kernel for kernel in steps_of(tmp_path / "cpu"))


def test_a_table_stands_behind_a_product_that_quantizes(tmp_path: Path) -> None:
    """The product keeps what is done to its sums; the table is a step of its own."""
    model, feed = product("Gemm", 7)
    model.graph.node.extend(
        onnx.helper.make_node(*node)
        for node in (
            ("DequantizeLinear", ["y", "u", "p"], ["back"]),
            ("Gelu", ["back"], ["bent"]),
            ("QuantizeLinear", ["bent", "u", "p"], ["last"]),
        )
    )
    model.graph.output[1].CopyFrom(onnx.helper.make_tensor_value_info("last", onnx.TensorProto.INT8, [7, 11]))
    model.graph.output.pop(0)
    (found,), (plain,) = results(model, feed, "c", tmp_path / "c"), results(model, feed, "cpu", tmp_path / "cpu")
    assert np.abs(found.astype(int) - plain).max() <= 1
    (expected,) = by_onnxruntime(model, feed)
    assert np.abs(found.astype(int) - expected).max() <= 1
    steps = steps_of(tmp_path / "c")
    assert len(steps) == 2, steps
    assert "matmul" in steps[0]
    assert "quantize" in steps[0]
    assert "look_up" in steps[1]


@pytest.mark.parametrize(
    "given",
    ["int8[4] q, int8[255] t", "int16[4] q, int8[256] t", "int8[4] q, float[256] t", "uint8[4] q, uint8[16, 16] t"],
)
def test_tables_of_a_file_are_checked(given: str) -> None:
    """A code would be read behind a shorter table."""
    made = given.split()[2].partition("[")[0]
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18, "softq.compiler" : 1]>
        g ({given}) => ({made}[4] y) {{ y = softq.compiler.LookUpCodes(q, t) }}""")
    with pytest.raises(softq.RefusalError, match="takes bytes and a table of 256 bytes"):
        build_program(model)


@pytest.mark.parametrize("form", FORMS)
def test_biases_are_floats_already(form: str, tmp_path: Path) -> None:
    model, feed = product(form, 0)
    found, wanted = results(model, feed, "c,name=digits", tmp_path / "c")[1], by_onnxruntime(model, feed)[1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    bias = next(onnx.numpy_helper.to_array(x) for x in model.graph.initializer if x.name == "bias")
    text = (tmp_path / "c" / "digits_weights.c").read_text()
    assert "int32_t" not in text
    assert float(bias[0] * np.float32(0.000273)).hex()[:8] in text


@pytest.mark.parametrize(("axis", "count"), [(0, 3), (-1, 4)])
def test_biases_have_the_scales_of_their_axis(axis: int, count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    nodes = f"d = DequantizeLinear <axis = {axis}> (b, s, z) y = Add(x, d)"
    model = model_of(f"g (float[3, 4] x) => (float[3, 4] y) {{ {nodes} }}")
    numbers = {"b": rng.integers(-(2**30), 2**30, (3, 4), np.int32), "z": np.zeros(count, np.int32)}
    numbers["s"] = rng.uniform(1e-9, 2e-9, count).astype(np.float32)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in numbers.items())
    feed = {"x": rng.standard_normal((3, 4), np.float32)}
    for target in ("cpu", "c"):
        np.testing.assert_array_equal(results(model, feed, target, tmp_path / target), by_onnxruntime(model, feed))
        assert not any("dequantize" in kernel for kernel in steps_of(tmp_path / target))
