"""The passes that make models smaller: what they fold, merge and drop, and what they leave alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from softq.errors import RefusalError
from softq.passes.drop_no_ops import DropNoOps
from softq.passes.drop_unused import DropUnused
from softq.passes.expand_functions import ExpandFunctions
from softq.passes.fold_constants import FoldConstants
from softq.passes.infer_shapes import InferShapes
from softq.passes.lift_constants import LiftConstants
from softq.passes.merge_duplicates import MergeDuplicates
from softq.passes.split_products import SplitProducts
from softq.passes.transpose_weights import TransposeWeights
from tests.prepared import applied, assert_same, model, normal, operators

OPSETS = pytest.mark.parametrize("opset", [18, 20, 23])


def inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    return applied(InferShapes(), proto)


@OPSETS
def test_constants_of_every_form_become_initializers(opset: int) -> None:
    before = model(
        "g (float[N, 2] x) => (float[N, 2] y, int64[3] z, float[2] w, int64 i) {"
        " a = Constant <value: tensor = float[1] {2.0}> ()  b = Constant <value_float: float = 0.5> ()"
        " w = Constant <value_floats: floats = [1.5, -2.5]> ()  z = Constant <value_ints: ints = [3, -1, 2]> ()"
        ' i = Constant <value_int: int = 7> ()  s = Constant <value_string: string = "text"> ()'
        " p = Mul (x, a)  q = Mul (p, b)  y = Add (q, w) }",
        opset,
    )
    after = applied(LiftConstants(), before)
    assert operators(after) == {"Mul": 2, "Add": 1, "Constant": 1}
    assert {tensor.name for tensor in after.graph.initializer} == {"a", "b", "w", "z", "i"}
    assert_same(before, after, {"x": normal(1, 3, 2)})


def test_constants_of_bodies_stay_where_they_are_outputs() -> None:
    before = model(
        "g (bool c, float[2] x) => (float[2] y) {"
        " y = If (c) <then_branch = t () => (float[2] a) { a = Constant <value_floats: floats = [1.0, 2.0]> () },"
        " else_branch = e () => (float[2] b) { k = Constant <value_float: float = 2.0> ()  b = Mul (x, k) }> }"
    )
    after = applied(LiftConstants(), before)
    bodies = {attribute.name: attribute.g for attribute in after.graph.node[0].attribute}
    assert [node.op_type for node in bodies["then_branch"].node] == ["Constant"]
    assert [tensor.name for tensor in bodies["else_branch"].initializer] == ["k"]
    for c in (True, False):
        assert_same(before, after, {"c": np.array(c), "x": normal(1, 2)})


NO_OPS = {
    "Identity": "r = Identity (x)",
    "Cast": "r = Cast <to: int = 1> (x)",
    "CastLike": "r = CastLike (x, x)",
    "Dropout": "r = Dropout (x)",
    "Transpose": "r = Transpose <perm: ints = [0, 1, 2]> (x)",
    "Reshape": "r = Reshape (x, zeros)",
    "Expand": "r = Expand (x, ones)",
    "Slice": "r = Slice (x, zero, far, one)",
    "Slice-size": "r = Slice (x, zero, three, one, one)",
    "Concat": "r = Concat <axis: int = 1> (x)",
    "Max": "r = Max (x)",
    "Mul": "r = Mul (x, unit)",
    "Div": "r = Div (x, unit)",
    "Sub": "r = Sub (x, nothing)",
}
WORK = {
    "Cast": "i = Cast <to: int = 7> (x)  r = Cast <to: int = 1> (i)",
    "Transpose": "r = Transpose <perm: ints = [1, 0, 2]> (x)",
    "Reshape": "r = Reshape (x, turned)",
    "Slice-start": "r = Slice (x, one, far, one)",
    "Slice-step": "r = Slice (x, zero, far, one, two)",
    "Slice-end": "r = Slice (x, zero, two, one)",
    "Mul": "r = Mul (x, wide)",
    # -0.0 + 0.0 is +0.0
    "Add": "r = Add (x, nothing)",
    "Sub-negative": "r = Sub (x, negative)",
}
NUMBERS = (
    "<int64[3] zeros = {0, 0, -1}, int64[3] ones = {1, 1, 1}, int64[1] zero = {0}, int64[1] one = {1}, "
    "int64[1] two = {2}, int64[1] three = {3}, int64[1] far = {9223372036854775807}, float unit = {1.0}, "
    "int64[3] turned = {2, -1, 3}, float nothing = {0.0}, float negative = {-0.0}, float[1, 1, 1, 1] wide = {1.0}>"
)


@OPSETS
@pytest.mark.parametrize("name", NO_OPS)
def test_what_does_nothing_is_dropped(name: str, opset: int) -> None:
    before = model(f"g (float[N, 3, 2] x) => (float[N, 3, 2] y) {NUMBERS} {{ {NO_OPS[name]}  y = Neg (r) }}", opset)
    after = applied(DropNoOps(), inferred(before))
    assert operators(after) == {"Neg": 1}
    assert_same(before, after, {"x": normal(1, 2, 3, 2)})


@pytest.mark.parametrize("name", WORK)
def test_what_does_something_stays(name: str) -> None:
    before = model(f"g (float[N, 3, 2] x) => (float[a, b, c] y) {NUMBERS} {{ {WORK[name]}  y = Neg (r) }}")
    if name == "Mul":
        before.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "d"
    known = inferred(before)
    after = applied(DropNoOps(), known)
    assert after == known
    x = normal(1, 2, 3, 2)
    x[0, 0, 0] = -0.0
    assert_same(before, after, {"x": x})


def test_names_of_inputs_and_outputs_stay() -> None:
    before = model(
        "g (float[N] x) => (float[N] y, float[N] z, float[N] t, float[2] v) <float[2] w = {1.0, 2.0}> {"
        " y = Identity (x)  a = Neg (x)  z = Identity (a)  t = Identity (a)  v = Identity (w) }"
    )
    after = applied(DropNoOps(), before)
    assert operators(after) == {"Neg": 1, "Identity": 3}
    assert_same(before, after, {"x": normal(1, 4)})


def test_cast_like_becomes_cast() -> None:
    before = model("g (float[N] x, float16[M] h) => (float16[N] y) { y = CastLike (x, h) }")
    after = applied(DropNoOps(), before)
    assert operators(after) == {"Cast": 1}
    assert_same(before, after, {"x": normal(1, 4), "h": normal(2, 3).astype(np.float16)})


def test_constants_that_a_caller_may_set_are_none() -> None:
    before = model(
        "g (float[1, 2] x, float[1, 2] w, float[1, 2] v, float[1, 2] u) => (float[2, 2] y)"
        " <float[1, 2] w = {1.0, 2.0}, float[1, 2] v = {1.0, 2.0}, float[1, 2] u = {1.0, 3.0}> {"
        " a = Neg (w)  b = Transpose <perm: ints = [1, 0]> (v)  c = Add (x, a)  y = Mul (b, c) }"
    )
    assert {tensor.name for tensor in before.graph.initializer} == {"u", "v", "w"}
    known = inferred(before)
    for step in (FoldConstants(), DropUnused(), MergeDuplicates(), TransposeWeights()):
        assert applied(step, known) == known


@OPSETS
def test_duplicates_are_merged(opset: int) -> None:
    before = model(
        "g (float[N] x) => (float[N] y, float[N] z) "
        "<float a = {2.0}, float b = {2.0}, float c = {-0.0}, float d = {0.0}> {"
        " p = Mul (x, a)  q = Mul (x, b)  r = Add (p, q)  s = Elu <alpha: float = 2.0> (r)"
        " t = Elu <alpha: float = 3.0> (r)  u = Elu <alpha: float = 2.0> (r)  v = Sum (s, t, u, c, d)"
        " y = Neg (v)  z = Neg (v) }",
        opset,
    )
    after = applied(MergeDuplicates(), before)
    assert operators(after) == {"Mul": 1, "Add": 1, "Elu": 2, "Sum": 1, "Neg": 2}
    assert len(after.graph.initializer) == 3
    assert_same(before, after, {"x": normal(1, 5)})


def test_random_nodes_and_nodes_of_other_outputs_are_not_merged() -> None:
    before = model(
        "g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z, int64[2, 1] j) <int64[1] k = {1}> {"
        " a = RandomNormalLike (x)  b = RandomNormalLike (x)  c = Bernoulli (x)  d = Bernoulli (x)"
        " y = Sum (a, b, c, d)"
        " v, i = TopK (x, k)  w, j = TopK (x, k)  t = Cast <to: int = 1> (i)  s = Add (v, t)  z = Add (x, s) }"
    )
    assert operators(applied(MergeDuplicates(), before)) == operators(before)
    named = model(
        "g (float[2, 4] x) => (float[2, 4] y, float[2, 1] m) {"
        " a, n = LayerNormalization (x, x)  b = LayerNormalization (x, x)  y = Add (a, b)  m = Neg (n) }"
    )
    assert operators(applied(MergeDuplicates(), named, check=False))["LayerNormalization"] == 2


def test_unused_nodes_outputs_and_initializers_are_dropped() -> None:
    before = model(
        "g (float[2, 4] x, bool c) => (float[2, 4] y, float[2, 4] z) "
        "<float[4] w = {1.0, 1.0, 1.0, 1.0}, float u = {2.0}> {"
        " y, mean, spread = LayerNormalization (x, w)  a = Neg (x)  b = Mul (a, u)  o = Neg (x)"
        " r = Neg (x)  z = If (c) <then_branch = t () => (float[2, 4] i) { k = Neg (r)  i = Neg (o) },"
        " else_branch = e () => (float[2, 4] j) { j = Identity (x) }> }"
    )
    after = applied(DropUnused(), before)
    assert operators(after) == {"LayerNormalization": 1, "Neg": 1, "If": 1}
    assert list(after.graph.node[0].output) == ["y"]
    assert [tensor.name for tensor in after.graph.initializer] == ["w"]
    for c in (True, False):
        assert_same(before, after, {"x": normal(1, 2, 4), "c": np.array(c)})


def test_weights_are_turned_once_and_shared_ones_stay() -> None:
    before = model(
        "g (float[N, 3] x) => (float[N, 2] y, float[N, 3] z) {"
        " a = Transpose <perm: ints = [1, 0]> (w)  y = MatMul (x, a)"
        " b = Transpose <perm: ints = [1, 0]> (v)  c = MatMul (x, b)  z = MatMul (c, v) }"
    )
    for name, shape in (("w", (2, 3)), ("v", (3, 3))):
        before.graph.initializer.append(onnx.numpy_helper.from_array(normal(len(shape), *shape), name))
    after = applied(TransposeWeights(), before)
    assert operators(after) == {"MatMul": 3, "Transpose": 1}
    assert_same(before, after, {"x": normal(1, 4, 3)})


def test_turned_weights_are_read_late_and_not_copied() -> None:
    array = np.zeros((2, 3), np.float32)
    source = ir.from_proto(model("g (float[N, 3] x) => (float[N, 2] y) { a = Transpose (w)  y = MatMul (x, a) }"))
    weight = ir.Value(name="w", const_value=ir.Tensor(array, name="w"))
    source.graph.node(0).replace_input_with(0, weight)
    source.graph.register_initializer(weight)
    TransposeWeights()(source)
    (turned,) = source.graph.initializers.values()
    assert turned.const_value is not None
    assert np.shares_memory(turned.const_value.numpy(), array)


def split_model(body: str, *, outputs: str = "") -> onnx.ModelProto:
    """Return a model of `w` [3, 7] and `b` [7], `x` [N, 2, 3] to `p` and `q`."""
    before = model(
        f"g (float[N, 2, 3] x) => (float[N, 2, P] y{outputs}) {{ {body} y = Concat <axis: int = 2> (q, p) }}"
    )
    for name, shape in (("w", (3, 7)), ("b", (7,))):
        before.graph.initializer.append(onnx.numpy_helper.from_array(normal(len(shape), *shape), name))
    before.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 5]), "s"))
    return before


@pytest.mark.parametrize(
    "body",
    [
        "m = MatMul (x, w)  p, q = Split <axis: int = 2> (m, s)",
        "m = MatMul (x, w)  a = Add (m, b)  p, q = Split <axis: int = -1> (a, s)",
        "m = MatMul (x, w)  a = Add (b, m)  p, q = Split <axis: int = -1, num_outputs: int = 2> (a)",
    ],
)
def test_split_products_become_products_of_their_own(body: str) -> None:
    before = split_model(body)
    after = applied(SplitProducts(), inferred(before))
    assert operators(after) == {"MatMul": 2, "Concat": 1} | ({"Add": 2} if "Add" in body else {})
    assert "w" not in {tensor.name for tensor in after.graph.initializer}
    assert_same(before, after, {"x": normal(1, 4, 2, 3)})


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("m = MatMul (x, w)  p, q = Split <axis: int = 0, num_outputs: int = 2> (m)", ""),
        ("m = MatMul (x, w)  p, q = Split <axis: int = 2> (m, s)", ", float[N, 2, 7] m"),
        ("m = MatMul (x, w)  p, c = Split <axis: int = 2> (m, s)  q = Softmax (m)", ""),
        ("m = MatMul (x, w)  p, c = Split <axis: int = 2> (m, s)  q = MatMul (x, w)", ""),
        ("m = MatMul (x, w)  t = MatMul (x, w)  a = Add (m, t)  p, q = Split <axis: int = 2> (a, s)", ""),
    ],
)
def test_products_that_are_needed_whole_stay(body: str, outputs: str) -> None:
    before = inferred(split_model(body, outputs=outputs))
    assert operators(applied(SplitProducts(), before)) == operators(before)


def test_functions_of_the_model_are_opened_and_softq_s_stay() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 18, "own": 1, "softq": 1]>\n'
        "g (float[N] x) => (float[N] y) { a = own.Twice (x)  b = softq.Plus (a)  y = own.Twice (b) }\n"
        '<domain: "own", opset_import: ["": 18, "softq": 1]> Twice (x) => (y) { z = softq.Plus (x)  y = Add (z, x) }\n'
        '<domain: "own", opset_import: ["": 18]> Idle (x) => (y) { y = Neg (x) }\n'
        '<domain: "softq", opset_import: ["": 18]> Plus (x) => (y) { y = Add (x, x) }'
    )
    before = onnx.parser.parse_model(text)
    after = applied(ExpandFunctions(), before)
    assert operators(after) == {"Plus": 3, "Add": 2}
    assert [function.name for function in after.functions] == ["Plus"]
    assert_same(before, after, {"x": normal(1, 4)})


def test_functions_that_nothing_calls_go() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 18, "own": 1]>\ng (float[N] x) => (float[N] y) { y = Neg (x) }\n'
        '<domain: "own", opset_import: ["": 18]> Idle (x) => (y) { y = Neg (x) }'
    )
    assert not applied(ExpandFunctions(), onnx.parser.parse_model(text)).functions


def test_functions_that_cannot_be_opened_are_refused() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 18, "own": 1]>\ng (float[N] x) => (float[N] y) { y = own.A (x) }\n'
        '<domain: "own", opset_import: ["": 18, "own": 1]> A (x) => (y) { y = own.B (x) }\n'
        '<domain: "own", opset_import: ["": 18, "own": 1]> B (x) => (y) { y = own.A (x) }'
    )
    with pytest.raises(RefusalError, match="cannot be opened: Cyclic"):
        ExpandFunctions()(ir.from_proto(onnx.parser.parse_model(text)))
