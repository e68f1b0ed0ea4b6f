"""The operator Attention of ONNX, opset 23 and later: opened into the body that ONNX gives it.

By the erratum of 2026 (onnx#8068) a query whose keys are all masked gives a row of zeros; the body does so.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.forms import Form, Inside, Match, refuse
from softq.forms.matching.guards import ROW_WHERE
from softq.forms.matching.mask_sources import is_declared
from softq.forms.matching.opening import make_body_opener
from softq.forms.matching.operators import FLOATS, NEWEST_OPSET, count_keys, find_refusal, refuse_reference
from softq.graph.bodies import find_standard_body, to_type_proto
from softq.graph.facts import Facts, drop_inferred_names
from softq.graph.queries import is_op, node_label, operand
from softq.graph.ranks import Dims
from softq.site import MaskKind

_OLDEST_OPSET = 23
_Q, _K, _V, _MASK, _PAST, _LENGTHS = 0, 1, 2, 3, 4, 6
"""Places of the inputs Q, K, V, attn_mask, past_key and nonpad_kv_seqlen."""


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise an Attention of the default domain."""
    if not is_op(node, "Attention"):
        return None
    inside = Inside(
        _read_precision(node, facts), _shape_of_scores(node, facts), _find_mask_kind(node, facts), "zero", ROW_WHERE
    )
    # Mode 3 gives the weights; 0 to 2 are scores.
    shows = len(node.outputs) > 3 and node.attributes.get_int("qk_matmul_output_mode", 0) == 3
    shown = node.outputs[3] if shows else None
    return Match("Attention", None, None, -1, refuse(_refuse(node, facts)), inside=inside, shown=shown)


def _refuse(node: ir.Node, facts: Facts) -> str:
    name, opset, query = node_label(node), facts.view.container_of(node).opset, operand(node, _Q)
    if not _OLDEST_OPSET <= opset <= NEWEST_OPSET:
        return f"node {name} is an Attention of opset {opset}; known are {_OLDEST_OPSET} to {NEWEST_OPSET}"
    if query is None or any(operand(node, place) is None for place in (_K, _V)):
        return f"node {name} lacks one of Q, K and V"
    refusal = refuse_reference(node) or find_refusal(node, query, facts)
    if refusal:
        return refusal
    precision = _read_precision(node, facts)
    if precision == ir.DataType.DOUBLE and not facts.assumed.float32:
        return f"node {name} has a softmax of double, and softq computes in float32 (allowed by --allow-float32)"
    if precision is not None and precision not in FLOATS | {ir.DataType.DOUBLE}:
        kind = f"softmax_precision {node.attributes.get_int('softmax_precision', 0)}, {precision.name.lower()}"
        return f"node {name} has {kind}, which is no float type that softq knows"
    unknown = next((v for v in node.inputs if v is not None and _type(v, facts) is None), None)
    if unknown is not None:
        return f"the element type or the rank of {unknown.name}, which node {name} reads, is not known"
    refusal = _refuse_disputed(node, query, facts)
    if refusal:
        return refusal
    return "" if _make_body(node, opset, facts) is not None else f"ONNX defines no body for node {name}"


def _refuse_disputed(node: ir.Node, query: ir.Value, facts: Facts) -> str:
    """Return why the body may not mean what consumers compute: there ONNX's body and its reference differ."""
    softcap = node.attributes.get_float("softcap", 0.0)
    if softcap < 0:  # the body caps by its absolute value; the reference and onnxruntime do not cap
        return f"node {node_label(node)} has a softcap of {softcap}, below 0, where ONNX's definitions differ"
    shape = facts.shape(query)
    given = [heads for heads in ("q_num_heads", "kv_num_heads") if heads in node.attributes]
    if given and shape is not None and len(shape) == 4:  # the body's result has three axes, onnxruntime's four
        return f"node {node_label(node)} has {given[0]}, which ONNX allows for inputs of three axes; Q has four"
    return ""


def _read_precision(node: ir.Node, facts: Facts) -> ir.DataType | None:
    attribute = node.attributes.get("softmax_precision")
    if attribute is None or attribute.is_ref():
        return facts.dtype(operand(node, _Q))
    number = attribute.as_int()
    return next((kind for kind in ir.DataType if kind == number), ir.DataType.UNDEFINED)


def _shape_of_scores(node: ir.Node, facts: Facts) -> Dims | None:
    """Return batch, heads of Q, queries, and keys with the past ones, as far as they are known."""
    query, key = facts.shape(operand(node, _Q)), facts.shape(operand(node, _K))
    if query is None or len(query) not in {3, 4}:
        return None
    heads = query[1] if len(query) == 4 else node.attributes.get_int("q_num_heads", 0) or None
    keys = None if key is None or len(key) not in {3, 4} else key[-2]
    return drop_inferred_names((query[0], heads, query[-2], count_keys(keys, operand(node, _PAST), 4, facts)))


def _find_mask_kind(node: ir.Node, facts: Facts) -> MaskKind:
    mask = operand(node, _MASK)
    if mask is not None and facts.dtype(mask) != ir.DataType.BOOL and not is_declared(mask, facts):
        return "unproven"
    windows = ("left_window_size", "right_window_size")
    hides = node.attributes.get_int("is_causal", 0) == 1 or operand(node, _LENGTHS) is not None
    hides = hides or any(node.attributes.get_int(window, -1) >= 0 for window in windows)
    return "additive" if hides or mask is not None else "none"


def _type(value: ir.Value, facts: Facts) -> onnx.TypeProto | None:
    dtype, shape = facts.dtype(value), facts.shape(value)
    return None if dtype is None or shape is None else to_type_proto(dtype, ir.Shape(drop_inferred_names(shape)))


def _make_body(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    types = [onnx.TypeProto() if value is None else _type(value, facts) for value in node.inputs]
    body = find_standard_body(node, opset, [kind for kind in types if kind is not None])
    if body is not None:
        _guard_first(body)
    return body


def _guard_first(body: onnx.FunctionProto) -> None:
    """Put the Where that makes rows zeros right behind the Softmax, in front of the Cast to the type of the output.

    Zero is zero in either type; so the guard is where `look_behind` finds it.
    """
    makers = {name: node for node in body.node for name in node.output}
    for place, guard in enumerate(body.node):
        cast = makers.get(guard.input[2]) if guard.op_type == "Where" else None
        softmax = None if cast is None or cast.op_type != "Cast" else makers.get(cast.input[0])
        if cast is None or softmax is None or softmax.op_type != "Softmax":
            continue
        zero, guarded, result = makers[guard.input[1]], f"{cast.output[0]}Guarded", guard.output[0]
        late = onnx.NodeProto()
        late.CopyFrom(cast)
        late.input[0], late.output[0] = guarded, result
        # Cast to the type that the scores were cast to, not like them: nothing but the Softmax shall read the scores.
        zero.op_type = "Cast"
        del zero.input[1]
        zero.attribute.extend(makers[softmax.input[0]].attribute)
        guard.input[2] = softmax.output[0]
        guard.output[0] = guarded
        body.node.remove(cast)
        body.node.insert(place, late)
        return


FORM = Form("attention", "The operator Attention of ONNX, opened into its body", match, make_body_opener(_make_body))
