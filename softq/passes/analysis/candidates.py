"""The candidates of a model: each softmax that a form claims, with its mask, its guard and what its result is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from softq.errors import InputError, SoftqError
from softq.forms import FORMS, Form, Inside, Match
from softq.forms.matching.guards import Behind, guard_row, look_behind
from softq.forms.matching.mask_sources import Lift
from softq.forms.matching.masks import NO_MASK, FoundMask, find_mask
from softq.forms.matching.roles import Usage, find_usage, is_chosen, tell_choices
from softq.forms.replaced import DOMAIN
from softq.forms.written_function import find_around
from softq.graph.facts import Facts, drop_inferred_names
from softq.graph.queries import node_label, operator_label
from softq.graph.view import Container, function_label
from softq.limits import current
from softq.passes.analysis.readers import OrderOnly, find_logarithms, find_order_only
from softq.site import Site, Verdict

_SHOWN = 12
"""How many site ids an error message lists."""

_DTYPE_NAMES = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}


@dataclass(frozen=True, eq=False)
class Finding:
    """A site with the nodes and values it was found at.

    Attributes:
        site: What is said about it.
        node: The node that carries the site.
        container: Where the node is.
        match: What the form recognised.
        mask: The mask in front of it.
        behind: What follows it; None where the result is inside an operator.
        order: The one reader that needs no more than the order of the weights; None if there is more.
        why: A sentence that names the node which shows the role.
        around: The function that a softmax is together with what stands in front of it; None if there is none.
    """

    site: Site
    node: ir.Node
    container: Container
    match: Match
    mask: FoundMask
    behind: Behind | None
    order: OrderOnly | None
    why: str = ""
    around: Match | None = None


def find_candidates(facts: Facts) -> list[Finding]:
    """Return every softmax that a form claims, before any policy: its verdict says whether it could be converted."""
    found: list[Finding] = []
    taken: dict[str, int] = {}
    turns = [[form for form in FORMS.entries().values() if form.last == last] for last in (False, True)]
    for container in facts.view.containers:
        if container.function is not None and container.function[0] == DOMAIN:
            continue
        for index, node in enumerate(container.body):
            form, match = _match(node, facts, turns)
            if match is not None:
                if len(found) == (most := current().softmaxes):
                    raise InputError(
                        f"the model has more than {most} softmaxes, which is the limit (--limit-softmaxes changes it)"
                    )
                found.append(
                    _make_finding(form, match, node, _name_site(container, node, index, taken), container, facts)
                )
    return found


def _match(node: ir.Node, facts: Facts, turns: Sequence[Sequence[Form]]) -> tuple[str, Match | None]:
    for asked in turns:
        hits = [(form.name, match) for form in asked if (match := form.match(node, facts)) is not None]
        if len(hits) > 1:
            raise SoftqError(f"the forms {' and '.join(name for name, _ in hits)} both claim node {node.name!r}")
        if hits:
            return hits[0]
    return "", None


def _name_site(container: Container, node: ir.Node, index: int, taken: dict[str, int]) -> str:
    name = next((output.name for output in node.outputs if output.name), f"{operator_label(node)}#{index}")
    site = "/".join((*container.path, name))
    taken[site] = taken.get(site, 0) + 1
    while taken[site] > 1:
        # The same id once more: count up until it is new.
        site = f"{site}#{taken[site]}"
        taken[site] = taken.get(site, 0) + 1
    return site


def _make_finding(form: str, match: Match, node: ir.Node, site_id: str, container: Container, facts: Facts) -> Finding:
    own = match.function is not None
    mask = NO_MASK if match.scores is None or own else find_mask(match.scores, facts)
    if match.mask is not None:
        mask = FoundMask("where", "zero" if match.zero_row else "nan", Lift(match.scores, (), (match.mask,)))
    behind = None if match.weights is None else look_behind(match.weights, facts)
    # Such a form is attention by its definition, also where a divisor stands between the weights and the product.
    usage = Usage("attention", "MatMul") if own else _find_usage(match, behind, node, facts)
    pooled = usage.role == "attention" and usage.consumer == "Mul"
    if (pooled or usage.role == "other") and match.scores is not None and is_chosen(match.scores):
        usage = replace(usage, role="router", why="its scores are what a TopK has picked")
    shape = facts.shape(match.scores)
    shape = facts.shape(match.weights) if shape is None else shape
    dtype = facts.dtype(match.scores) or facts.dtype(match.weights)
    guard = "none" if behind is None else behind.guard
    found = match.inside or Inside(dtype, shape, mask.kind, guard_row(mask.masked_row, guard), guard)
    has_rank = found.shape is not None and len(found.shape) >= 4
    has_heads = usage.role in {"attention", "selector"} and has_rank and match.axis in {-1, -2}
    verdict = match.verdict
    deferred = [] if match.weights is None else [found.node for found in find_logarithms(match.weights)]
    if verdict is None and (others := [node_label(log) for log in usage.logs if log not in deferred]):
        why = "takes the logarithm of its weights after more than moves and casts, and a weight of zero would be -inf"
        verdict = Verdict("keep", f"Log of node {others[0]} {why}")
    if verdict is None and container.function is not None and container.function not in facts.view.reached:
        verdict = Verdict("keep", f"nothing calls the function {function_label(container.function)} that holds it")
    site = Site(
        id=site_id,
        container=container.path,
        operator=match.operator,
        form=form,
        axis=match.axis,
        head_axis=-3 if has_heads else None,
        dtype="unknown" if found.dtype is None else _DTYPE_NAMES.get(found.dtype, found.dtype.name.lower()),
        shape=None if found.shape is None else drop_inferred_names(found.shape),
        mask=found.mask,
        masked_row=found.masked_row,
        guard=found.guard,
        role=usage.role,
        consumer=usage.consumer,
        verdict=verdict or Verdict("convert", "; ".join(filter(None, (match.note, usage.note)))),
        logarithm=match.logarithm or bool(usage.logs),
        function=match.function,
    )
    around = find_around(node, facts) if verdict is None else None
    order = None if own else find_order_only(match, facts)
    return Finding(site, node, container, match, mask, behind, order, usage.why, around)


def _find_usage(match: Match, behind: Behind | None, node: ir.Node, facts: Facts) -> Usage:
    if behind is not None:
        usage = find_usage(behind.weights, match.scores, match.axis, facts)
        if not match.logarithm:
            return usage
        # A product with logarithms is no attention, and their logarithm is nobody's.
        weighs = usage.role in {"attention", "selector", "feature-map"}
        role, why = ("other", "a product reads logarithms") if weighs else (usage.role, usage.why)
        return replace(usage, role=role, logs=(), why=why)
    # The product with the values is inside the operator; what comes out is no longer a weight.
    if not match.weighs and "ttention" not in node.op_type:
        return Usage("other", "nothing", why="its weights stay in the operator")
    usage = Usage("attention", "itself")
    shown = match.shown and tell_choices(usage, "the operator", match.shown, match.axis, facts)
    return shown or usage


def shorten(ids: Sequence[str]) -> str:
    """Return the ids for a message."""
    if not ids:
        return "the model has none"
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"there are: {', '.join(ids[:_SHOWN])}{more}"
