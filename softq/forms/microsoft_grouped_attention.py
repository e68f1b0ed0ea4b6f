"""onnxruntime's GroupQueryAttention: causal, with a cache; `forms/matching/grouped_heads.py` says what it computes."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from softq.forms import Form, Inside, Match
from softq.forms import refuse as refuse_for
from softq.forms.matching.grouped_heads import GroupedHeads, grouped_lines
from softq.forms.matching.opening import make_body_opener
from softq.forms.matching.operators import find_refusal, is_contrib, refuse_reference
from softq.graph.bodies import has_input, parse_body
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operand, operator_label

_QUERY, _KEY, _VALUE, _PAST_KEY, _COSINES = 0, 1, 2, 3, 7
_INPUTS = ("query", "key", "value", "past_key", "past_value", "seqlens", "total", "cos_cache", "sin_cache")


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a GroupQueryAttention of onnxruntime."""
    if not is_contrib(node, "GroupQueryAttention", facts):
        return None
    query = facts.shape(operand(node, _QUERY))
    shape = None
    if query is not None and len(query) == 3:
        shape = (query[0], node.attributes.get_int("num_heads", 0), query[1], None)
    inside = Inside(ir.DataType.FLOAT, shape, "where", "uniform")
    return Match(operator_label(node), None, None, -1, refuse_for(refuse(node, facts)), inside=inside)


def refuse(node: ir.Node, facts: Facts) -> str:
    """Return why a node cannot be opened, or ''."""
    name, query = f"node {node_label(node)} is a {operator_label(node)}", operand(node, _QUERY)
    if query is None:
        return f"{name} without a query"
    general = refuse_reference(node) or find_refusal(node, query, facts)
    if general:
        return general
    if node.attributes.get_int("causal", 1) == 0 and node.attributes.get_int("local_window_size", -1) > 0:
        return f"not yet: {name} with causal = 0 and a window"
    if facts.dtype(query) != ir.DataType.FLOAT:
        return f"not yet: {name} of another type than float32"
    rotated = bool(node.attributes.get_int("do_rotary", 0))
    needed = range(_PAST_KEY, len(_INPUTS) if rotated else _COSINES)
    if not all(has_input(node, place) for place in needed):
        missing = next(_INPUTS[place] for place in needed if not has_input(node, place))
        return f"not yet: {name} without {missing}"
    if has_input(node, _KEY) != has_input(node, _VALUE):
        return f"{name} with one of key and value, which onnxruntime's CPU kernel does not run"
    if _read_form(node, facts) is None:
        return f"{name}, and its numbers of heads, or the widths of query and cosines, do not say how it is laid out"
    return ""


def _read_form(node: ir.Node, facts: Facts) -> GroupedHeads | None:
    """Return the form of a node, None where shapes or attributes do not tell it."""
    attributes = node.attributes
    heads, groups = (attributes.get_int(name, 0) for name in ("num_heads", "kv_num_heads"))
    query, packed = facts.shape(operand(node, _QUERY)), not has_input(node, _KEY)
    width = None if query is None or len(query) != 3 else query[2]
    parts = heads + 2 * groups if packed else heads
    if not isinstance(width, int) or heads < 1 or groups < 1 or heads % groups or width % parts:
        return None
    rotated = 0
    if attributes.get_int("do_rotary", 0):
        cosines = facts.shape(operand(node, _COSINES))
        if cosines is None or not isinstance(cosines[-1], int):
            return None
        rotated = 2 * cosines[-1]
    scale, cap = (attributes.get_float(name, 0.0) for name in ("scale", "softcap"))
    if not math.isfinite(scale) or not math.isfinite(cap):
        return None
    return GroupedHeads(
        heads,
        groups,
        width // parts,
        packed,
        rotated,
        bool(attributes.get_int("rotary_interleaved", 0)),
        scale,
        max(cap, 0.0),
        attributes.get_int("local_window_size", -1),
        bool(attributes.get_int("causal", 1)),
    )


def make_body(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    """Return what a node that is not refused is short for."""
    form = _read_form(node, facts)
    if form is None:
        return None
    return parse_body(opset, _INPUTS, ["output", "present_key", "present_value"], grouped_lines(form))


FORM = Form(
    "microsoft-grouped-attention", "onnxruntime's GroupQueryAttention, opened", match, make_body_opener(make_body)
)
