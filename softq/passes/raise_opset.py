"""Raising a model's default operator set to 18, one node at a time.

`onnx.version_converter` converts the nodes, each as a model of its own: its inputs typed by shape inference, its small
constant inputs beside it. Given a whole model, the converter wants every weight in one message, drops metadata, rejects
bodies of If and Loop, and reports failures without a name. Node by node, everything that no operator set changed stays
the same object: weights, names, interface, metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx import checker, defs, numpy_helper, version_converter

from softq.errors import RefusalError, root_line
from softq.graph.constants import to_lone_proto
from softq.graph.edits import put_in_place
from softq.graph.facts import Facts
from softq.graph.inlining import InlineCalls
from softq.graph.queries import constant_tensor
from softq.graph.ranks import Dims
from softq.graph.rewriter import Names
from softq.graph.view import ModelView
from softq.modelfile import as_model
from softq.modelfile.structure import check_opened
from softq.modelfile.tensors import LARGE_BYTES, node_name
from softq.passes import PassEntry

TARGET = 18
"""The operator set that softq's rewrites are written for."""

_IR_VERSION = 8
"""IR version of the models that hold one node: that of the onnx release that brought operator set 18."""

_ONNXRUNTIMES = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""What onnxruntime writes without a domain whatever the operator set: the first means what it means from 17 on."""

_EMPTY = "empty"

_FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Operators that below 13 reduced all axes from `axis` on, not one."""


@dataclass(frozen=True)
class _Replacement:
    node: ir.Node
    outputs: Sequence[str]
    converted: onnx.GraphProto


