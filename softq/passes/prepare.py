"""Bring a model into the form that importers of compilers take: standard operators, sizes as constants."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from softq.errors import SoftqError
from softq.modelfile import as_model
from softq.passes import PASSES, PassEntry
from softq.passes.fix_dimensions import FixDimensions

_FIRST = ("expand-functions", "raise-opset")

_AGAIN = (
    "infer-shapes",
    "expand-contrib",
    "expand-quantized",
    "expand-quantized-elementwise",
    "expand-layers",
    "expand-attentions",
    "expand-rotations",
    "expand-operators",
    "expand-fourier",
    "pad-transposed",
    "rewrite-pow",
    "rewrite-bool-reductions",
    "lift-constants",
    "drop-no-ops",
    "fold-shapes",
    "fold-constants",
    "fold-normalizations",
    "merge-duplicates",
    "drop-unused",
    "transpose-weights",
)
"""Until none of them changes anything."""

_ROUNDS = 64
"""More than any model needs: a round that changes something folds, removes or opens at least one node."""


class Prepare(ir.passes.InPlacePass):
    """Rewrites a model in standard operators, small, with types and shapes as far as ONNX can infer them.

    Functions of softq's domain stay as calls.

    Args:
        dimensions: Numbers for named dimensions of the inputs; the result is for these alone.
    """

    def __init__(self, dimensions: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.dimensions = dict(dimensions or {})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Prepare the model; `modified` says whether it was not.

        Raises:
            InputError: no input has a dimension of the name.
            RefusalError: a function cannot be opened, or the operator set cannot be raised to 18.
            SoftqError: the passes undo each other, which is an error of softq.
        """
        first = [PASSES.get(name).factory() for name in _FIRST]
        lifted = (PASSES.get(name).factory() for name in ("lift-constants", "forget-shapes"))
        modified = _run(model, *first, FixDimensions(self.dimensions), *lifted)
        for _ in range(_ROUNDS):
            if not _run(model, *(PASSES.get(name).factory() for name in _AGAIN)):
                return ir.passes.PassResult(model, modified)
            modified = True
        raise SoftqError(f"preparing the model found no end in {_ROUNDS} rounds")


def _run(model: ir.Model, *steps: ir.passes.InPlacePass) -> bool:
    modified = False
    for step in steps:
        modified |= step(model).modified
    return modified


def prepare(model: ir.Model, dimensions: Mapping[str, int] | None = None) -> ir.Model:
    """Return an equal model, prepared; the argument is not changed, and weights are shared with it: see `Prepare`."""
    return Prepare(dimensions)(as_model(model)).model


PASS = PassEntry("prepare", Prepare, "Bring a model into standard operators, with sizes as constants, for compilers")
