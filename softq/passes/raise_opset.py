"""Raising a model's default operator set, one node at a time: to 18, or to what is asked for.

`onnx.version_converter` converts the nodes, each as a model of its own: its inputs typed by shape inference, its small
constant inputs beside it. Given a whole model, the converter wants every weight in one message, drops metadata, rejects
bodies of If and Loop, and reports failures without a name. Node by node, everything that no operator set changed stays
the same object: weights, names, interface, metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx import defs

from softq.errors import InputError, RefusalError, root_line
from softq.graph.edits import put_in_place
from softq.graph.facts import Facts
from softq.graph.inlining import InlineCalls
from softq.graph.rewriter import Names
from softq.graph.version_conversion import convert_graphs
from softq.graph.view import ModelView
from softq.limits import current
from softq.modelfile import as_model
from softq.modelfile.structure import check_opened
from softq.modelfile.tensors import node_name
from softq.passes import PassEntry
from softq.passes.rewriting.lone_nodes import FLATTENING, Key, LoneNodes, input_names, output_names

TARGET = 18
"""The operator set that softq's rewrites are written for, and to which a model is raised if no other is named."""

_ONNXRUNTIMES = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""What onnxruntime writes without a domain whatever the operator set: the first means what it means from 17 on."""


@dataclass(frozen=True)
class _Replacement:
    node: ir.Node
    outputs: Sequence[str]
    converted: onnx.GraphProto


class RaiseOpset(ir.passes.InPlacePass):
    """Raises the default-domain operator set of a model below the target to it; other models stay as they are.

    Outputs, interface and IR version stay the same. (Below IR version 4 an initializer is also an input, which
    onnxruntime takes for a constant; from 4 on it would take it for something that a caller may set.) Model-local
    functions of a model below it are inlined first, since they import the operator set of the model; in a model that is
    not raised they stay. A refusal leaves the model unchanged.

    Args:
        facts: What was asked of the model as it is, so that inference need not run again; None to ask anew.
        target: The operator set.
    """

    def __init__(self, facts: Facts | None = None, target: int = TARGET) -> None:
        self._facts, self._target = facts, target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Raise the model in place.

        Raises:
            RefusalError: a node has no equal at the target, or its meaning depends on a rank that is not known.
            InputError: opening functions or replacing operators would make more nodes than `softq.limits` allows.
        """
        # Importing "ai.onnx" and importing "" are the same thing; onnx-ir keeps whichever was written.
        version = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
        if version is None or version >= self._target:
            return ir.passes.PassResult(model, modified=False)
        facts, known = self._facts, dict[Key, onnx.GraphProto]()
        if model.functions:
            check_opened(model, "the model")
            trial = as_model(model)
            _inline(trial)
            facts = Facts(ModelView(trial))
            _check_size(_plan(trial, (version, self._target), facts, known), self._target)
            _inline(model)
            facts = facts.ask_again(model)
        plan = _plan(model, (version, self._target), facts or Facts(ModelView(model)), known)
        _check_size(plan, self._target)
        names = Names(model)
        for replacement in plan:
            _apply(replacement, names, self._target)
        model.opset_imports.pop("ai.onnx", None)
        model.opset_imports[""] = self._target
        return ir.passes.PassResult(model, modified=True)


PASS = PassEntry("raise-opset", RaiseOpset, "Raise a model below operator set 18 to 18")


def _inline(model: ir.Model) -> None:
    try:
        InlineCalls()(model)
    except Exception as error:
        raise RefusalError(
            f"cannot raise the operator set: functions cannot be inlined: {root_line(error, 300)}"
        ) from error


