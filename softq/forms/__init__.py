"""The forms in which a softmax appears in graphs, one form per file; `matching` and `substitutes` hold what they share.

A form looks at one node and says what it recognises there. To add one, write `softq/forms/name_of_form.py` that exposes

    FORM = Form(name="name-of-form", summary="One line that says what it is", match=match)

where `match(node, facts)` returns a `Match`, or None for a node that is something else. What cannot be converted is a
form all the same: its match carries the sentence that says why, so that nothing is skipped silently, and the form says
`verdict="refuse"` or `"keep"`. `softq inspect --forms` lists them. At most one form may match a node.

A form that is no Softmax operator also gives `open`, which writes what it found as one with the very same results:
`matching.decomposed.make_form` makes both of a function that finds a softmax which is written out, and
`matching.opening.make_body_opener` opens an operator into a body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.mask_sources import Source
from softq.graph.facts import Facts
from softq.graph.ranks import Dims
from softq.registry import Folder
from softq.site import Action, MaskedRow, MaskKind, OwnFunction, Verdict


@dataclass(frozen=True)
class Inside:
    """A softmax in an operator, as it is when the operator is opened; the attributes are those of `Site`."""

    dtype: ir.DataType | None
    shape: Dims | None
    mask: MaskKind
    masked_row: MaskedRow
    guard: str = "none"


@dataclass(frozen=True, eq=False)
class Match:
    """A softmax that a form found at a node.

    Attributes:
        operator: What the site is called, `Softmax` or `com.microsoft::Attention`.
        scores: The value that the softmax is taken of, in the layout of the weights; None where there is none, as
            inside an operator.
        weights: The value that holds the result, or None where it is inside the operator.
        axis: The reduced axis counted from the end, or None if it is not known.
        verdict: Why it is not converted whatever the user asks for; None if it can be.
        note: A sentence worth telling about a site that can be converted.
        logarithm: Whether `weights` are the logarithms of the weights.
        inside: What holds of the softmax in an operator, where the graph around it does not show it.
        function: Where it is no softmax but another function of a row: the method that is this function. What reads
            `weights` reads nothing else of what is between it and `scores`, which stays as it is for other methods.
        nodes: The nodes of such a function.
        mask: What says inside such a function which positions take part; None if nothing does.
        zero_row: Whether the function is zeros in a row that this mask hides throughout.
        guarded: Whether the method has no weights in such a row, where the function has zeros.
        weighs: Whether the product of the weights with values is part of it.
        shown: The output of an operator that holds the weights; None if there is none.
    """

    operator: str
    scores: ir.Value | None
    weights: ir.Value | None
    axis: int | None
    verdict: Verdict | None = None
    note: str = ""
    logarithm: bool = False
    inside: Inside | None = None
    function: OwnFunction | None = None
    nodes: tuple[ir.Node, ...] = ()
    mask: Source | None = None
    zero_row: bool = False
    guarded: bool = False
    weighs: bool = False
    shown: ir.Value | None = None


def refuse(why: str) -> Verdict | None:
    """Return the verdict that refuses for a reason, None if there is no reason."""
    return Verdict("refuse", why) if why else None


Open = Callable[[ir.Model, Sequence[ir.Node]], Sequence[ir.Node]]
"""What `Form.open` is."""


@dataclass(frozen=True)
class Form:
    """A form as the folder lists it.

    Attributes:
        name: Unique, in lower case with hyphens.
        summary: One line.
        match: Recognises what a node is the last node of.
        open: Takes a model of opset 18 or later and the nodes that `match` recognised and that are to be converted;
            rewrites each, with the results it had, around a node `Softmax` of the default domain whose row is one
            axis; returns these nodes in the order of the nodes given. None where the node itself is one.
        verdict: What becomes of it at best.
        stage: Forms are opened in ascending order: one that recognises another's last node inside it goes first.
        last: Whether it is asked about nodes only that no other form recognises.
    """

    name: str
    summary: str
    match: Callable[[ir.Node, Facts], Match | None]
    open: Open | None = None
    verdict: Action = "convert"
    stage: int = 0
    last: bool = False


FORMS = Folder("softq.forms", "FORM", Form, "softq.forms", "form", listed_by="softq inspect --forms")
