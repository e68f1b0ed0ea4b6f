"""The inputs, attributes and outputs that softq handles of each operator that it opens; a node with others is refused.

A new release of ONNX or onnxruntime may give an operator an input or an attribute that changes its result.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx_ir as ir
from onnx import defs

from softq.graph.queries import node_label, operator_label


@dataclass(frozen=True)
class Signature:
    """The parts of an operator that are handled; the texts are those of `signatures.toml`."""

    inputs: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    outputs: int = 1
    types: str = ""

    def unsupported(self, node: ir.Node) -> Iterator[str]:
        """Yield each part of a node that is not handled, by its name."""
        supported = {name: values for name, _, values in (text.partition("=") for text in self.attributes)}
        for name, attribute in node.attributes.items():
            if name not in supported:
                yield f"the unknown attribute {name}"
                continue
            values, barred = supported[name].removeprefix("!"), supported[name].startswith("!")
            if values and (str(attribute.value) in values.split(",")) == barred:
                yield f"{name} = {attribute.value}"
        for place, value in enumerate(node.inputs):
            known = self.inputs[place] if place < len(self.inputs) else self.inputs[-1] if self.inputs else ""
            if value is not None and place >= len(self.inputs) and not known.endswith("*"):
                yield f"the unknown input {value.name}"
            elif value is not None and known.startswith("-"):
                yield known[1:]
        yield from (f"the unknown output {value.name}" for value in node.outputs[self.outputs :] if value.name)


@cache
def _read_table() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def find_signature(domain: str, operator: str, opset: int) -> Signature | None:
    """Return the parts of an operator that are handled: those of `signatures.toml`, or all of ONNX; None of others.

    An operator that is younger than the operator set, as onnxruntime writes some, is the one of the newest set.
    """
    standard = domain in ("", "ai.onnx")
    row = _read_table().get("" if standard else domain, {}).get(operator)
    if row is not None:
        inputs, attributes = (tuple(row.get(part, "").split()) for part in ("inputs", "attributes"))
        return Signature(inputs, attributes, int(row.get("outputs", 1)), row.get("types", ""))
    for version in (opset, defs.onnx_opset_version()) if standard else ():
        with contextlib.suppress(defs.SchemaError):
            schema = defs.get_schema(operator, version, "")
            variadic = defs.OpSchema.FormalParameterOption.Variadic
            names = (part.name + "*" * (part.option == variadic) for part in schema.inputs)
            return Signature(tuple(names), tuple(schema.attributes), schema.max_output)
    return None


def refuse_unsupported(node: ir.Node, opset: int) -> str:
    """Return why a node cannot be opened for its inputs, attributes and outputs; empty if it can, or is not known."""
    signature = find_signature(node.domain, node.op_type, opset)
    parts = [] if signature is None else list(signature.unsupported(node))
    return f"not yet: node {node_label(node)} is a {operator_label(node)} with {', '.join(parts)}" if parts else ""
