"""What cannot be built, said before anything is imported: all reasons at once, each with its first position."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir
from onnx import defs

from softq.compiler.frontend.converters import converters, full_name, refused
from softq.compiler.frontend.model_interface import check_input, check_output
from softq.compiler.frontend.shape_folding import FOLDERS
from softq.errors import RefusalError
from softq.graph.constants import is_pure
from softq.graph.queries import is_op, node_label, operand, subgraphs
from softq.graph.signatures import refuse_unsupported
from softq.graph.view import default_opset
from softq.passes import PASSES
from softq.passes.raise_opset import TARGET

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
    nodes = list(_nodes(model.graph))
    missing = missing_operators(map(_identify, nodes), functions, known)
    check_interface(model, [missing, *_unsupported_parts(nodes, default_opset(model.opset_imports, TARGET))])


def check_interface(model: ir.Model, refused: Iterable[str]) -> None:
    """Refuse a model for its inputs, its outputs as far as their types are known, and reasons that are known already.

    Raises:
        RefusalError: there is a reason.
    """
    reasons = [reason for reason in refused if reason]
    inputs = (value for value in model.graph.inputs if value.name not in model.graph.initializers)
    reasons += [reason for value in inputs for reason in _reason(check_input, value)]
    reasons += [reason for value in model.graph.outputs if value.type for reason in _reason(check_output, value)]
    if reasons:
        raise RefusalError(f"{'; '.join(reasons)}; {WAY_OUT}")


def check_read(model: ir.Model, known: Collection[str]) -> None:
    """Refuse a model, as it was read, for what no pass can change: so it is said before any pass has run.

    What nothing uses but for its shape, or follows from constants, goes later on; so may what stands in functions.

    Args:
        model: The model.
        known: Operators of the default domain that TVM imports.

    Raises:
        RefusalError: there are operators that nothing knows, or inputs or outputs that a built model cannot have.
    """
    functions = {(domain, name) for domain, name, _ in model.functions}
    opened = {operator for entry in PASSES.entries().values() for operator in entry.opens}
    opset = default_opset(model.opset_imports, TARGET)
    nodes = [node for node in _live_nodes(model.graph) if (node.domain, node.op_type) not in functions]
    later = (n for n in nodes if not (n.domain in ("", "ai.onnx") and opset < TARGET and _is_replaced(n.op_type)))
    missing = missing_operators(map(_identify, later), opened, known)
    check_interface(model, [missing, *_unsupported_parts(nodes, opset)])


def _unsupported_parts(nodes: Sequence[ir.Node], opset: int) -> Collection[str]:
    """Return a sentence for each operator with an input, an attribute or an output that is not handled."""
    reasons = {node.op_identifier(): reason for node in nodes[::-1] if (reason := refuse_unsupported(node, opset))}
    return reasons.values()


def _is_replaced(operator: str) -> bool:
    """Say whether raising the operator set leaves no such operator."""
    try:
        return defs.get_schema(operator, TARGET).deprecated
    except defs.SchemaError:
        return True


def _live_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes, those of bodies among them, whose results are used and depend on data; in their order."""
    live, data, stack = set[ir.Node](), dict[ir.Value, bool](), list(graph.outputs)
    while stack:
        node = stack.pop().producer()
        if node is None or node in live:
            continue
        live.add(node)
        if is_op(node, "Shape", "Size"):
            continue  # Where the shape is known, what has it goes.
        stack += [value for value in node.inputs if value is not None]
        for _, body in subgraphs(node):
            stack.extend(body.outputs)

    def visit(inner: ir.Graph) -> Iterator[ir.Node]:
        for node in inner:
            if node not in live or not any(_is_data(value, data) for value in node.outputs):
                continue
            yield node
            if not is_op(node, "If") or _is_data(operand(node, 0), data):
                for _, body in subgraphs(node):
                    yield from visit(body)

    yield from visit(graph)


def missing_operators(
    nodes: Iterator[tuple[str, str, str]], functions: Collection[tuple[str, str]], known: Collection[str]
) -> str:
    """Return what says of which operators among domain, name and first result there is no form, or ''."""
    missing, reasons = dict[str, str](), dict[str, str]()
    for domain, operator, position in nodes:
        standard, name = domain in ("", "ai.onnx"), full_name(domain, operator)
        named = next((key for key in (name, full_name(domain, "*")) if key in refused()), None)
        if named is not None:
            reasons.setdefault(named, f"{name} {position!r} {refused()[named]}")
            continue
        here = name in converters() or (standard and (operator in known or operator in FOLDERS))
        tensors = not re.search("(?<!Reverse)Sequence|Optional", operator)
        if (domain, operator) not in functions and not (here and tensors):
            missing.setdefault(name, position)
    names = ", ".join(f"{operator} (first at {position!r})" for operator, position in missing.items())
    return "; ".join([f"TVM has no operator for: {names}"] * bool(names) + list(reasons.values()))


def _identify(node: ir.Node) -> tuple[str, str, str]:
    return node.domain, node.op_type, _position(node)


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        yield node
        if not is_op(node, "If") or _is_data(operand(node, 0), {}):
            for _, body in subgraphs(node):
                yield from _nodes(body)


def _position(node: ir.Node) -> str:
    return next((value.name for value in node.outputs if value.name), None) or node_label(node)


def _is_data(value: ir.Value | None, known: dict[ir.Value, bool]) -> bool:
    """Say whether elements of an input decide a value, not its shape alone; `known` is what was found before."""
    stack, seen = [] if value is None else [value], set[ir.Value]()
    while stack:
        top = stack[-1]
        node = top.producer()
        if top in known:
            stack.pop()
        elif node is None or top.const_value is not None or is_op(node, "Shape", "Size"):
            known[top] = node is None and top.const_value is None
        else:
            bodies = [body for _, body in subgraphs(node)]
            given = [*filter(None, node.inputs), *(x for body in bodies for x in body.outputs)]
            if top in seen:
                known[top] = (not bodies and not is_pure(node)) or any(known.get(x, False) for x in given)
            seen.add(top)
            stack += [x for x in given if x not in known and x not in seen]
    return value is not None and known[value]


def _reason(check: Callable[[onnx.ValueInfoProto], object], value: ir.Value) -> list[str]:
    try:
        check(ir.serde.serialize_value(value))
    except RefusalError as error:
        return [str(error)]
    return []
