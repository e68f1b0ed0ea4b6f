"""Bringing a model into the form that importers of compilers take: standard operators, sizes as constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from softq.errors import SoftqError
from softq.modelfile import as_model
from softq.passes.drop_no_ops import DropNoOps
from softq.passes.drop_unused import DropUnused
from softq.passes.expand_contrib import ExpandContrib
from softq.passes.expand_functions import ExpandFunctions
from softq.passes.expand_operators import ExpandOperators
from softq.passes.expand_quantized import ExpandQuantized
from softq.passes.fix_dimensions import FixDimensions
from softq.passes.fold_constants import FoldConstants
from softq.passes.fold_shapes import FoldShapes
from softq.passes.infer_shapes import InferShapes
from softq.passes.lift_constants import LiftConstants
from softq.passes.merge_duplicates import MergeDuplicates
from softq.passes.raise_opset import RaiseOpset
from softq.passes.rewrite_bool_reductions import RewriteBoolReductions
from softq.passes.rewrite_pow import RewritePow
from softq.passes.transpose_weights import TransposeWeights

_ROUNDS = 64
"""More than any model needs: a round that changes something folds, removes or opens at least one node."""


def prepare(model: ir.Model, dimensions: Mapping[str, int] | None = None) -> ir.Model:
    """Return an equal model of standard operators, small, with types and shapes as far as ONNX can infer them.

    Functions of softq's domain stay as calls. The argument is not changed; weights are shared with it, not copied.

    Args:
        model: The model.
        dimensions: Numbers for named dimensions of the inputs; the result is for these alone.

    Raises:
        InputError: no input has a dimension of the name.
        RefusalError: a function cannot be opened, or the operator set cannot be raised to 18.
        SoftqError: the passes undo each other, which is an error of softq.
    """
    result = as_model(model)
    once: Sequence[ir.passes.InPlacePass] = (
        ExpandFunctions(),
        RaiseOpset(),
        FixDimensions(dimensions or {}),
        LiftConstants(),
    )
    for step in once:
        step(result)
    again: Sequence[ir.passes.InPlacePass] = (
        InferShapes(),
        ExpandContrib(),
        ExpandQuantized(),
        ExpandOperators(),
        RewritePow(),
        RewriteBoolReductions(),
        LiftConstants(),
        DropNoOps(),
        FoldShapes(),
        FoldConstants(),
        MergeDuplicates(),
        DropUnused(),
        TransposeWeights(),
    )
    for _ in range(_ROUNDS):
        modified = False
        for step in again:
            modified |= step(result).modified
        if not modified:
            return result
    raise SoftqError(f"preparing the model found no end in {_ROUNDS} rounds")
