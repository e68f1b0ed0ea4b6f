"""What a model declares and is not so: shapes of outputs, initializers as inputs; Squeeze without axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser

import softq
from softq.errors import SoftqError
from softq.graph.growth import may_explode
from softq.passes.forget_shapes import ForgetShapes

pytest.importorskip("tvm")


def given(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> {text}')


WRONG = {
    "rank": "g (float[N, 8] x) => (float[1, M] y) { t = Constant <value_ints = [0, 1, -1]> ()  y = Reshape (x, t) }",
    "length": "g (float[N, 8] x) => (float[N, 3] y) { y = Exp (x) }",
    "length of what ONNX knows nothing of": "g (float[N, 8] x) => (float[N, 3] y) { y = com.microsoft.Gelu (x) }",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_shape_of_an_output_does_not_count(text: str, tmp_path: Path) -> None:
    """As in onnxruntime, which warns of it."""
    model = given(text)
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, {"x": x})[0])
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        result = np.asarray(built({"x": x})["y"], np.float32)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, strict=True)


def test_shapes_that_may_be_right_stay() -> None:
    """A number where ONNX infers a name, a name where it infers nothing."""
    model = ir.from_proto(
        given("g (float[N, 8] x) => (float[2, 8] y, float[M, K] z) { y = Exp (x) z = com.microsoft.Gelu (x) }")
    )
    assert not ForgetShapes()(model).modified
    assert [str(value.shape) for value in model.graph.outputs] == ["[2,8]", "[M,K]"]


def test_a_wrong_length_behind_a_large_weight_is_forgotten() -> None:
    model = given("g (float[N, 32] x) => (float[N, 3] y) { y = MatMul (x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((32, 64), np.float32), "w"))
    forgetting = ir.from_proto(model)
    assert ForgetShapes()(forgetting).modified
    assert [str(value.shape) for value in forgetting.graph.outputs] == ["[N,64]"]


@pytest.mark.parametrize(
    ("ends", "length"), [("", 4), ("<end = 1>", 1), ("<start = -3, end = 3>", 2), ("<start = 3, end = 1>", 0)]
)
def test_a_cut_shape_is_as_long_as_it_says(ends: str, length: int) -> None:
    """Inference is trusted with a Reshape to a long axis only where it is known not to be the only one."""
    model = given(f"""g (float[N, 7, 2000, 2000] x) => (float[1] y) {{
        s = Shape {ends} (x)  one = Constant <value_ints = [-1]> ()  t = Concat <axis = 0> (s, one)
        r = Reshape (x, t)  z = Constant <value_ints = [1]> ()  y = Reshape (r, z) }}""")
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    lengths = {value.name: value.type.tensor_type.shape.dim[0].dim_value for value in inferred}
    assert lengths["t"] == length + 1
    assert may_explode(model) == (length == 0)


def test_squeeze_without_axes_is_for_lengths_that_are_not_1(tmp_path: Path) -> None:
    """How many axes the result has is decided when the model is built."""
    model = given("g (float[N, 1, 3] x) => (float[N, 3] y) { y = Squeeze (x) }")
    softq.build(model, tmp_path / "built", target="cpu")
    x = np.arange(12, dtype=np.float32).reshape(4, 1, 3)
    with softq.load(tmp_path / "built") as built:
        np.testing.assert_array_equal(built({"x": x})["y"], x[:, 0], strict=True)
        with pytest.raises(SoftqError, match="Squeeze y without axes would drop an axis that was not 1 when"):
            built({"x": x[:1]})
    softq.build(model, tmp_path / "one", target="cpu", input_shapes={"x": (1, 1, 3)})
    with softq.load(tmp_path / "one") as built:
        np.testing.assert_array_equal(built({"x": x[:1]})["y"], x[0, 0], strict=True)


def test_an_initializer_is_no_input_though_nothing_uses_it(tmp_path: Path) -> None:
    """Up to version 3 of the format every initializer was declared as an input, too."""
    model = parser.parse_model("""<ir_version: 3, opset_import: ["": 9]>
        g (float[2] x, float[2] used, float[2] unused) => (float[2] y)
        <float[2] used = {1, 2}, float[2] unused = {3, 4}> { y = Add (x, used) }""")
    assert len(model.graph.input) == 3
    softq.build(model, tmp_path / "built", target="cpu")
    with softq.load(tmp_path / "built") as built:
        assert [spec.name for spec in built.inputs] == ["x"]
        assert list(built({"x": np.ones(2, np.float32)})["y"]) == [2, 3]


@pytest.mark.parametrize(
    ("operator", "dtype", "result"), [("MatMul", "float", "float"), ("MatMulInteger", "uint8", "int32")]
)
def test_lengths_of_two_names_may_be_the_same(operator: str, dtype: str, result: str, tmp_path: Path) -> None:
    """Those of the inner axis of a product; each run says whether they are."""
    softq.build(
        given(f"g ({dtype}[N, K] a, {dtype}[L, 5] b) => ({result}[N, 5] y) {{ y = {operator} (a, b) }}"),
        tmp_path / "built",
        target="cpu",
    )
    rng = np.random.default_rng(0)
    kind = np.float32 if dtype == "float" else np.uint8
    a, b = rng.integers(0, 9, (3, 70)).astype(kind), rng.integers(0, 9, (70, 5)).astype(kind)
    with softq.load(tmp_path / "built") as built:
        np.testing.assert_array_equal(built({"a": a, "b": b})["y"], a.astype(np.int32) @ b)
        with pytest.raises(SoftqError, match="inner dimensions K and L differ"):
            built({"a": a, "b": b[1:]})
