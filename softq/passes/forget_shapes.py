"""Drop what a model says of shapes where it does not follow from its inputs."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.facts import UNKNOWN, copy_without_weights
from softq.graph.inference import infer_shapes
from softq.graph.view import ModelView
from softq.passes import PassEntry


class ForgetShapes(ir.passes.InPlacePass):
    """Replaces shapes of results that contradict what ONNX infers without them, and lengths of outputs' axes of which
    it infers nothing.

    Exporters write wrong ones at outputs, which runtimes do not heed: lengths of the example that was traced, a batch
    where there is none, other axes.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Compare; `modified` says whether a shape was dropped."""
        bare = copy_without_weights(model)
        for container in ModelView(bare).containers:
            # Shapes of weights are no claims: without them inference knows no product.
            for node in (node for node in container.body if node.domain != UNKNOWN):
                for value in node.outputs:
                    value.shape = None
        inferred = ir.from_proto(infer_shapes(ir.to_proto(bare)))
        modified = False
        for ours, theirs in zip(ModelView(model).containers, ModelView(inferred).containers, strict=True):
            for node, twin in zip(ours.body, list(theirs.body)[-len(ours.body) :], strict=True):
                for value, known in zip(node.outputs, twin.outputs, strict=True):
                    shape = _believed(value, known.shape)
                    if shape != value.shape:
                        value.shape, modified = shape, True
        return ir.passes.PassResult(model, modified)


def _believed(value: ir.Value, known: ir.Shape | None) -> ir.Shape | None:
    said = value.shape
    if said is None or (known is None and not value.is_graph_output()):
        return said
    if known is None:
        return ir.Shape([None if isinstance(dim, int) else dim for dim in said])
    if len(said) != len(known):
        return known
    pairs = zip(said, known, strict=True)
    return known if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs) else said


PASS = PassEntry("forget-shapes", ForgetShapes, "Drop shapes that do not follow from the inputs")
