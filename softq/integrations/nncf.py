"""What NNCF has to leave in floats of a converted model.

NNCF keeps the softmax and its product with V in floats, which it knows by the operator Softmax. Behind a conversion
there is none, so that weights, codes and sums would be quantized like any activation. It takes names instead.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from softq.errors import InputError, UsageError, root_line
from softq.graph.view import ModelView
from softq.modelfile import ModelLike, as_model, save
from softq.passes.inline_functions import InlineFunctions
from softq.passes.replace import FUNCTION_DOMAIN
from softq.passes.rewriting.attention_regions import NotFusedError, find_products

if TYPE_CHECKING:
    import openvino


def to_openvino(converted: ModelLike) -> openvino.Model:
    """Return a converted model as OpenVINO's, with softq's functions opened: it knows no functions of ONNX models.

    Args:
        converted: A path, an `onnx.ModelProto` or an `onnx_ir.Model`: what `softq.convert` gave. It is not changed.

    Raises:
        InputError: the file is no usable ONNX model, or OpenVINO cannot read it.
        UsageError: openvino is not installed.
    """
    try:
        import openvino
    except ImportError as error:
        raise UsageError("to_openvino needs OpenVINO: pip install openvino") from error
    work = InlineFunctions()(as_model(converted)).model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        save(work, path)
        try:
            return openvino.convert_model(path)
        except Exception as error:  # OpenVINO's own kinds share no base
            raise InputError(f"OpenVINO cannot read the model: {root_line(error, 300)}") from error


def ignored_names(converted: ModelLike, model: openvino.Model) -> list[str]:
    """Return the names for `nncf.IgnoredScope(names=...)`: each attention, from the product of Q and K on.

    This product is among them because OpenVINO 2026.4's kernels for CPUs give wrong results where it is on integers and
    no Softmax reads it (`docs/integrations.md`).

    Args:
        converted: A path, an `onnx.ModelProto` or an `onnx_ir.Model`: what `softq.convert` gave, with its functions.
        model: What `to_openvino` made of it, with whose names the scope has to agree.

    Raises:
        InputError: the file is no usable ONNX model, or OpenVINO's has none of its values.
        UsageError: the converted model has no functions of softq, or some that are not called in its main graph; or
            `model` is no model of OpenVINO.
    """
    if not hasattr(model, "get_ops"):
        raise UsageError(f"the second model is a {type(model).__name__}; expected what to_openvino returns")
    view = ModelView(as_model(converted))
    outside = [c for c in view.containers if c.path and (c.function is None or c.function[0] != FUNCTION_DOMAIN)]
    if hidden := [node for container in outside for node in container.body if node.domain == FUNCTION_DOMAIN]:
        raise UsageError(f"{hidden[0].op_type} is called in a body or function; names are those of the main graph")
    calls = [node for node in view.model.graph if node.domain == FUNCTION_DOMAIN]
    if not calls:
        raise UsageError("the model has no functions of softq: it is not converted, or was converted with --inline")
    operators = {name: out.get_node() for op in model.get_ops() for out in op.outputs() for name in out.get_names()}
    found: dict[str, None] = {}
    for call in calls:
        nodes = _find_attention(call)
        ends = _at(operators, [value for node in nodes for value in node.outputs])
        if nodes[0] is call:  # Scores that are no product are computed in front of the attention.
            starts = [reader for operator in _at(operators, call.inputs[:1]) for reader in _readers(operator)]
        else:
            starts = _at(operators, nodes[0].outputs)
        # By values, for OpenVINO gives operators of its own to what it fuses.
        behind, above = _reach(starts, _readers), _reach(ends, _sources)
        found |= dict.fromkeys(name for name in above if name in behind)
    return list(found)


def _find_attention(call: ir.Node) -> list[ir.Node]:
    """Return the nodes of an attention from the product of Q and K on, or a call and what reads it if it is in none."""
    try:
        region = find_products(call)
    except NotFusedError:
        return [call, *dict.fromkeys(user for out in call.outputs for user in out.consumers())]
    return [*region.elementwise, *region.nodes]


def _at(operators: dict[str, Any], values: Iterable[ir.Value | None]) -> list[Any]:
    """Return the operators of OpenVINO that compute values of ONNX, as far as they are still there."""
    names = [str(value.name) for value in values if value is not None]
    found = [operators[name] for name in names if name in operators]
    if not found:
        raise InputError(f"OpenVINO's model has no {' or '.join(names)}: it is not of this converted model")
    return found


def _readers(operator: Any) -> Iterator[Any]:
    return (port.get_node() for out in operator.outputs() for port in out.get_target_inputs())


def _sources(operator: Any) -> Iterator[Any]:
    return (port.get_source_output().get_node() for port in operator.inputs())


def _reach(starts: Iterable[Any], step: Callable[[Any], Iterator[Any]]) -> dict[str, Any]:
    """Return the operators that steps lead to, by their names, the first ones among them."""
    reached: dict[str, Any] = {}
    pending = list(starts)
    while pending:
        operator = pending.pop()
        if operator.get_friendly_name() not in reached:
            reached[operator.get_friendly_name()] = operator
            pending += step(operator)
    return reached
