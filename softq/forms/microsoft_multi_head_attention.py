"""onnxruntime's MultiHeadAttention: Q, K and V in; `softq/forms/matching/heads.py` says what it computes."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching import heads
from softq.forms.matching.opening import make_body_opener
from softq.forms.matching.operators import count_keys, is_contrib
from softq.graph.bodies import has_input, parse_body
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operand, operator_label

_QUERY, _KEY, _VALUE, _BIAS, _MASK, _ADDED, _PAST_KEY, _PAST_VALUE = range(8)
_INPUTS = ("query", "key", "value", "bias", "mask", "attention_bias", "past_key", "past_value")
_PRESENT_KEY, _PRESENT_VALUE = 1, 2
_OUTPUTS = ("output", "present_key", "present_value", "qk")


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a MultiHeadAttention of onnxruntime."""
    if not is_contrib(node, "MultiHeadAttention", facts):
        return None
    key = facts.shape(operand(node, _KEY))
    new = None if key is None else key[1] if len(key) == 3 else key[-2]
    keys = count_keys(new, operand(node, _PAST_KEY), 4, facts)
    return heads.match_heads(
        node, refuse(node, facts), keys, _read_mask(node, facts), facts, has_bias=has_input(node, _ADDED)
    )


def _read_mask(node: ir.Node, facts: Facts) -> heads.KeyMask | None:
    return heads.read_mask(node, _MASK, facts, starts=False)


def refuse(node: ir.Node, facts: Facts) -> str:
    """Return why a node cannot be opened, or ''."""
    refusal = heads.refuse_heads(node, facts, (_QUERY,))
    if refusal:
        return refusal
    name = f"node {node_label(node)} is a {operator_label(node)}"
    query, key, value = (facts.shape(operand(node, place)) for place in (_QUERY, _KEY, _VALUE))
    if query is None:
        return f"{name}, and the rank of its query is not known"
    if len(query) != 3 or operand(node, _KEY) is None or operand(node, _VALUE) is None:
        return f"{name} with packed query, key or value, which onnxruntime's CPU kernel does not run"
    if key is None or value is None or len(key) != len(value) or len(key) not in {3, 4}:
        return f"{name}, and key and value are not known to be both of rank 3 or both of rank 4"
    count = node.attributes.get_int("num_heads", 0)
    widths = (query[2], value[2] if len(value) == 3 else value[3])
    if any(not isinstance(width, int) for width in widths):
        return f"{name}, and its hidden sizes are not known"
    if any(isinstance(width, int) and width % count for width in (query[2], *(value[2:] if len(value) == 3 else ()))):
        return f"{name} whose hidden sizes are not multiples of its {count} heads"
    if operand(node, _MASK) is not None and _read_mask(node, facts) is None:
        return f"{name} whose mask is not known to be of rank 1, 2 or 3"
    pasts = [operand(node, place) is not None for place in (_PAST_KEY, _PAST_VALUE)]
    if pasts[0] != pasts[1]:
        return f"{name} with past keys or past values alone, which onnxruntime's CPU kernel does not run"
    if pasts[0] and not (heads.is_named(node, _PRESENT_KEY) and heads.is_named(node, _PRESENT_VALUE)):
        return f"{name} with past keys but not both present outputs, where onnxruntime's CPU kernel leaves out the past"
    return ""


def make_body(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    """Return what a node that is not refused is short for."""
    query, key, value = (facts.shape(operand(node, place)) for place in (_QUERY, _KEY, _VALUE))
    mask = _read_mask(node, facts)
    if query is None or key is None or value is None or mask is None:
        return None
    count, width, last = node.attributes.get_int("num_heads", 0), query[2], value[-1]
    if not isinstance(width, int) or not isinstance(last, int):
        return None
    # Keys and values of rank 4 have their heads split already, and no bias is added to them.
    joined = len(key) == 3
    value_size = last // count if joined else last
    sizes = {"query": width, "key": width, "value": value_size * count}
    floats = [name for place, name in enumerate(_INPUTS) if has_input(node, place) and place != _MASK]
    lines = heads.widen(floats)
    if has_input(node, _BIAS):
        numbers = ", ".join(map(str, sizes.values()))
        lines += [
            f"Sizes = Constant <value: tensor = int64[3] {{{numbers}}}> ()",
            "queryB, keyB, valueB = Split (biasF, Sizes)",
        ]
    for name, split in zip(sizes, ("Q", "NewK", "NewV"), strict=True):
        if name != "query" and not joined:
            lines.append(f"{split} = Identity ({name}F)")
            continue
        source = f"{name}S" if has_input(node, _BIAS) else f"{name}F"
        if has_input(node, _BIAS):
            lines.append(f"{name}S = Add ({name}F, {name}B)")
        lines += heads.split_heads(source, split, count, sizes[name] // count)
    if has_input(node, _PAST_KEY):
        lines += ["K = Concat <axis: int = 2> (past_keyF, NewK)", "V = Concat <axis: int = 2> (past_valueF, NewV)"]
        lines.append("PastLength = Shape <start: int = 2, end: int = 3> (past_keyF)")
    else:
        lines += ["K = Identity (NewK)", "V = Identity (NewV)"]
        lines.append("PastLength = Constant <value: tensor = int64[1] {0}> ()")
    lines += heads.attend(node, mask, "mask", width // count, value_size * count, has_input(node, _ADDED))
    results = zip(_OUTPUTS, ("Y", "K", "V", "Masked"), strict=True)
    named = [pair for place, pair in enumerate(results) if heads.is_named(node, place)]
    lines += [f"{output} = CastLike ({result}, query)" for output, result in named]
    # The places of outputs that nobody named are skipped, so they need no line.
    return parse_body(opset, _INPUTS, _OUTPUTS, lines)


FORM = Form(
    "microsoft-multi-head-attention", "onnxruntime's MultiHeadAttention, opened", match, make_body_opener(make_body)
)
