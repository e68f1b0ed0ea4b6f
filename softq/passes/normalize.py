"""Bring each softmax that is to be converted into one form: over the last axis, its mask beside it.

The rewritten graph computes what it did before; what the later passes need to know hangs in `node.meta` as a
`Canonical`. A lifted mask stays in the graph too: `Canonical.scores` and `Canonical.mask` name the parts, and whoever
uses them makes the masked scores superfluous.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import onnx_ir as ir

from softq.errors import RefusalError
from softq.forms import FORMS
from softq.forms.matching.guards import ISNAN_WHERE, guard_row, look_behind
from softq.forms.matching.masks import find_mask
from softq.forms.matching.operators import find_axis
from softq.forms.written_function import find_around
from softq.graph.facts import Facts
from softq.graph.queries import chain_above, is_op, operand
from softq.graph.rewriter import Rewriter
from softq.graph.view import ModelView
from softq.passes import PassEntry
from softq.passes.locate import is_located, locate
from softq.passes.rewriting.canonical import (
    CANONICAL_KEY,
    Canonical,
    Mask,
    bypass,
    move_axis_last,
    narrow,
    scores_of,
    set_axis,
    unflatten,
)
from softq.passes.rewriting.mask_lifting import MaskLifter
from softq.site import META_KEY, Site

_NEAR = 4
"""Values above the scores whose types and shapes later passes read."""

MINIMUM_OPSET = 18
"""What a model is raised to: the version that softq's functions are written for."""


