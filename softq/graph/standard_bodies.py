"""The bodies by which ONNX defines an operator in other operators, bound to one node.

They are those of `onnx.defs`, so that they mean what the standard means. Where a body is written for an older operator
set than the model's, `onnx.version_converter` raises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import onnx
import onnx_ir as ir
from onnx import defs, version_converter


class _Bodies(Protocol):
    """The part of `defs.OpSchema` that onnx's own stubs leave out."""

    has_context_dependent_function: bool
    context_dependent_function_opset_versions: list[int]
    function_opset_versions: list[int]

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: list[bytes], /
    ) -> bytes: ...

    def get_function_with_opset_version(self, version: int, /) -> bytes: ...


def find_standard_body(node: ir.Node, opset: int, types: Sequence[onnx.TypeProto]) -> onnx.FunctionProto | None:
    """Return what a node of the default domain is short for, or None where ONNX does not say.

    Args:
        node: The node; its attributes may not refer to those of a function.
        opset: Version of the default domain; the body imports it.
        types: Element type and rank of each input (`type_of`); an empty one for an absent input.
    """
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except defs.SchemaError:
        return None
    bodies = cast("_Bodies", schema)
    proto = _add_defaults(node, schema)
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
                return _raise(body, proto, types, version, opset)
            # It may say an older version, from which on its operators are the same.
            del body.opset_import[:]
            body.opset_import.append(onnx.OperatorSetIdProto(domain="", version=opset))
            return body
    return None


def to_type_proto(dtype: ir.DataType, shape: ir.Shape) -> onnx.TypeProto:
    """Return a type and a shape as `find_standard_body` wants them."""
    return ir.to_proto(ir.Value(name="x", type=ir.TensorType(dtype), shape=shape)).type


def _add_defaults(node: ir.Node, schema: defs.OpSchema) -> onnx.NodeProto:
    """Return the node with every default written out, and no outputs but those that somebody reads."""
    proto = ir.to_proto(node)
    proto.ClearField("metadata_props")
    present = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            proto.attribute.append(attribute.default_value)
    return proto


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


def _raise(
    body: onnx.FunctionProto, call: onnx.NodeProto, types: Sequence[onnx.TypeProto], version: int, opset: int
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
