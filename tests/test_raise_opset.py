"""raise-opset: the same outputs as the original under onnxruntime, and refusals that name the node."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from softq.errors import InputError, RefusalError
from softq.modelfile import as_model
from softq.passes import PASSES
from softq.passes.raise_opset import PASS, RaiseOpset

Arrays = Mapping[str, npt.NDArray[np.generic]]


def raised(proto: onnx.ModelProto) -> onnx.ModelProto:
    model = as_model(proto)
    result = RaiseOpset()(model)
    assert result.model is model
    assert result.modified
    after = ir.to_proto(model)
    assert {entry.domain: entry.version for entry in after.opset_import}[""] == 18
    onnx.checker.check_model(after, full_check=True)
    assert [i.name for i in after.graph.input] == [i.name for i in proto.graph.input]
    assert list(after.graph.output) == list(proto.graph.output)
    return after


def outputs(proto: onnx.ModelProto, feed: Arrays) -> list[npt.NDArray[np.float32]]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feed))]


def assert_same(proto: onnx.ModelProto, feed: Arrays) -> onnx.ModelProto:
    after = raised(proto)
    for old, new in zip(outputs(proto, feed), outputs(after, feed), strict=True):
        assert old.dtype == new.dtype
        # The same float32 operations in another order: a few units in the last place of values around 1.
        np.testing.assert_allclose(new, old, rtol=2e-6, atol=2e-7)
    return after


def flattened(name: str, x: npt.NDArray[np.float32], axis: int) -> npt.NDArray[np.float64]:
    """What operator sets 1 to 12 define: the last axis of the matrix that `axis` cuts the tensor into."""
    rows = x.astype(np.float64).reshape(int(np.prod(x.shape[: axis % x.ndim])), -1)
    if name == "Hardmax":
        result = np.eye(rows.shape[1])[rows.argmax(axis=1)]
    else:
        result = np.exp(rows - rows.max(axis=1, keepdims=True))
        result /= result.sum(axis=1, keepdims=True)
    return (np.log(result) if name == "LogSoftmax" else result).reshape(x.shape)


CASES = [
    (rank, axis) for rank in range(1, 6) for axis in (None, *range(-rank, rank)) if not (rank == 1 and axis is None)
]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("version", [1, 9, 11, 12])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["fixed", "symbolic"])
def test_flattening_operators_keep_their_meaning(name: str, version: int, symbolic: bool) -> None:
    for rank, axis in CASES:
        sizes = [2, 3, 4, 2, 3][:rank]
        dims = ",".join("abcde"[:rank] if symbolic else map(str, sizes))
        attribute = "" if axis is None else f"<axis={axis}>"
        text = f"g (float[{dims}] x) => (float[{dims}] y) {{ [soft] y = {name}{attribute}(x) }}"
        proto = parser.parse_model(f'<ir_version: 7, opset_import: ["": {version}]> {text}')
        x = np.random.default_rng(rank).normal(size=sizes, scale=3).astype(np.float32)
        after = raised(proto)
        expected = flattened(name, x, 1 if axis is None else axis)
        np.testing.assert_allclose(outputs(after, {"x": x})[0], expected, rtol=2e-5, atol=1e-6, err_msg=text)
        heir = next(node for node in after.graph.node if node.op_type == name)
        assert heir.name == "soft"


def test_rows_over_the_last_axis_stay_one_node() -> None:
    proto = parser.parse_model(
        '<ir_version: 7, opset_import: ["": 12]> g (float[a,b,c] x) => (float[a,b,c] y) { y = Softmax<axis=2>(x) }'
    )
    assert [node.op_type for node in raised(proto).graph.node] == ["Softmax"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "path", sorted(glob.glob(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light/light_*.onnx")))
)
def test_light_models(path: str) -> None:
    proto = onnx.load(path)
    rng = np.random.default_rng(7)
    inputs = {entry.name: entry.type.tensor_type for entry in proto.graph.input}
    data = {tensor.name for tensor in proto.graph.initializer}
    feed: dict[str, npt.NDArray[np.generic]] = {}
    for name, kind in inputs.items():
        if name in data:
            continue
        shape = [dim.dim_value for dim in kind.shape.dim]
        feed[name] = rng.normal(size=shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    after = assert_same(proto, feed)
    assert [t.name for t in after.graph.initializer] == [t.name for t in proto.graph.initializer]


def test_light_models_are_there() -> None:
    assert len(glob.glob(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light/light_*.onnx"))) >= 9


OPERATORS = [
    (7, 'y = Upsample<mode="nearest", scales=[1.0, 1.0, 2.0, 2.0]>(x)', "float[1,2,8,6] y"),
    (
        9,
        's = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() y = Upsample<mode="nearest">(x, s)',
        "float[1,2,8,6] y",
    ),
    (9, "y = Clip<min=-0.5, max=0.5>(x)", "float[1,2,4,3] y"),
    (9, "y = Slice<starts=[0, 1], ends=[1, 3], axes=[1, 2]>(x)", "float[1,1,2,3] y"),
    (10, "y = Pad<pads=[0, 0, 1, 1, 0, 0, 1, 1], value=2.5>(x)", "float[1,2,6,5] y"),
    (11, "y, z = Split<axis=2, split=[1, 3]>(x)", "float[1,2,1,3] y, float[1,2,3,3] z"),
    (12, "y = ReduceSum<axes=[1], keepdims=0>(x)", "float[1,4,3] y"),
    (17, "y = ReduceMean<axes=[-1, 1]>(x)", "float[1,1,4,1] y"),
    (17, "y = ReduceMax(x)", "float[1,1,1,1] y"),
    (17, "y, z = Split<axis=2>(x)", "float[1,2,2,3] y, float[1,2,2,3] z"),
    (11, "y = Squeeze<axes=[0]>(x)", "float[2,4,3] y"),
    (11, "y = Unsqueeze<axes=[0, 3]>(x)", "float[1,1,2,1,4,3] y"),
    (9, "y, z = TopK<k=2, axis=2>(x)", "float[1,2,2,3] y, int64[1,2,2,3] z"),
    (7, "y = Dropout<ratio=0.3>(x)", "float[1,2,4,3] y"),
    (9, "s = Constant<value = int64[2] {2, 12}>() y = Reshape(x, s)", "float[2,12] y"),
]


@pytest.mark.parametrize(
    ("version", "body", "results"), OPERATORS, ids=[f"{v}-{b.split('= ')[-1][:12]}" for v, b, _ in OPERATORS]
)
def test_operators_that_changed(version: int, body: str, results: str) -> None:
    proto = parser.parse_model(
        f'<ir_version: 7, opset_import: ["": {version}]> g (float[1,2,4,3] x) => ({results}) {{ {body} }}'
    )
    assert_same(proto, {"x": np.random.default_rng(1).normal(size=(1, 2, 4, 3)).astype(np.float32)})


def test_bodies_of_if_and_loop() -> None:
    proto = parser.parse_model("""
        <ir_version: 7, opset_import: ["": 12]>
        g (float[2,3,4] x, bool c, int64 n) => (float[2,3,4] y, float[2,3,4] z) {
            y = If (c) <
                then_branch = t () => (float[2,3,4] p) { p = Softmax<axis=1>(x) },
                else_branch = e () => (float[2,3,4] q) { h = Softmax<axis=-1>(x) q = Clip(h) }
            >
            z = Loop (n, c, x) <
                body = b (int64 i, bool go, float[2,3,4] v) => (bool on, float[2,3,4] w) {
                    on = Identity(go)
                    u = Softmax<axis=0>(v)
                    a = ReduceSum<axes=[2], keepdims=1>(u)
                    w = Add(a, v)
                }
            >
        }""")
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
    for condition in (True, False):
        assert_same(proto, {"x": x, "c": np.array(condition), "n": np.array(2, np.int64)})


def test_functions_are_inlined_below_18_only() -> None:
    text = """
        <ir_version: 8, opset_import: ["": {version}, "local": 1]>
        g (float[2,3,4] x) => (float[2,3,4] y) {{ y = local.Attend(x) }}
        <domain: "local", opset_import: ["": {version}]> Attend (s) => (p) {{ p = Softmax<axis=1>(s) }}"""
    old = parser.parse_model(text.format(version=12))
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
    assert not assert_same(old, {"x": x}).functions

    model = as_model(parser.parse_model(text.format(version=18)))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    assert not RaiseOpset()(model).modified
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_initializers_that_are_inputs_survive_and_can_be_set() -> None:
    proto = parser.parse_model("""
        <ir_version: 3, opset_import: ["": 9]>
        g (float[2,3] x, float[3] w) => (float[2,3] y) { a = Add(x, w) y = Softmax(a) }""")
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0, 1, 2], np.float32), "w"))
    x = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)
    after = assert_same(proto, {"x": x})
    assert after.ir_version == 3
    other = np.array([3, 0, -1], np.float32)
    # onnxruntime never lets a caller set them below IR version 4; the specification does.
    result = ReferenceEvaluator(after).run(None, {"x": x, "w": other})
    assert isinstance(result, list)
    np.testing.assert_allclose(result[0], flattened("Softmax", x + other, 1), rtol=2e-6)


def test_notes_weights_and_other_domains_stay() -> None:
    proto = parser.parse_model("""
        <ir_version: 7, opset_import: ["": 12, "com.microsoft": 1]>
        g (float[2,300] x) => (float[2,300] y) { a = Add(x, w) b = com.microsoft.Gelu(a) y = Clip(b) }""")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(300, np.float32), "w"))
    helper.set_model_props(proto, {"who": "me"})
    model = as_model(proto)
    weights = model.graph.initializers["w"].const_value
    add = model.graph[0]
    add.meta["mark"] = 1
    RaiseOpset()(model)
    assert model.graph[0] is add
    assert model.graph.initializers["w"].const_value is weights
    assert model.metadata_props == {"who": "me"}
    assert dict(model.opset_imports) == {"": 18, "com.microsoft": 1}
    assert [node.op_type for node in model.graph][:2] == ["Add", "Gelu"]


def test_unknown_types_do_not_hinder_what_needs_none() -> None:
    proto = parser.parse_model("""
        <ir_version: 7, opset_import: ["": 12, "nobody": 1]>
        g (float[2,3] x) => (float[2,1] y) {
            a = nobody.Thing(x) b = Softmax<axis=-1>(a) y = ReduceSum<axes=[1]>(b)
        }""")
    model = as_model(proto)
    RaiseOpset()(model)
    assert [node.op_type for node in model.graph] == ["Thing", "Softmax", "Constant", "ReduceSum"]


@pytest.mark.parametrize(
    ("version", "body", "words"),
    [
        (12, "a = nobody.Thing(x) [soft] y = Softmax(a)", ["'soft'", "rank is not known", "axis 1"]),
        (11, "[soft] y = Softmax<axis=3>(x)", ["'soft'", "axis is 3", "-3 to 2"]),
        (9, "[gone] y = NoSuchThing(x)", ["'gone'", "no such operator"]),
        (12, "[early] y = HardSwish(x)", ["'early'", "no such operator"]),
        (11, "[strange] y = Softmax<axis=[1, 2]>(x)", ["'strange'", "not of type INT"]),
        (6, "[zero] y = Upsample<height_scale=2.0, width_scale=2.0>()", ["'zero'", "input size 0"]),
    ],
)
def test_refusals_name_the_node_and_leave_the_model(version: int, body: str, words: list[str]) -> None:
    proto = parser.parse_model(
        f'<ir_version: 7, opset_import: ["": {version}, "nobody": 1]> g (float[2,3,4] x) => (float y) '
        f"{{ c = Clip(x) {body} }}"
    )
    model = ir.from_proto(proto)  # softq.modelfile refuses some of these before any pass.
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    with pytest.raises((RefusalError, InputError)) as caught:
        RaiseOpset().call(model)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_scan_with_a_batch_axis_is_refused() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["b"])],
        "body",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["", "x"], ["y"], name="scan", body=body, num_scan_inputs=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 3])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)
    with pytest.raises(RefusalError, match="'scan'"):
        RaiseOpset().call(as_model(proto))


def test_models_at_18_and_above_are_not_touched() -> None:
    for version in (18, 21):
        proto = parser.parse_model(
            f'<ir_version: 8, opset_import: ["": {version}]> g (float[2,3] x) => (float[2,3] y) {{ y = Softmax(x) }}'
        )
        assert not RaiseOpset()(as_model(proto)).modified


def test_the_other_spelling_of_the_domain() -> None:
    proto = parser.parse_model(
        '<ir_version: 7, opset_import: ["ai.onnx": 12]> g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }'
    )
    after = raised(proto)
    assert [(entry.domain, entry.version) for entry in after.opset_import] == [("", 18)]


def test_is_listed() -> None:
    assert PASSES.get("raise-opset") is PASS
    assert isinstance(PASS.factory(), RaiseOpset)


def test_what_onnxruntime_writes_below_the_operator_sets_that_have_it() -> None:
    """LayerNormalization without a domain, Resize without the empty inputs, ranks behind its own operators."""
    before = parser.parse_model("""<ir_version: 7, opset_import: ["": 12, "com.microsoft": 1]>
        g (float[1, 2, 3, 4] x, float[4] w, float[4] b) => (float[1, 2, 6, 4] y)
        <float[4] scales = {1, 1, 2, 1}> {
            n = LayerNormalization <axis: int = -1, epsilon: float = 0.01> (x, w, b)
            m = com.microsoft.QuickGelu (n)
            t = Transpose <perm = [0, 1, 2, 3]> (m)
            s = Softmax <axis = 3> (t)
            y = Resize <mode = "nearest"> (s, , scales)
        }""")
    model = as_model(before)
    RaiseOpset()(model)
    after = ir.to_proto(model)
    assert after.opset_import[0].version == 18
    feed = {name: np.linspace(-1, 2, size).reshape(shape).astype(np.float32)
            for name, size, shape in (("x", 24, (1, 2, 3, 4)), ("w", 4, (4,)), ("b", 4, (4,)))}  # fmt: skip
    # onnxruntime writes the Resize and does not read it.
    before.graph.node.pop()
    before.graph.output[0].name = "s"
    before.graph.output[0].type.tensor_type.ClearField("shape")
    expected = np.repeat(outputs(before, feed)[0], 2, axis=2)
    np.testing.assert_allclose(outputs(after, feed)[0], expected, rtol=1e-6, atol=1e-7)
