"""Open operators that ONNX itself defines by a function, for consumers that lack them.

The bodies are those of `onnx.defs`, so that they mean what the standard means. Where a body is written for an older
operator set than the model's, `onnx.version_converter` raises it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol, cast

import onnx
import onnx_ir as ir
from onnx import defs, version_converter

from softq.passes import PassEntry
from softq.passes._bodies import open_nodes

OPENED = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "Celu",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "NegativeLogLikelihoodLoss",
        "RMSNormalization",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)
"""Operators with a deterministic body that TVM's importer lacks, or takes for another operator of the same name."""


class ExpandOperators(ir.passes.InPlacePass):
    """Opens the named operators of the default domain; those whose input types or ranks are not known stay.

    Args:
        operators: Names of operators that have a function body in `onnx.defs`.
    """

    def __init__(self, operators: Set[str] = OPENED) -> None:
        """See the class."""
        super().__init__()
        self.operators = operators

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open them; bodies may hold operators that are opened in turn."""
        modified = False
        while open_nodes(model, self._body):
            modified = True
        return ir.passes.PassResult(model, modified)

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        if node.domain != "" or node.op_type not in self.operators:
            return None
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return None
        if any(value is not None and (value.type is None or value.shape is None) for value in node.inputs):
            return None
        try:
            schema = defs.get_schema(node.op_type, opset, "")
        except defs.SchemaError:
            return None
        return _standard_body(node, schema, opset)


class _Bodies(Protocol):
    """The part of `defs.OpSchema` that onnx's own stubs leave out."""

    has_context_dependent_function: bool
    context_dependent_function_opset_versions: list[int]
    function_opset_versions: list[int]

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: list[bytes], /
    ) -> bytes: ...

    def get_function_with_opset_version(self, version: int, /) -> bytes: ...


def _standard_body(node: ir.Node, schema: defs.OpSchema, opset: int) -> onnx.FunctionProto | None:
    bodies = cast("_Bodies", schema)
    proto = _complete(node, schema)
    types = [onnx.TypeProto() if value is None else ir.to_proto(_typed(value)).type for value in node.inputs]
    serialized = [kind.SerializeToString() for kind in types]
    dependent = bodies.has_context_dependent_function
    versions = bodies.context_dependent_function_opset_versions if dependent else bodies.function_opset_versions
    # Asked for a version at which an operator of the body has changed, onnx returns nothing.
    for version in (opset, *sorted((v for v in versions if v < opset), reverse=True)):
        if dependent:
            text = bodies.get_context_dependent_function_with_opset_version(
                version, proto.SerializeToString(), serialized
            )
        else:
            text = bodies.get_function_with_opset_version(version)
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        if body.node:
            _bind(body, proto)
            if version < opset:
                return _raised(body, proto, types, version, opset)
            # It may say an older version, from which on its operators are the same.
            del body.opset_import[:]
            body.opset_import.append(onnx.OperatorSetIdProto(domain="", version=opset))
            return body
    return None


def _complete(node: ir.Node, schema: defs.OpSchema) -> onnx.NodeProto:
    """Return the node with every default written out, and no outputs but those that somebody reads."""
    proto = ir.to_proto(node)
    proto.ClearField("metadata_props")
    present = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            proto.attribute.append(attribute.default_value)
    return proto


def _typed(value: ir.Value) -> ir.Value:
    return ir.Value(name="x", type=value.type, shape=value.shape)


def _bind(body: onnx.FunctionProto, call: onnx.NodeProto) -> None:
    """Put the call's attributes where the body refers to them."""
    values = {attribute.name: attribute for attribute in call.attribute}
    for node in body.node:
        for attribute in list(node.attribute):
            if attribute.ref_attr_name:
                value = values.get(attribute.ref_attr_name)
                name = attribute.name
                node.attribute.remove(attribute)
                if value is not None:
                    node.attribute.add().CopyFrom(value)
                    node.attribute[-1].name = name
    del body.attribute[:], body.attribute_proto[:]


def _raised(
    body: onnx.FunctionProto, call: onnx.NodeProto, types: list[onnx.TypeProto], version: int, opset: int
) -> onnx.FunctionProto | None:
    graph = onnx.GraphProto(name="body", node=body.node)
    for name, given, kind in zip(body.input, call.input, types, strict=False):
        if given:
            graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name, _ in zip(body.output, call.output, strict=False))
    imports = [onnx.OperatorSetIdProto(domain="", version=version)]
    try:
        model = version_converter.convert_version(
            onnx.ModelProto(ir_version=10, opset_import=imports, graph=graph), opset
        )
    except RuntimeError:
        return None
    raised = onnx.FunctionProto(input=body.input, output=body.output, node=model.graph.node)
    raised.opset_import.append(onnx.OperatorSetIdProto(domain="", version=opset))
    return raised


PASS = PassEntry("expand-operators", ExpandOperators, "open operators that ONNX defines by other operators")
