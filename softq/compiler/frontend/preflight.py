"""What cannot be built, said before anything is imported: all reasons at once, each with its first position."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

import onnx
import onnx_ir as ir

from softq.compiler.frontend.converters import converters, full_name, refused
from softq.compiler.frontend.model_interface import check_input, check_output
from softq.compiler.frontend.shape_folding import FOLDERS
from softq.errors import RefusalError
from softq.graph.queries import is_op, node_label, operand, subgraphs

WAY_OUT = "export the model without them, or cut them off (onnx.utils.extract_model)"


def check_supported(model: ir.Model, functions: Collection[tuple[str, str]], known: Collection[str]) -> None:
    """Refuse a prepared model with operators, inputs or outputs that a built model cannot have, naming all of them.

    Bodies count, but for those of an If that sizes may decide: what is never taken is never built.

    Args:
        model: The model.
        functions: Domain and name of softq's functions in it.
        known: Operators of the default domain that TVM imports.

    Raises:
        RefusalError: there are such operators, inputs or outputs.
    """
    refused = missing_operators(_nodes(model.graph), functions, known)
    reasons = [refused] if refused else []
    inputs = (value for value in model.graph.inputs if value.name not in model.graph.initializers)
    reasons += [reason for value in inputs for reason in _reason(check_input, value)]
    reasons += [reason for value in model.graph.outputs for reason in _reason(check_output, value)]
    if reasons:
        raise RefusalError(f"{'; '.join(reasons)}; {WAY_OUT}")


def missing_operators(
    nodes: Iterator[tuple[str, str, str]], functions: Collection[tuple[str, str]], known: Collection[str]
) -> str:
    """Return what says of which operators among domain, name and first result there is no form, or ''."""
    missing, reasons = dict[str, str](), dict[str, str]()
    for domain, operator, position in nodes:
        standard = domain in ("", "ai.onnx")
        if standard and operator in refused():
            reasons.setdefault(operator, f"{operator} {position!r} {refused()[operator]}")
            continue
        name = full_name(domain, operator)
        here = name in converters() or (standard and (operator in known or operator in FOLDERS))
        tensors = not re.search("(?<!Reverse)Sequence|Optional", operator)
        if (domain, operator) not in functions and not (here and tensors):
            missing.setdefault(name, position)
    names = ", ".join(f"{operator} (first at {position!r})" for operator, position in missing.items())
    return "; ".join([f"TVM has no operator for: {names}"] * bool(names) + list(reasons.values()))


def _nodes(graph: ir.Graph) -> Iterator[tuple[str, str, str]]:
    for node in graph:
        name = next((value.name for value in node.outputs if value.name), None) or node_label(node)
        yield node.domain, node.op_type, name
        if not is_op(node, "If") or _depends_on_data(operand(node, 0), set()):
            for _, body in subgraphs(node):
                yield from _nodes(body)


def _depends_on_data(value: ir.Value | None, seen: set[ir.Value]) -> bool:
    """Say whether elements of an input decide a value, not its shape alone."""
    if value is None or value in seen or value.const_value is not None:
        return False
    seen.add(value)
    node = value.producer()
    if node is None:
        return True
    return not is_op(node, "Shape", "Size") and any(_depends_on_data(x, seen) for x in node.inputs)


def _reason(check: Callable[[onnx.ValueInfoProto], object], value: ir.Value) -> list[str]:
    try:
        check(ir.serde.serialize_value(value))
    except RefusalError as error:
        return [str(error)]
    return []
