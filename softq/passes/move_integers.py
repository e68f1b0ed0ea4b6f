"""Move integers where a model moves what they stand for and quantizes it as before."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import MOVES_ONLY, graph_of, is_op, producer
from softq.graph.view import ModelView
from softq.passes import PassEntry
from softq.passes.rewriting.quantization import read_quantization

_MOVES = MOVES_ONLY - {"Concat"}
"""What reads the elements of its first operand alone."""


class MoveIntegers(ir.passes.InPlacePass):
    """Replaces QuantizeLinear(move(DequantizeLinear(q))) by move(q) where both have the same scale and zero point.

    The codes are the same: a code c between 255 and -255 without its zero point is c * s / s, both rounded to float32,
    within c * 2^-22 of c, and rounded to c.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace them; `modified` says whether there were any."""
        modified = False
        moved: dict[ir.Node, ir.Node] = {}
        for node in list(ModelView(model).nodes):
            if is_op(node, "QuantizeLinear") and node.graph is not None:
                modified |= _replace(node, moved)
        return ir.passes.PassResult(model, modified)


def _replace(node: ir.Node, moved: dict[ir.Node, ir.Node]) -> bool:
    """Replace a QuantizeLinear; `moved` has the moves of integers by the moves in whose place they stand."""
    source, result = node.inputs[0], node.outputs[0]
    move = producer(source, *_MOVES)
    back = producer(source if move is None else move.inputs[0], "DequantizeLinear")
    if back is None or back.graph is not node.graph or (move is not None and move.graph is not node.graph):
        return False
    old, new = read_quantization(back), read_quantization(node)
    if old is None or new is None or old.scale.size > 1 or not old.same(new):
        return False
    codes = back.inputs[0]
    assert codes is not None, "what is dequantized has a type"
    if move is None:
        if result.is_graph_output():
            if codes.is_graph_input() or codes.is_initializer() or codes.is_graph_output():
                return False
            take_over(result, codes)
        else:
            ir.convenience.replace_all_uses_with(result, codes)
    else:
        if move not in moved:
            moved[move] = _move_codes(codes, move)
        assert source is not None, "a move has a result"
        taken = moved[move].outputs[move.outputs.index(source)]
        if taken.uses() or taken.is_graph_output():
            ir.convenience.replace_all_uses_with(result, taken, replace_graph_outputs=True)
        else:
            take_over(result, taken)
    remove_if_unused(node)
    return True


def _move_codes(codes: ir.Value, move: ir.Node) -> ir.Node:
    """Return the same move of codes, in front of the one of what they stand for."""
    copy = ir.node(
        move.op_type,
        [codes, *move.inputs[1:]],
        dict(move.attributes),
        num_outputs=len(move.outputs),
        name=f"{move.name or move.outputs[0].name}.integers",
    )
    for ours, theirs in zip(copy.outputs, move.outputs, strict=True):
        ours.name, ours.shape, ours.type = f"{theirs.name}.integers", theirs.shape, codes.type
    graph_of(move).insert_before(move, copy)
    return copy


PASS = PassEntry("move-integers", MoveIntegers, "Move quantized numbers instead of what they stand for")
