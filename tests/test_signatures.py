"""Operators with an input or an attribute more than softq knows: right, or refused by the name of that part.

Each attribute and each optional input that the newest installed onnxruntime or onnx defines is added in turn to a node
of each operator, and one attribute and one input that nobody defines. Where onnxruntime runs the node it is the
reference; where it does not, the part must not end in anything but a refusal of softq.
Tolerance: 1e-4, that of random graphs; integers that were rounded may be one off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as ort_state
import pytest
from onnx import helper

import softq
from softq.errors import InputError, RefusalError
from softq.graph.facts import Facts
from softq.graph.signatures import find_signature
from softq.graph.view import ModelView
from softq.passes import PASSES
from tests.built import Array
from tests.random_graph import Draw, Graph, finish
from tests.random_operators import OPERATORS

pytest.importorskip("tvm")

from softq.compiler.frontend.importer import known_operators
from softq.compiler.frontend.preflight import check_read, check_supported
from softq.passes.prepare import prepare

OPSET = 26
"""The newest operator set of which onnxruntime runs models."""
OWN = "com.microsoft"
WORDS = ("SAME_UPPER", "VALID", "reverse", "tanh", "Relu", "INT8")
VALUES: dict[int, list[Any]] = {
    onnx.AttributeProto.INT: [0, 1, 2, -1],
    onnx.AttributeProto.FLOAT: [0.5],
    onnx.AttributeProto.STRING: list(WORDS),
    onnx.AttributeProto.INTS: [[0], [1], [1, 1], [2, 2]],
    onnx.AttributeProto.FLOATS: [[0.5]],
}
CRASHES = {("EmbedLayerNormalization", "position_ids")}
"""onnxruntime ends the process where such an input has another shape than it wants."""
Feeds = Mapping[str, Array]


@cache
def schemas() -> Mapping[tuple[str, str], Any]:
    """Return the newest schema of each operator of onnxruntime, which registers those of ONNX too."""
    found: dict[tuple[str, str], Any] = {}
    for schema in ort_state.get_all_operator_schema():
        key = (schema.domain, schema.name)
        if key not in found or found[key].since_version < schema.since_version <= OPSET:
            found[key] = schema
    return found


def draw_one(name: str, draw: Draw) -> tuple[onnx.ModelProto, dict[str, Array], onnx.NodeProto]:
    """Return a model of one node of an operator, with it."""
    for seed in range(20):
        g = Graph(Random(seed), OPSET)
        draw(g)
        drawn = finish(g, False)
        node = next((n for n in drawn.model.graph.node if n.op_type == name.rpartition("::")[2]), None)
        if node is not None:
            return drawn.model, dict(drawn.feeds), node
    raise AssertionError(name)


def vary(name: str, draw: Draw) -> Iterator[tuple[str, str, onnx.ModelProto, Feeds]]:
    """Yield models of one operator with one part more: the part, what was added, the model, and its inputs."""
    base, feeds, node = draw_one(name, draw)
    schema = schemas()[node.domain, node.op_type]
    attributes: dict[str, Any] = {"never_heard_of": onnx.AttributeProto.INT}
    attributes |= {key: int(attribute.type.value) for key, attribute in schema.attributes.items()}
    names = [*(part.name for part in schema.inputs), "never_heard_of"]
    present = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    for attribute, kind in attributes.items():
        for value in VALUES.get(kind, []):
            if present.get(attribute) not in (value, str(value).encode()):
                model, changed = copy(base, node)
                kept = [a for a in changed.attribute if a.name != attribute]
                del changed.attribute[:]
                changed.attribute.extend([*kept, helper.make_attribute(attribute, value)])
                yield attribute, f"{attribute}={value}", model, feeds
    first = feeds.get(node.input[0], np.zeros((1,), np.float32)) if node.input else np.zeros((1,), np.float32)
    data = np.random.default_rng(0)
    more = [
        data.random(first.shape, np.float32), data.random(first.shape[-1:], np.float32),
        np.ones(1, np.int32), np.ones(first.shape[:1], np.int32), np.ones(first.shape[:2], np.int32),
    ]  # fmt: skip
    absent = [place for place in range(len(names)) if place >= len(node.input) or not node.input[place]]
    for place in [place for place in absent if (node.op_type, names[place]) not in CRASHES]:
        for array in more:
            model, changed = copy(base, node)
            changed.input.extend([""] * (place + 1 - len(changed.input)))
            changed.input[place] = "more"
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            model.graph.input.append(helper.make_tensor_value_info("more", kind, array.shape))
            yield names[place], f"{names[place]}: {array.dtype}{list(array.shape)}", model, {**feeds, "more": array}


def copy(base: onnx.ModelProto, node: onnx.NodeProto) -> tuple[onnx.ModelProto, onnx.NodeProto]:
    model = onnx.ModelProto()
    model.CopyFrom(base)
    return model, next(n for n in model.graph.node if n.output == node.output)


def run(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def by_passes(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """Return the results of the model that build would import, run by onnxruntime."""
    check_read(ir.from_proto(model), known_operators())
    prepared = prepare(ir.from_proto(model))
    check_supported(prepared, (), known_operators())
    return run(ir.to_proto(prepared), feeds)


def by_conversion(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    return run(softq.convert(model, method="exact", all_sites=True, require=True).model, feeds)


def judge(name: str, way: Callable[[onnx.ModelProto, Feeds], list[Array]]) -> tuple[set[str], list[str]]:
    """Return the parts that are refused by name, and every variant that is neither right nor refused."""
    refused, wrong = set[str](), list[str]()
    for part, label, model, feeds in vary(name, OPERATORS[name]):
        try:
            want = run(model, feeds)
        except Exception:
            want = None
        try:
            got = way(model, feeds)
        except RefusalError as error:
            if part in str(error) or str(error).endswith("the unknown input more"):
                refused.add(part)
            elif want is not None:
                wrong.append(f"{label} is not named: {error}")
        except InputError as error:
            if "inputs; at most" not in str(error):
                wrong.append(f"{label}: {error}")
        except Exception as error:
            # What onnxruntime does not run has no meaning; then it does not run the opened node either.
            if want is not None or not type(error).__module__.startswith("onnxruntime"):
                wrong.append(f"{label}: {type(error).__name__}: {error}")
        else:
            if want is not None and not all(map(is_close, got, want)):
                wrong.append(f"{label}: another result")
    return refused, wrong


def is_close(got: Array, want: Array) -> bool:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return False
    if want.dtype.kind in "iu":
        return bool(np.abs(got.astype(np.int64) - want).max(initial=0) <= 1)
    if want.dtype.kind != "f":
        return bool((got == want).all())
    return bool(np.allclose(np.float64(got), np.float64(want), rtol=1e-4, atol=1e-4, equal_nan=True))


OPENED = [name for name in OPERATORS if "::" in name or name == "SimplifiedLayerNormalization"]
HOLDERS = (
    *(f"{OWN}::{name}" for name in ("Attention", "GroupQueryAttention", "MultiHeadAttention")),
    *("Attention", "LogSoftmax", "Softmax"),
)


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize("name", OPENED)
def test_each_part_of_an_opened_operator_is_right_or_refused_by_name(name: str) -> None:
    refused, wrong = judge(name, by_passes)
    assert not wrong
    assert "never_heard_of" in refused


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", HOLDERS)
def test_each_part_of_an_operator_with_a_softmax_is_right_or_refused_by_name(name: str) -> None:
    refused, wrong = judge(name, by_conversion)
    assert not wrong
    assert "never_heard_of" in refused


def test_what_is_known_of_operators_is_what_the_newest_onnxruntime_defines() -> None:
    """A later onnxruntime with a part more fails here: then somebody looks at what it does."""
    opened = {key for entry in PASSES.entries().values() for key in entry.opens}
    for domain, name in sorted(opened | {(OWN, "BiasSoftmax"), (OWN, "QuantizeLinear"), (OWN, "DequantizeLinear")}):
        signature, schema = find_signature(domain, name, 28), schemas().get((domain, name))
        assert signature is not None, name
        if schema is None or not (domain or name.startswith("Simplified")):
            continue
        assert {text.partition("=")[0] for text in signature.attributes} >= set(schema.attributes), name
        inputs = [text.strip("-*") for text in signature.inputs]
        if name not in ("Gelu", "Conv", "FusedConv", "QLinearMul"):
            assert inputs == [part.name for part in schema.inputs], name
        assert signature.outputs <= len(schema.outputs), name


def test_an_invented_attribute_of_a_standard_operator_is_refused() -> None:
    for name in ("Relu", "MatMul", "LayerNormalization", "QLinearMatMul"):
        model, _, node = draw_one(name, OPERATORS[name])
        node.attribute.append(helper.make_attribute("temperature", 2.0))
        with pytest.raises(RefusalError, match=f"is a {name} with the unknown attribute temperature"):
            check_read(ir.from_proto(model), known_operators())


def find_type(model: onnx.ModelProto, name: str) -> tuple[object, object]:
    """Return the type and the shape of a result of a node as inspect knows them."""
    model.graph.node.append(helper.make_node("Identity", [name], ["copied"]))
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="copied"))
    proto = ir.from_proto(model)
    facts = Facts(ModelView(proto))
    value = next(value for inner in proto.graph for value in inner.outputs if value.name == name)
    dtype = facts.dtype(value)
    return None if dtype is None else dtype.numpy(), facts.shape(value)


@pytest.mark.parametrize("name", OPENED)
def test_inspect_knows_the_types_of_what_build_opens(name: str) -> None:
    model, feeds, node = draw_one(name, OPERATORS[name])
    result = run(model, feeds)[[value.name for value in model.graph.output].index(node.output[0])]
    assert find_type(model, node.output[0]) == (result.dtype, result.shape)


@pytest.mark.parametrize(
    ("node", "inputs", "shape"),
    [
        ("QLinearReduceMean <axes = [1], keepdims = 0> (x, s, z, s, z)", "uint8[2, 3, 4] x, float s, uint8 z", (2, 4)),
        (
            'DynamicQuantizeLSTM <hidden_size = 4, direction = "bidirectional"> (x, w, r, , , , , , s, z, s, z)',
            "float[5, 2, 3] x, int8[2, 3, 16] w, int8[2, 4, 16] r, float[2] s, int8[2] z",
            (5, 2, 2, 4),
        ),
        ("NhwcMaxPool <kernel_shape = [2, 2]> (x)", "int8[1, 5, 6, 3] x", (1, 4, 5, 3)),
        ("QLinearAveragePool <kernel_shape = [2, 2], channels_last = 1> (x, s, z, s, z)",
         "uint8[1, 5, 6, 3] x, float s, uint8 z", (1, 4, 5, 3)),
        ("QGemm <transB = 1> (x, s, z, w, s, z, , s, z)", "uint8[2, 3] x, float s, uint8 z, uint8[4, 3] w", (2, 4)),
        ("QuantizeLinear (x, s)", "float[a, 3] x, float s", ("a", 3)),
    ],
)  # fmt: skip
def test_inspect_knows_types_that_are_not_drawn(node: str, inputs: str, shape: tuple[int | str, ...]) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18, "{OWN}": 1]> g ({inputs}) => (float y) {{ y = {OWN}.{node} }}'
    )
    dtype, found = find_type(model, "y")
    assert found == shape
    assert isinstance(dtype, np.dtype)
    assert (dtype.kind == "f") == ("LSTM" in node)
