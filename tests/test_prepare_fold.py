"""The passes that compute sizes, constants and shapes beforehand: what becomes known, and what stays open."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from softq.errors import InputError
from softq.passes.fix_dimensions import FixDimensions
from softq.passes.fold_constants import FoldConstants
from softq.passes.fold_normalizations import FoldNormalizations
from softq.passes.fold_recurrent_weights import FoldRecurrentWeights
from softq.passes.fold_shapes import FoldShapes
from softq.passes.forget_shapes import ForgetShapes
from softq.passes.infer_shapes import InferShapes
from tests.prepared import applied, assert_close, assert_same, by_onnxruntime, model, normal, operators

OPSETS = pytest.mark.parametrize("opset", [18, 20, 23])


SHAPES = {
    # What is known of (N, 3, 8) is (?, 3, 8).
    "gather": ("s = Shape (x)  k = Gather (s, two)  y = Expand (k, three)", {"Expand": 1}),
    "slice": ("s = Shape (x)  y = Slice (s, one, far)", {}),
    "start": ("y = Shape <start: int = -2> (x)", {}),
    "unknown": ("y = Shape <end: int = 1> (x)", {"Shape": 1}),
    "mixed": ("s = Shape (x)  k = Gather (s, two)  n = Gather (s, zero)  y = Concat <axis: int = 0> (n, k)", None),
    "product": ("s = Shape <start: int = 1> (x)  a, b = Split <num_outputs: int = 2> (s)  y = Mul (a, b)", {}),
    "quotient": ("s = Shape <start: int = 1> (x)  a, b = Split <num_outputs: int = 2> (s)  y = Div (b, a)", {}),
    "negative": ("s = Shape <start: int = 2> (x)  a = Neg (s)  y = Div (a, three)", {}),
    "by-zero": ("s = Shape <start: int = 2> (x)  a = Sub (s, s)  y = Div (s, a)", {"Div": 1}),
    "comparison": (
        "s = Shape (x)  e = Equal (s, three)  y = Cast <to: int = 7> (e)",
        {"Shape": 1, "Equal": 1, "Cast": 1},
    ),
    "size": ("s = Shape (x)  n = Size (s)  y = Unsqueeze (n, zero)", {}),
    # At index 1 or 2, which both are known, but not which of them.
    "index": ("s = Shape (x)  i = Shape <end: int = 1> (x)  j = Min (i, two)  y = Gather (s, j)", None),
}


@OPSETS
@pytest.mark.parametrize("name", SHAPES)
def test_known_sizes_become_constants_and_unknown_ones_stay(name: str, opset: int) -> None:
    lines, left = SHAPES[name]
    numbers = "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] far = {99}>"
    before = model(f"g (float[N, 3, 8] x) => (int64[K] y) {numbers} {{ {lines} }}", opset)
    after = applied(FoldShapes(), before)
    if left is not None:
        assert operators(after) == left
    else:
        assert operators(after)["Shape"] >= 1
    if name != "by-zero":
        for n in (1, 3, 5):
            assert_same(before, after, {"x": normal(1, n, 3, 8)})


@OPSETS
def test_small_results_of_constants_are_folded(opset: int) -> None:
    before = model(
        "g (float[2, N] x) => (float[2, N] y) <int64[2] shape = {2, 1}, float[2] w = {1.0, 2.0}> {"
        " a = ConstantOfShape <value: tensor = float[1] {3.0}> (shape)  b = Reshape (w, shape)"
        " c = Add (a, b)  d = Exp (c)  y = Mul (x, d) }",
        opset,
    )
    after = applied(FoldConstants(), applied(InferShapes(), before))
    assert operators(after) == {"Mul": 1}
    # exp of NumPy and of onnxruntime: one unit in the last place.
    feed = {"x": normal(1, 2, 3)}
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), rtol=1.2e-7)


def test_weights_of_one_number_are_folded_however_large() -> None:
    before = model(
        "g (float[1, 512, 3, 3] x) => (float[1, 1024, 3, 3] y) <int64[4] shape = {1024, 512, 1, 1}> {"
        " w = ConstantOfShape <value: tensor = float[1] {0.25}> (shape)  y = Conv (x, w) }"
    )
    assert operators(applied(FoldConstants(), applied(InferShapes(), before))) == {"Conv": 1}


NORMALIZED = {
    "biased": ("y = BatchNormalization (c, s, b, m, v)", {"Conv": 1}),
    "chosen epsilon": ("y = BatchNormalization <epsilon = 0.5> (c, s, b, m, v)", {"Conv": 1}),
    "read twice": ("n = BatchNormalization (c, s, b, m, v)  y = Add (n, c)", None),
    "scale not constant": ("z = Neg (t)  y = BatchNormalization (c, z, b, m, v)", None),
}


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize("name", NORMALIZED)
def test_normalizations_become_part_of_convolutions(name: str, bias: str) -> None:
    lines, left = NORMALIZED[name]
    before = model(
        "g (float[2, 2, 5, 6] x, float[2] t) => (float[2, 2, 3, 4] y) <float[2, 1, 3, 3] w = {"
        + ", ".join(str(i % 7 - 3) for i in range(18))
        + "}, float[2] s = {0.5, -2}, float[2] b = {1, 3}, float[2] m = {-1, 0.25}, float[2] v = {0.5, 4}> {"
        f" c = Conv <group = 2> (x, w{bias})  {lines} }}"
    )
    after = applied(FoldNormalizations(), before)
    assert operators(after) == (left or operators(before))
    feed = {"x": normal(1, 2, 2, 5, 6), "t": normal(2, 2)}
    # Nine products of at most 3 times 4, rounded before and after they are scaled by at most 1.
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed), rtol=1e-5, atol=1e-5)


FIXED = {
    "large": "y = ConstantOfShape (size)",
    "random": "y = RandomUniform <shape: ints = [2]> ()",
    "bernoulli": "y = Bernoulli (half)",
    "quantized": "y = DequantizeLinear (codes, half)",
    "undefined": "n = Log (minus)  y = Cast <to: int = 6> (n)",
}


@pytest.mark.parametrize("name", FIXED)
def test_what_is_not_folded(name: str) -> None:
    kind = "int32" if name == "undefined" else "float"
    before = model(
        f"g () => ({kind}[K] y) <int64[1] size = {{1000000}}, float half = {{0.5}}, int8[2] codes = {{1, 2}}, "
        f"float[1] minus = {{-1.0}}> {{ {FIXED[name]} }}",
        21,
    )
    if name == "bernoulli":
        del before.graph.output[0].type.tensor_type.shape.dim[:]
    known = applied(InferShapes(), before)
    assert applied(FoldConstants(), known) == known


def test_outputs_of_bodies_come_from_nodes() -> None:
    before = model(
        "g (bool c, float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {"
        " y = If (c) <then_branch = t () => (float[2] a) { a = Neg (w) },"
        " else_branch = e () => (float[2] b) { k = Neg (w)  b = Mul (x, k) }> }"
    )
    after = applied(FoldConstants(), applied(InferShapes(), before))
    bodies = {attribute.name: attribute.g for attribute in after.graph.node[0].attribute}
    assert [node.op_type for node in bodies["then_branch"].node] == ["Constant"]
    assert [node.op_type for node in bodies["else_branch"].node] == ["Mul"]
    for c in (True, False):
        assert_same(before, after, {"c": np.array(c), "x": normal(1, 2)})


def test_dimensions_get_numbers() -> None:
    before = model("g (float[N, 3] x) => (float[N, K] y) { s = Shape (x)  z = Reshape (x, s)  y = Neg (z) }")
    fixed = ir.from_proto(before)
    assert FixDimensions({"N": 4})(fixed).modified
    assert not FixDimensions()(fixed).modified
    after = ir.to_proto(fixed)
    assert [dim.dim_value for dim in after.graph.input[0].type.tensor_type.shape.dim] == [4, 3]
    assert [dim.dim_value for dim in after.graph.output[0].type.tensor_type.shape.dim] == [4, 0]
    assert operators(applied(FoldShapes(), after))["Shape"] == 0
    with pytest.raises(InputError, match="no input has a dimension 'M'; there are: N"):
        FixDimensions({"M": 4})(ir.from_proto(before))
    with pytest.raises(InputError, match="cannot be -1"):
        FixDimensions({"N": -1})(ir.from_proto(before))
    with pytest.raises(InputError, match="cannot be 0; the least length is 1"):
        FixDimensions({"N": 0})(ir.from_proto(before))


def test_inferred_shapes_add_to_what_is_there_and_leave_weights_alone() -> None:
    before = model(
        "g (float[N, 600] x) => (float[N, K] y) <float[N, M] a, float[Q, M] b> {"
        " a = MatMul (x, w)  b = Neg (a)  y = Neg (b) }"
    )
    before.graph.initializer.append(onnx.numpy_helper.from_array(normal(1, 600, 2), "w"))
    after = applied(InferShapes(), before)
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in after.graph.value_info
    }
    assert (shapes["a"], shapes["b"]) == (["N", 2], ["Q", 2])
    assert after.graph.initializer[0] == before.graph.initializer[0]


@pytest.mark.parametrize(
    ("target", "found"),
    [("4, -1", [None, None, 4, 8]), ("-1, 16", [None, None, 2, 16]), ("2, 2, -1", [None, None, 2, 2, 8])],
)
def test_the_open_size_of_a_reshape_is_found(target: str, found: list[int | None]) -> None:
    count = target.count(",") + 1
    before = model(
        f"g (float[B, S, 32] x) => (float[{', '.join('abcde'[: count + 2])}] y) <int64[{count}] t = {{{target}}}> {{"
        " d = Shape <end: int = 2> (x)  e = Concat <axis: int = 0> (d, t)  z = Reshape (x, e)  y = Neg (z) }"
    )
    after = ir.from_proto(applied(InferShapes(), before))
    shape = after.graph.node(2).outputs[0].shape
    assert shape is not None
    assert [dim if isinstance(dim, int) else None for dim in shape] == found
    assert_same(before, ir.to_proto(after), {"x": normal(1, 2, 3, 32)})


def test_a_reshape_has_the_rank_of_its_target() -> None:
    before = model(
        "g (float[B, S, 32] x, int64[3] t) => (float[a, b, c, d] y) {"
        " k = Constant <value_ints: ints = [4]> ()  e = Concat <axis: int = 0> (t, k)"
        " z = Reshape (x, e)  y = Neg (z) }"
    )
    after = ir.from_proto(applied(InferShapes(), before))
    shape = after.graph.node(2).outputs[0].shape
    assert shape is not None
    assert len(shape) == 4


def test_constant_weights_of_recurrent_layers_are_computed() -> None:
    before = model(
        "g (float[T, 1, 2] x, float[1, 3, 3] r) => (float[T, 1, 1, 3] y, float[2, 3] other) "
        "<int8[1, 2, 3] codes = {1, -2, 3, -4, 5, -6}, float scale = {0.5}, int8 zero = {1}> {"
        " wide = DequantizeLinear (codes, scale, zero)  w = Transpose <perm: ints = [0, 2, 1]> (wide)"
        " recurrent = Neg (r)  y, last = RNN <hidden_size: int = 3> (x, w, recurrent)"
        " halves = DequantizeLinear (codes, scale)  other = Squeeze (halves) }",
        21,
    )
    after = applied(FoldRecurrentWeights(), applied(InferShapes(), before))
    assert operators(after) == {"Neg": 1, "RNN": 1, "DequantizeLinear": 1, "Squeeze": 1}
    assert_same(before, after, {"x": normal(1, 4, 1, 2), "r": normal(2, 1, 3, 3)})


@pytest.mark.parametrize(
    ("operator", "dtype"), [("EyeLike <dtype = 6>", "int32"), ('RegexFullMatch <pattern = "a*">', "bool")]
)
def test_operators_that_inference_does_not_survive_get_their_types(operator: str, dtype: str) -> None:
    """onnx 1.23 ends the process where it does not know the type of their input."""
    untyped = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21, "other": 1]>
        g (float[2, 3] x) => ({dtype}[2, 3] z) {{
            u = other.Unknown (x)
            y = {operator} (u)
            z = Identity (y)
        }}""")
    known = applied(ForgetShapes(), applied(InferShapes(), untyped, check=False), check=False)
    types = {value.name: value.type.tensor_type.elem_type for value in known.graph.value_info}
    assert types["y"] == onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert known.graph.node[1].op_type == operator.split()[0]
