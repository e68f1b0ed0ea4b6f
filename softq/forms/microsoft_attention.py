"""onnxruntime's Attention: projects one input to Q, K and V; `softq/forms/matching/heads.py` says what follows."""

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

_INPUT, _WEIGHTS, _BIAS, _MASK, _PAST, _ADDED = range(6)
_INPUTS = ("input", "weights", "bias", "mask", "past", "attention_bias")
_PRESENT = 1


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise an Attention of onnxruntime."""
    if not is_contrib(node, "Attention", facts):
        return None
    shape = facts.shape(operand(node, _INPUT))
    keys = count_keys(None if shape is None or len(shape) != 3 else shape[1], operand(node, _PAST), 5, facts)
    return heads.match_heads(
        node, refuse(node, facts), keys, _read_mask(node, facts), facts, has_bias=has_input(node, _ADDED)
    )


def _read_mask(node: ir.Node, facts: Facts) -> heads.KeyMask | None:
    return heads.read_mask(node, _MASK, facts, starts=True)


def refuse(node: ir.Node, facts: Facts) -> str:
    """Return why a node cannot be opened, or ''."""
    refusal = heads.refuse_heads(node, facts, (_INPUT, _WEIGHTS, _BIAS))
    if refusal:
        return refusal
    name = f"node {node_label(node)} is a {operator_label(node)}"
    shape = facts.shape(operand(node, _INPUT))
    if shape is None or len(shape) != 3:
        return f"{name} whose input is not known to be of rank 3"
    sizes = _read_sizes(node, facts)
    if sizes is None:
        return f"{name}, and its hidden sizes are not known"
    count = node.attributes.get_int("num_heads", 0)
    if sizes[0] != sizes[1] or any(size % count for size in sizes):
        return f"{name} with the hidden sizes {sizes} and {count} heads, which onnxruntime's CPU kernel does not run"
    mask = facts.shape(operand(node, _MASK))
    if mask is not None and len(mask) == 4:
        return f"{name} with a mask of rank 4, which onnxruntime's CPU kernel does not run"
    if _read_mask(node, facts) is None:
        return f"{name} whose mask is not known to be of rank 1, 2 or 3"
    if has_input(node, _PAST) and has_input(node, _ADDED):
        return f"{name} with past keys and a bias on the scores, which onnxruntime's CPU kernel does not run"
    if has_input(node, _PAST) and not heads.is_named(node, _PRESENT):
        return f"{name} with past keys and no present ones, which onnxruntime's CPU kernel does not run"
    if heads.is_named(node, _PRESENT) and sizes[0] != sizes[2]:
        return f"{name} that hands on keys and values of different sizes in one tensor"
    return ""


def _read_sizes(node: ir.Node, facts: Facts) -> tuple[int, int, int] | None:
    """Return the widths of Q, K and V."""
    given_sizes = node.attributes.get("qkv_hidden_sizes")
    if given_sizes is not None and given_sizes.as_ints():
        sizes = given_sizes.as_ints()
        return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 and min(sizes) > 0 else None
    shape = facts.shape(operand(node, _WEIGHTS))
    width = None if shape is None or len(shape) != 2 else shape[1]
    if not isinstance(width, int) or width < 3 or width % 3:
        return None
    return width // 3, width // 3, width // 3


def make_body(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    """Return what a node that is not refused is short for."""
    mask, sizes = _read_mask(node, facts), _read_sizes(node, facts)
    if mask is None or sizes is None:
        return None
    count = node.attributes.get_int("num_heads", 0)
    lines = heads.widen([name for place, name in enumerate(_INPUTS) if has_input(node, place) and place != _MASK])
    lines += [
        "Projected = MatMul (inputF, weightsF)",
        "Biased = Add (Projected, biasF)",
        f"Sizes = Constant <value: tensor = int64[3] {{{', '.join(map(str, sizes))}}}> ()",
        "QJoined, KJoined, VJoined = Split <axis: int = 2> (Biased, Sizes)",
    ]
    for name, result, size in zip("QKV", ("Q", "NewK", "NewV"), sizes, strict=True):
        lines += heads.split_heads(f"{name}Joined", result, count, size // count)
    if has_input(node, _PAST):
        lines += [
            "First = Constant <value: tensor = int64 {0}> ()",
            "Second0 = Constant <value: tensor = int64 {1}> ()",
            "PastK = Gather <axis: int = 0> (pastF, First)",
            "PastV = Gather <axis: int = 0> (pastF, Second0)",
            "K = Concat <axis: int = 2> (PastK, NewK)",
            "V = Concat <axis: int = 2> (PastV, NewV)",
            "PastLength = Shape <start: int = 3, end: int = 4> (pastF)",
        ]
    else:
        lines += ["K = Identity (NewK)", "V = Identity (NewV)"]
        lines.append("PastLength = Constant <value: tensor = int64[1] {0}> ()")
    lines += heads.attend(node, mask, "mask", sizes[0] // count, sizes[2], has_input(node, _ADDED))
    lines.append("output = CastLike (Y, input)")
    outputs = ["output"]
    if heads.is_named(node, _PRESENT):
        lines += [
            "Front = Constant <value: tensor = int64[1] {0}> ()",
            "KPart = Unsqueeze (K, Front)",
            "VPart = Unsqueeze (V, Front)",
            "Both = Concat <axis: int = 0> (KPart, VPart)",
            "present = CastLike (Both, input)",
        ]
        outputs.append("present")
    return parse_body(opset, _INPUTS, outputs, lines)


FORM = Form("microsoft-attention", "onnxruntime's Attention, opened", match, make_body_opener(make_body))