class Normalize(ir.passes.InPlacePass):
    """Rewrites each site with the verdict `convert` to the canonical form; a model without sites is located first.

    A model below opset 18 is raised to it. In one that has nothing to convert nothing changes.

    Args:
        facts: Facts of the model as it is, so that inference need not run again; None to ask anew.
    """

    def __init__(self, facts: Facts | None = None) -> None:
        self._facts = facts

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Normalize the model; `modified` says whether anything changed.

        Raises:
            RefusalError: the model cannot be raised to opset 18, or a site was lost on the way.
        """
        if not is_located(model):
            locate(model)
        if not _waiting(model):
            return ir.passes.PassResult(model, modified=False)
        facts = self._facts
        raised = _raise(model, facts)
        opened = _open(model)
        rewriter = Rewriter(model, None if facts is None or raised or opened else facts.ask_again())
        for node, site in _waiting(model):
            _normalize(rewriter, node, site, raised)
        return ir.passes.PassResult(model, modified=raised or opened or rewriter.modified)


def normalize(model: ir.Model) -> bool:
    """Normalize `model` in place and return whether it changed; see `Normalize`."""
    return Normalize()(model).modified


def _waiting(model: ir.Model) -> list[tuple[ir.Node, Site]]:
    """Return the nodes of the sites to be converted that are not canonical yet."""
    sites = ((node, node.meta.get(META_KEY)) for node in ModelView(model).nodes if CANONICAL_KEY not in node.meta)
    return [(node, site) for node, site in sites if isinstance(site, Site) and site.takes_method]


def _raise(model: ir.Model, facts: Facts | None) -> bool:
    """Raise the opset if need be; the sites travel in the meta of their nodes."""
    from softq.passes.raise_opset import RaiseOpset

    if ModelView(model).containers[0].opset >= MINIMUM_OPSET:
        return False
    waiting = _waiting(model)
    before = {site.id for _, site in waiting}
    # The axis of an old softmax means nothing without the rank, which is proved here where inference gives up.
    rewriter = Rewriter(model, None if facts is None else facts.ask_again())
    for node, _ in waiting:
        for value in islice(chain_above(operand(node, 0)), _NEAR):
            rewriter.annotate(value)
    modified = RaiseOpset(rewriter.facts)(model).modified
    lost = before - {site.id for _, site in _waiting(model)}
    if lost:
        raise RefusalError(f"site {min(lost)} is no longer there after the model was raised to opset {MINIMUM_OPSET}")
    return modified


def _open(model: ir.Model) -> bool:
    """Write every site as a Softmax operator; return whether any was something else."""
    modified = False
    names = {site.form for _, site in _waiting(model)}
    for form in sorted((form for form in FORMS.entries().values() if form.name in names), key=lambda form: form.stage):
        if form.open is None:
            continue
        # A node that was a part of what is open by now may be gone.
        name = form.name
        waiting = [(node, site) for node, site in _waiting(model) if site.form == name]
        for (node, site), softmax in zip(waiting, form.open(model, [node for node, _ in waiting]), strict=True):
            node.meta.pop(META_KEY)
            softmax.meta[META_KEY] = site
        modified = True
    return modified


def _normalize(rewriter: Rewriter, node: ir.Node, site: Site, raised: bool) -> None:
    if site.function is not None:
        match = find_around(node, rewriter.facts) or FORMS.get(site.form).match(node, rewriter.facts)
        if match is None or match.scores is None or match.function != site.function:
            raise RefusalError(f"site {site.id}: its function is not found again after the model was changed")
        mask = None
        if match.mask is not None:
            condition = MaskLifter(rewriter, node).to_boolean(match.mask.value)
            mask = Mask(condition, bool(match.mask.valid_when))
        node.meta[CANONICAL_KEY] = Canonical(
            site, match.scores, mask, node.outputs[0], nan_becomes_zero=match.guarded, whole=True
        )
        return
    if not is_op(node, "Softmax") or operand(node, 0) is None:
        raise RefusalError(f"site {site.id}: node {node.name!r} is a {node.op_type}, which its form does not open")
    if raised and site.axis == -1:
        unflatten(rewriter, node)
    axis = find_axis(node, rewriter.facts)
    if axis.axis is None or axis.flattened:
        raise RefusalError(f"site {site.id}: {axis.refusal or 'its row spans several axes'}")
    bypass(rewriter, node)
    _annotate(rewriter, node)
    moved = axis.axis != -1
    if moved:
        move_axis_last(rewriter, node, axis.axis)
    set_axis(rewriter, node)
    if scores_of(node).dtype == ir.DataType.DOUBLE:
        narrow(rewriter, node)
    behind = look_behind(node.outputs[0], rewriter.facts)
    # Behind the Transpose that moves the axis back, the weights have another layout than the softmax, and so has
    # a mask in front: there both stay in the graph, which is as right and only less clever.
    found = find_mask(scores_of(node), rewriter.facts)
    # The logarithm is that of the masked scores themselves.
    lift = None if moved or site.logarithm else found.lift
    scores, mask = (scores_of(node), None) if lift is None else MaskLifter(rewriter, node).lift(lift)
    # The mask of an operator shows only once it is opened.
    row = guard_row(found.masked_row, behind.guard)
    site = replace(site, mask=found.kind, masked_row=row, guard=behind.guard)
    node.meta[CANONICAL_KEY] = Canonical(
        site=site,
        scores=scores,
        mask=mask,
        probabilities=behind.weights if behind.guard == ISNAN_WHERE else node.outputs[0],
        nan_becomes_zero=behind.guard == ISNAN_WHERE,
        zero_rows=behind.zero_rows,
    )


def _annotate(rewriter: Rewriter, node: ir.Node) -> None:
    """Write down types and shapes that the later passes read, where the model is silent and inference is not."""
    stack = [node.outputs[0], look_behind(node.outputs[0], rewriter.facts).weights]
    values: list[ir.Value | None] = [*stack]
    for value in islice(chain_above(scores_of(node)), _NEAR):
        above = value.producer()
        values += [value, *(() if above is None or above.domain else above.inputs)]
    seen = set[ir.Value]()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for reader in current.consumers():
            values.extend((*reader.outputs, *reader.inputs))
            if is_op(reader, "Identity", "Cast", "Where", "Transpose"):
                stack.extend(reader.outputs)
    for known in values:
        if known is not None:
            rewriter.annotate(known)
    rewriter.say(node.outputs[0], rewriter.facts.dtype(scores_of(node)), rewriter.facts.shape(scores_of(node)))


PASS = PassEntry("normalize", Normalize, "Bring each softmax to one form: last axis, its mask beside it")
