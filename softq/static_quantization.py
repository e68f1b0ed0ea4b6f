"""What onnxruntime's static quantization has to be told of a converted model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from softq.errors import UsageError
from softq.graph.queries import is_op, node_label, producer
from softq.modelfile import ModelLike, as_model
from softq.passes.quantize_attentions import find_weight_scale
from softq.passes.replace import FUNCTION_DOMAIN
from softq.passes.rewriting.attention_regions import NotFusedError, Region, find_products
from softq.passes.rewriting.calls import CallContext, RowCall, make_call
from softq.provenance import plan_of

_MAKES_SCALES = ("Abs", "Cast", "Constant", "Div", "IsNaN", "Max", "Mul", "ReduceMax", "ReduceSum", "Where")
"""Operators by which `quantize-attentions` finds the scale of a tensor."""


def quantize_overrides(model: ModelLike) -> dict[str, Any]:
    """Return arguments of `onnxruntime.quantization.quantize_static` for a converted model.

    Of each attention around a function of softq they make the weights bytes with zero point 0 and the scale that the
    method asks for, and leave in floats what has no range of its own: scores, weights times V, and what softq wrote
    between them and behind them. Products give floats (this holds for every MatMul of the model, since onnxruntime
    takes it for operators alone). An attention that `convert --qdq` wrote on integers stays as it is.

    Args:
        model: A path, an `onnx.ModelProto` or an `onnx_ir.Model`: what `softq.convert` gave, with its functions.

    Returns:
        `nodes_to_exclude` and `extra_options`; the latter may be extended by the caller.

    Raises:
        InputError: the file is no usable ONNX model.
        UsageError: the model is not converted, or was converted with functions opened.
    """
    work = as_model(model)
    rows = _rows_by_function(work)
    overrides: dict[str, list[dict[str, Any]]] = {}
    excluded: dict[str, None] = {}
    for call in work.graph:
        if call.domain != FUNCTION_DOMAIN:
            continue
        excluded[node_label(call)] = None
        row = rows.get(call.op_type)
        try:
            if row is None:
                raise NotFusedError("its function is not the plan's")
            scale, region = find_weight_scale(row), find_products(call, coded=True)
        except NotFusedError:
            excluded |= dict.fromkeys(node_label(user) for out in call.outputs for user in out.consumers())
            continue
        nodes = list(_written_nodes(region))
        if not any(is_op(node, "QuantizeLinear") for node in nodes):
            overrides[str(call.outputs[0].name)] = [_bytes_of(scale)]
        excluded |= dict.fromkeys(map(node_label, nodes))
    options = {"TensorQuantOverrides": overrides, "OpTypesToExcludeOutputQuantization": ["MatMul"]}
    return {"nodes_to_exclude": list(excluded), "extra_options": options}


def _bytes_of(scale: float) -> dict[str, Any]:
    from onnxruntime.quantization import QuantType

    return {
        "scale": np.array(scale, np.float32), "zero_point": np.array(0, np.uint8), "quant_type": QuantType.QUInt8
    }  # fmt: skip


def _rows_by_function(model: ir.Model) -> dict[str, RowCall]:
    """Return what calls stand for, by the names of their functions."""
    plan = plan_of(model)
    if plan is None or not any(domain == FUNCTION_DOMAIN for domain, *_ in model.functions):
        raise UsageError("the model has no functions of softq: it is not converted, or was converted with --inline")
    contexts = [CallContext(masked, model.opset_imports[""], plan.max_length) for masked in (False, True)]
    calls = [make_call(planned, context, exposed=False) for planned in plan.sites for context in contexts]
    return {call.function.name: call.row for call in calls}


def _written_nodes(region: Region) -> Iterator[ir.Node]:
    """Yield the nodes of an attention that stay in floats: all but its products, unless these are on integers."""
    products = (region.first, region.second)
    yield from (node for node in (*region.nodes, *region.elementwise[1:]) if node not in products)
    for product in products:
        if product is None or any(producer(value, "DequantizeLinear") is None for value in product.inputs):
            continue
        yield product
        for value in product.inputs:
            yield from _coding_nodes(value)


def _coding_nodes(decoded: ir.Value | None) -> Iterator[ir.Node]:
    """Yield the nodes that code a tensor, find its scale, and subtract its mean."""
    decode = producer(decoded, "DequantizeLinear")
    code = None if decode is None else producer(decode.inputs[0], "QuantizeLinear")
    if decode is None or code is None:
        return
    yield from (decode, code)
    pending = [decode.inputs[1], code.inputs[1]]
    while pending:
        node = producer(pending.pop(), *_MAKES_SCALES)
        if node is not None:
            yield node
            pending += () if is_op(node, "Abs", "ReduceSum") else node.inputs
    difference = producer(code.inputs[0], "Sub")
    mean = None if difference is None else producer(difference.inputs[1], "ReduceMean")
    if difference is not None and mean is not None:
        yield from (difference, mean)