class RaiseOpset(ir.passes.InPlacePass):
    """Raises the default-domain operator set of a model below 18 to 18; other models stay as they are.

    Outputs, interface and IR version stay the same. (Below IR version 4 an initializer is also an input, which
    onnxruntime takes for a constant; from 4 on it would take it for something that a caller may set.) Model-local
    functions of a model below 18 are inlined first, since they import the operator set of the model; in a model that is
    not raised they stay. A refusal leaves the model unchanged.

    Args:
        facts: What was asked of the model as it is, so that inference need not run again; None to ask anew.
    """

    def __init__(self, facts: Facts | None = None) -> None:
        self._facts = facts

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Raise the model in place.

        Raises:
            RefusalError: a node has no equal at operator set 18, or its meaning depends on a rank that is not known.
            InputError: opening functions would make more nodes than `softq.limits` allows.
        """
        # Importing "ai.onnx" and importing "" are the same thing; onnx-ir keeps whichever was written.
        version = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
        if version is None or version >= TARGET:
            return ir.passes.PassResult(model, modified=False)
        facts = self._facts
        if model.functions:
            facts = None
            check_opened(model, "the model")
            trial = as_model(model)
            _inline(trial)
            _plan(trial, version, Facts(ModelView(trial)))
            _inline(model)
        plan = _plan(model, version, facts or Facts(ModelView(model)))
        names = Names(model)
        for replacement in plan:
            _apply(replacement, names)
        model.opset_imports.pop("ai.onnx", None)
        model.opset_imports[""] = TARGET
        return ir.passes.PassResult(model, modified=True)


PASS = PassEntry("raise-opset", RaiseOpset, "Raise a model below operator set 18 to 18")


def _inline(model: ir.Model) -> None:
    try:
        InlineCalls()(model)
    except Exception as error:
        raise RefusalError(
            f"cannot raise the operator set: functions cannot be inlined: {root_line(error, 300)}"
        ) from error


def _plan(model: ir.Model, version: int, facts: Facts) -> list[_Replacement]:
    """Return what each node that changes is replaced by; the model stays as it is."""
    cache: dict[bytes, onnx.GraphProto] = {}
    plan: list[_Replacement] = []
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        try:
            replacement = _convert(node, facts, version, cache) if _changes(node, version) else None
        except Exception as error:
            # An attribute of the wrong kind, a constant of two values: the libraries have an error for each.
            what = f"node {node_name(node)!r} ({node.op_type}) from operator set {version} to {TARGET}"
            raise RefusalError(f"cannot raise {what}: {root_line(error, 300)}") from error
        if replacement is not None:
            plan.append(replacement)
    return plan


def _changes(node: ir.Node, version: int) -> bool:
    if node.domain != "":
        return False
    if not defs.has(node.op_type, max_inclusive_version=version):
        if node.op_type in _ONNXRUNTIMES:
            return False
        raise ValueError(f"no such operator in version {version}")
    old, new = (defs.get_schema(node.op_type, at, "") for at in (version, TARGET))
    if old.deprecated:
        raise ValueError(f"the operator is not part of version {version}")
    if old.since_version == new.since_version and not new.deprecated:
        return False
    if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
        # If, Loop and the later Scan only gained element types; their bodies' nodes are visited on their own.
        if node.op_type == "Scan" and version < 9:
            raise ValueError("Scan had a batch axis below 9, which nothing replaces")
        return False
    # The converter leaves a Constant as it is, and its value may be large.
    return node.op_type != "Constant"


def _convert(node: ir.Node, facts: Facts, version: int, cache: dict[bytes, onnx.GraphProto]) -> _Replacement | None:
    if node.op_type in _FLATTENING and version < 13:
        _check_axis(node, facts.shape(node.inputs[0] if node.inputs else None))
    inputs = _input_names(node)
    outputs = [f"o{k}" if value.name else "" for k, value in enumerate(node.outputs)]
    proto = to_lone_proto(node, ["" if value is None else inputs[value] for value in node.inputs], outputs)
    proto.name = "n"
    # The converter takes Hardmax for unchanged at 13, but its axis changed as that of Softmax did.
    disguised = node.op_type == "Hardmax" and version < 13
    if disguised:
        proto.op_type = "Softmax"
    model = onnx.ModelProto(ir_version=_IR_VERSION, opset_import=[onnx.OperatorSetIdProto(domain="", version=version)])
    model.graph.name = "node"
    if node.op_type == "Resize" and version < 13:
        # Below 13 what is not given is empty; onnxruntime leaves it out all the same.
        for place, name in enumerate(proto.input):
            if not name:
                proto.input[place] = _EMPTY
                model.graph.initializer.append(numpy_helper.from_array(np.empty(0, np.float32), _EMPTY))
    model.graph.node.append(proto)
    for value, name in inputs.items():
        tensor = constant_tensor(value)
        if tensor is not None and tensor.nbytes <= LARGE_BYTES and tensor.dtype != ir.DataType.STRING:
            # Some adapters read constants: sizes, scales, pads.
            model.graph.initializer.append(ir.serde.serialize_tensor(tensor))
            model.graph.initializer[-1].name = name
        else:
            model.graph.input.append(_to_value_info(name, value, facts))
    for value, name in zip(node.outputs, outputs, strict=True):
        if name:
            model.graph.output.append(_to_value_info(name, value, facts))
    key = model.SerializeToString(deterministic=True)
    if key not in cache:
        cache[key] = _run(model, version)
    if len(cache[key].node) == 1 and not disguised and _are_equal(cache[key].node[0], proto):
        return None
    return _Replacement(node, outputs, cache[key])


def _check_axis(node: ir.Node, shape: Dims | None) -> None:
    axis = node.attributes.get_int("axis", 1)
    if shape is None and axis != -1:
        raise ValueError(f"its axis {axis} spans all later axes, and the rank is not known")
    if shape is not None and not -len(shape) <= axis < len(shape):
        raise ValueError(f"its axis is {axis}; rank {len(shape)} allows {-len(shape)} to {len(shape) - 1}")


def _input_names(node: ir.Node) -> dict[ir.Value, str]:
    """Return the name of each different input in the small model of the node."""
    return {value: f"i{k}" for k, value in enumerate(dict.fromkeys(v for v in node.inputs if v is not None))}


def _to_value_info(name: str, value: ir.Value, facts: Facts) -> onnx.ValueInfoProto:
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return ir.serde.serialize_value(ir.Value(name=name, type=value.type, shape=value.shape))
    dtype = facts.dtype(value)
    if dtype is None:
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(name, dtype.value, facts.shape(value))


def _run(model: onnx.ModelProto, version: int) -> onnx.GraphProto:
    # The converter trusts counts of inputs and outputs, and ends the process where they are wrong.
    context = checker.C.CheckerContext()
    context.ir_version = _IR_VERSION
    context.opset_imports = {"": version}
    checker.check_node(model.graph.node[0], context)
    return version_converter.convert_version(model, TARGET).graph


def _are_equal(a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
    def key(node: onnx.NodeProto) -> tuple[object, ...]:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        inputs = list(node.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        return node.op_type, inputs, list(node.output), attributes

    return key(a) == key(b)


def _apply(replacement: _Replacement, names: Names) -> None:
    old = replacement.node
    stem = f"{next(o.name for o in old.outputs if o.name)}_opset{TARGET}"
    # Of the node as it is now: an input may come from a neighbour that was replaced since the plan was made.
    values = {name: value for value, name in _input_names(old).items()}
    nodes: list[ir.Node] = []
    for tensor in replacement.converted.initializer:
        if tensor.name not in values:
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.from_proto(tensor))])
            constant.outputs[0].name = names.numbered(stem)
            values[tensor.name] = constant.outputs[0]
            nodes.append(constant)
    for proto in replacement.converted.node:
        inputs = [values[name] if name else None for name in proto.input]
        attributes = [ir.from_proto(attribute) for attribute in proto.attribute]
        operator = old.op_type if proto.op_type in _FLATTENING else proto.op_type
        node = ir.Node("", operator, inputs, attributes, num_outputs=len(proto.output))
        for name, value in zip(proto.output, node.outputs, strict=True):
            value.name = names.numbered(stem) if name and name not in replacement.outputs else ""
            values[name] = value
        nodes.append(node)
    # The one that does the old node's work has its name.
    heir = next((node for node in nodes if node.op_type == old.op_type), nodes[-1])
    for node in nodes:
        if node is not heir:
            node.name = f"{node_name(old)}/{node.op_type}"
    kept = [value for value, name in zip(old.outputs, replacement.outputs, strict=True) if name]
    put_in_place(old, nodes, heir, kept, [values[name] for name in replacement.outputs if name])
