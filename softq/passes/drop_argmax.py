"""Take the ArgMax of the scores where only the ArgMax of a softmax is used."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.edits import remove_if_unused
from softq.passes import PassEntry
from softq.passes.analysis.readers import DROP_ARGMAX
from softq.passes.locate import superfluous


class DropArgmax(ir.passes.InPlacePass):
    """Drops each softmax (and LogSoftmax) whose only reader is an ArgMax over its own axis.

    The result is that of exact arithmetic: where weights tie by rounding, the scores still tell which is the greatest.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Drop them; `modified` says whether there were any."""
        found = superfluous(model, DROP_ARGMAX)
        for finding, order in found:
            scores = finding.match.scores
            assert scores is not None
            order.reader.replace_input_with(0, scores)
            remove_if_unused(finding.node)
        return ir.passes.PassResult(model, bool(found))


PASS = PassEntry(DROP_ARGMAX, DropArgmax, "Take the ArgMax of the scores where only that of a softmax is used")
