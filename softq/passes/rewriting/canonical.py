"""The one form that the passes behind `normalize` meet: a softmax over the last axis, its mask beside it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.graph.queries import operand
from softq.site import MaskedRow, Site

CANONICAL_KEY = "softq.canonical"
"""Key under which `normalize` leaves a `Canonical` in the meta of each standard `Softmax` that is to be replaced."""


@dataclass(frozen=True)
class Mask:
    """A boolean tensor, broadcastable to the scores, that says which positions take part.

    Attributes:
        condition: The boolean value in the graph.
        valid_when: The value of `condition` at positions that take part.
        total: Whether some position takes part in every row: rows that were masked throughout are not masked.
    """

    condition: ir.Value
    valid_when: bool
    total: bool = False


@dataclass(frozen=True)
class Canonical:
    """What a canonical softmax node stands for.

    Attributes:
        site: The site as `locate` found it.
        scores: Scores with the row on the last axis: the node's input, or the same without the mask if it was lifted.
        mask: The lifted mask; None where the mask (if any) is still part of the scores.
        probabilities: The value that consumers read: the node's output, or the output of the guard behind it, which
            is then subsumed by `nan_becomes_zero`.
        nan_becomes_zero: Whether the original turns the NaN rows of its softmax to zeros (a lifted guard).
        zero_rows: The condition, one boolean per row, of a Where behind `probabilities` that makes rows zeros.
        whole: Whether it stands for more than the node: for all between `scores` and the node's output.
    """

    site: Site
    scores: ir.Value
    mask: Mask | None
    probabilities: ir.Value
    nan_becomes_zero: bool
    zero_rows: ir.Value | None = None
    whole: bool = False


def scores_of(softmax: ir.Node) -> ir.Value:
    """Return what a softmax is taken of."""
    scores = operand(softmax, 0)
    assert scores is not None, "a softmax has an input"
    return scores


def leaves_scores(row: MaskedRow) -> bool:
    """Return whether a lifted mask is given to the method.

    Under a finite mask a fully masked row keeps weights (uniform, or those of its scores): there the mask stays in the
    scores, where it is far enough below to get the weight zero in every other row.
    """
    return row in ("nan", "zero")