def _plan(
    model: ir.Model, versions: tuple[int, int], facts: Facts, known: dict[Key, onnx.GraphProto]
) -> list[_Replacement]:
    """Return what each node that changes is replaced by; the model stays as it is.

    Args:
        model: The model.
        versions: Its operator set, and the target.
        facts: Of the model.
        known: What the converter has made of nodes so far; what it makes of this model's is added.
    """
    version, target = versions
    questions, changed = LoneNodes(facts, version), _Changes(version, target)
    asked: list[tuple[ir.Node, Key]] = []
    new: dict[Key, tuple[ir.Node, onnx.GraphProto]] = {}
    refused: tuple[ir.Node, Exception] | None = None
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        try:
            if not changed(node):
                continue
            key = questions.key(node)
            if key not in known and key not in new:
                new[key] = node, questions.graph(node, key)
        except Exception as error:
            refused = node, error
            break
        asked.append((node, key))
    answers = convert_graphs([graph for _, graph in new.values()], version, target)
    for key, (node, graph) in new.items():
        try:
            known[key] = _only_changes(node, graph.node[0], next(answers))
        except Exception as error:
            refused = node, error
            break
    if refused is not None:
        # An attribute of the wrong kind, a constant of two values: the libraries have an error for each.
        node, error = refused
        what = f"node {node_name(node)!r} ({node.op_type}) from operator set {version} to {target}"
        raise RefusalError(f"cannot raise {what}: {root_line(error, 300)}") from error
    return [_Replacement(node, output_names(node), known[key]) for node, key in asked if known[key].node]


class _Changes:
    """Whether a node may be another one at the target.

    Args:
        version: The operator set of the model.
        target: The other one.
    """

    def __init__(self, version: int, target: int) -> None:
        self._version, self._target = version, target
        self._known: dict[str, bool] = {}

    def __call__(self, node: ir.Node) -> bool:
        """Answer for a node.

        Raises:
            ValueError: its operator is none of the model's operator set.
        """
        if node.domain != "":
            return False
        if node.op_type not in self._known:
            self._known[node.op_type] = self._ask(node.op_type)
        if not self._known[node.op_type]:
            return False
        if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
            # If, Loop and the later Scan only gained element types; their bodies' nodes are visited on their own.
            if node.op_type == "Scan" and self._version < 9:
                raise ValueError("Scan had a batch axis below 9, which nothing replaces")
            return False
        # The converter leaves a Constant as it is, and its value may be large.
        return node.op_type != "Constant"

    def _ask(self, operator: str) -> bool:
        if not defs.has(operator, max_inclusive_version=self._version):
            if operator in _ONNXRUNTIMES:
                return False
            raise ValueError(f"no such operator in version {self._version}")
        old, new = (defs.get_schema(operator, at, "") for at in (self._version, self._target))
        if old.deprecated:
            raise ValueError(f"the operator is not part of version {self._version}")
        return old.since_version != new.since_version or new.deprecated


def _check_size(plan: Sequence[_Replacement], target: int) -> None:
    """Refuse more new nodes than the limit; those that stay as they are take next to no time."""
    nodes = sum(len(one.converted.node) + len(one.converted.initializer) for one in plan)
    if nodes > (most := current().opened):
        raise InputError(
            f"the model is below operator set {target}, and the operators that changed since would be replaced by "
            f"{nodes} nodes; the limit is {most} (--limit-opened changes it)"
        )


def _only_changes(node: ir.Node, proto: onnx.NodeProto, converted: onnx.GraphProto) -> onnx.GraphProto:
    """Return what the converter made of a node; nothing where that is the node itself."""
    same = len(converted.node) == 1 and proto.op_type == node.op_type and _are_equal(converted.node[0], proto)
    return onnx.GraphProto() if same else converted


def _are_equal(a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
    def key(node: onnx.NodeProto) -> tuple[object, ...]:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        inputs = list(node.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        return node.op_type, inputs, list(node.output), attributes

    return a == b or key(a) == key(b)


def _apply(replacement: _Replacement, names: Names, target: int) -> None:
    old = replacement.node
    stem = f"{next(o.name for o in old.outputs if o.name)}_opset{target}"
    # Of the node as it is now: an input may come from a neighbour that was replaced since the plan was made.
    values = {name: value for value, name in input_names(old).items()}
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
        if proto.op_type == "Reshape" and old.op_type in FLATTENING:
            attributes.append(ir.AttrInt64("allowzero", 1))  # The shape is that of the input, which may be empty.
        operator = old.op_type if proto.op_type in FLATTENING else proto.op_type
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
