"""Take the TopK of the scores instead of the softmax's: k exponentials instead of N."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import graph_of
from softq.passes import PassEntry
from softq.passes.analysis.readers import FUSE_TOPK
from softq.passes.locate import superfluous


class FuseTopk(ir.passes.InPlacePass):
    """Moves each softmax whose only reader is a TopK over its own axis behind the TopK, if its sum does not matter.

    That is where the k weights are divided by their sum again (a router of experts), which is the softmax of the k
    scores, or where only the positions are used. Where weights tie by rounding, the scores still tell the greatest.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Move them; `modified` says whether there were any."""
        found = superfluous(model, FUSE_TOPK)
        for finding, order in found:
            scores, values, axis = finding.match.scores, order.reader.outputs[0], finding.match.axis
            assert scores is not None
            assert axis is not None
            order.reader.replace_input_with(0, scores)
            if order.normalized is not None:
                quotient = order.normalized.producer()
                assert quotient is not None
                softmax = ir.node("Softmax", [values], {"axis": axis}, name=quotient.name)
                graph_of(quotient).insert_before(quotient, softmax)
                take_over(order.normalized, softmax.outputs[0])
                remove_if_unused(quotient)
            remove_if_unused(finding.node)
        return ir.passes.PassResult(model, bool(found))


PASS = PassEntry(FUSE_TOPK, FuseTopk, "Take the TopK of the scores where that of a softmax is normalised again")
