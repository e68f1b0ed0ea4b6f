"""The whole story of one softmax: what was recognised, why it is converted or not, what a method would cost there."""

from __future__ import annotations

import glob
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from softq.errors import UsageError
from softq.forms import FORMS
from softq.forms.matching.mask_sources import Source
from softq.graph.facts import Assumed, Facts
from softq.graph.queries import node_label, operator_label
from softq.graph.view import ModelView
from softq.methods import DEFAULT_METHOD, METHODS, OptionValue
from softq.modelfile import ModelLike, as_model
from softq.nearest import nearest
from softq.passes.analysis.candidates import Finding, shorten
from softq.passes.analysis.policy import Policy
from softq.passes.locate import findings, locate
from softq.passes.normalize import normalize
from softq.passes.replace import canonical_nodes, uses_mask
from softq.passes.rewriting.canonical import leaves_scores
from softq.plans import DEFAULT_MAX_LENGTH, check_names
from softq.rowprog import Program
from softq.rowprog.onnx import function_name
from softq.rowprog.ops import OPS
from softq.rowprog.phases import phases
from softq.rowprog.program import table_of
from softq.rowprog.ranges import largest_length, prove
from softq.rowprog.types import Kind
from softq.site import Site
from softq.visible import lines
from softq.wording import softmaxes

_FREE = {name for name, op in OPS.items() if op.cost == "free"} | {"exp_minus", "round_to"}
"""Operators that are not counted; an exponential or a rounding is what the program makes it of."""


@dataclass(frozen=True)
class Cost:
    """What a method computes for each row of a site.

    Attributes:
        method: Its name.
        options: Its options, resolved.
        length: The row's length that the figures are for: the graph's, else the greatest that is proved.
        passes: Passes over the row.
        per_element: How often each operator of the row program runs for an element.
        per_row: How often each runs once per row, reductions among them.
        table_entries: Entries of its constant tables.
        widest_integer_bits: Width of the widest integer for that length; 0 if there is none.
        largest_length: Greatest length of a row without overflow.
        function: Name of the function that takes the softmax's place, domain `softq`.
    """

    method: str
    options: Mapping[str, OptionValue]
    length: int
    passes: int
    per_element: Mapping[str, int]
    per_row: Mapping[str, int]
    table_entries: int
    widest_integer_bits: int
    largest_length: int
    function: str


@dataclass(frozen=True)
class Explanation:
    """What there is to say of one softmax.

    Attributes:
        site: The site.
        form: What its form is, one line.
        nodes: The nodes that were recognised as one softmax, with mask and guard, in the order of the graph.
        scores: Name of the value that the softmax is taken of; None where it is inside the operator.
        weights: Name of the value that consumers read; None where it is inside the operator.
        mask: What masks positions, how it is taken out of the scores, or why it stays.
        rows: Number of rows where the shape is fixed, else None.
        cost: What the method computes for each row; None for a softmax that takes none.
    """

    site: Site
    form: str
    nodes: tuple[str, ...]
    scores: str | None
    weights: str | None
    mask: str
    rows: int | None
    cost: Cost | None

    def to_json(self) -> dict[str, object]:
        """Return the explanation as plain values that `json` can write."""
        return asdict(self)


def explain(
    model: ModelLike,
    site: str,
    *,
    method: str = DEFAULT_METHOD,
    settings: Mapping[str, OptionValue] | None = None,
    masks: Sequence[str] = (),
    allow_float32: bool = False,
) -> Explanation:
    """Return the story of one softmax; the model is not changed.

    Args:
        model: A path or a model.
        site: Its id as `inspect` prints it, a glob that matches one id, or a part of one id only.
        method: The method whose cost is told.
        settings: Options of the method.
        masks: Names of tensors that are masks, as in `convert`.
        allow_float32: Whether double scores may be computed in float32, as in `convert`.

    Raises:
        InputError: the file is no usable ONNX model.
        UsageError: no softmax or more than one has the id, or the method, an option, or a mask's name is unknown.
    """
    chosen = METHODS.open(method)
    options = chosen.resolve(chosen.configure(settings or {}), False)
    work = as_model(model)
    check_names("masks", masks)
    assumed = Assumed(frozenset(masks), allow_float32)
    method = chosen.name
    locate(work, logarithms=chosen.logarithms, methods=method, assumed=assumed)
    facts = Facts(ModelView(work))
    found = findings(facts, Policy(logarithms=chosen.logarithms, methods=method))
    finding = _find(found, site)
    cost = None
    if finding.site.verdict.action != "refuse" and finding.match.operator != "Hardmax":
        own = finding.site.function
        if own is not None and own.method == method:
            options = chosen.configure(own.options)
        program = chosen.program(options, masked=_reaches_method(finding, facts))
        cost = _cost(program, method, options.to_json(), finding.site)
    return Explanation(
        site=finding.site,
        form=FORMS.get(finding.site.form).summary,
        nodes=tuple(_nodes(finding)),
        scores=None if finding.match.scores is None else finding.match.scores.name,
        weights=None if finding.behind is None else finding.behind.weights.name,
        mask=_mask(finding),
        rows=_rows(finding.site),
        cost=cost,
    )


def _find(found: Sequence[Finding], site: str) -> Finding:
    """Return the one softmax of an id, of a glob, or of a part of an id."""
    hits = [f for f in found if f.site.id == site]
    hits = hits or [f for f in found if fnmatchcase(f.site.id, site)] or [f for f in found if site in f.site.id]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise UsageError(f"{softmaxes(len(hits))} match {site!r}; {shorten([hit.site.id for hit in hits])}")
    ids = [finding.site.id for finding in found]
    near = f"nearest: {', '.join(nearest(site, ids))}; " if nearest(site, ids) else ""
    raise UsageError(f"no softmax matches {site!r}; {near}{shorten(ids)}")


def _reaches_method(finding: Finding, facts: Facts) -> bool:
    """Whether the mask is the method's, and not in the scores."""
    if finding.match.inside is None:
        lift = finding.mask.lift
        return lift is not None and (lift.total or leaves_scores(finding.site.masked_row))
    # What an operator does to its scores shows only in what it is opened into.
    opened = as_model(facts.view.model)
    locate(opened, select=[glob.escape(finding.site.id)], assumed=facts.assumed)
    normalize(opened)
    return any(uses_mask(canonical) for _, canonical in canonical_nodes(opened))


def _cost(program: Program, method: str, options: Mapping[str, OptionValue], site: Site) -> Cost:
    last = None if site.shape is None or site.axis is None else site.shape[site.axis]
    length = last if isinstance(last, int) else min(DEFAULT_MAX_LENGTH, largest_length(program))
    work = [node for node in program.nodes() if node.op not in _FREE]
    reductions = {node for phase in phases(program) for node in phase.reductions}
    tables = [node for node in program.nodes() if node.op == "table"]
    return Cost(
        method=method,
        options=options,
        length=length,
        passes=len(phases(program)),
        per_element=dict(Counter(node.op for node in work if node.kind is Kind.ROW)),
        per_row=dict(Counter(node.op for node in work if node.kind is Kind.SCALAR or node in reductions)),
        table_entries=sum(len(table_of(node)) for node in tables),
        widest_integer_bits=prove(program, max_length=length).widest_bits,
        largest_length=largest_length(program),
        function=f"softq::{function_name(program)}",
    )


def _rows(site: Site) -> int | None:
    if site.shape is None or site.axis is None:
        return None
    others = [extent for axis, extent in enumerate(site.shape) if axis - len(site.shape) != site.axis]
    known = [extent for extent in others if isinstance(extent, int)]
    return math.prod(known) if len(known) == len(others) else None


def _nodes(finding: Finding) -> list[str]:
    """Return the nodes between what the mask was applied to and what consumers read."""
    match, lift = finding.match, finding.mask.lift
    bound = match.scores if lift is None or lift.scores is None else lift.scores
    end = None if finding.behind is None or bound is None else finding.behind.weights
    below, nodes = {bound} - {None}, list[ir.Node]()
    for node in finding.container.body:
        if node is finding.node or not below.isdisjoint(node.inputs):
            below.update(node.outputs)
            nodes.append(node)
    above, found = {*finding.node.outputs, end}, list[str]()
    for node in reversed(nodes):
        if not above.isdisjoint(node.outputs):
            above.update(node.inputs)
            found.insert(0, f"{node_label(node)} ({operator_label(node)})")
    return found


def _how(source: Source) -> str:
    if source.valid_when is None:
        return "compared with a number"
    return f"true where a position is {'kept' if source.valid_when else 'masked'}"


def _mask(finding: Finding) -> str:
    mask = finding.mask
    if finding.match.scores is None:
        return "inside the operator"
    if mask.kind == "none":
        return "none was recognised"
    if mask.lift is None:
        return f"{mask.kind}; it stays in the scores: {mask.why}"
    sources = " and ".join(f"{source.value.name} ({_how(source)})" for source in mask.lift.sources)
    source = f"{mask.kind}; {sources}"
    if mask.lift.total or leaves_scores(finding.site.masked_row):
        return f"{source} becomes the method's mask"
    return f"{source} is known to calibration, and stays in the scores for the rows that it masks fully"


def to_text(told: Explanation) -> str:
    """Return what `softq explain` prints."""
    site, cost = told.site, told.cost
    shape = "unknown" if site.shape is None else " x ".join("?" if d is None else str(d) for d in site.shape)
    facts: list[tuple[str, str]] = [
        ("site", site.id),
        ("where", " / ".join(site.container) or "the main graph"),
        ("what", f"{site.operator}: {told.form}"),
        *(("" if i else "nodes", node) for i, node in enumerate(told.nodes or [""])),
        ("scores", f"{told.scores or 'inside the operator'}, {site.dtype}, {shape}, axis {site.axis}"),
        ("rows", "depends on the input" if told.rows is None else f"{told.rows:,}"),
        ("mask", told.mask),
        ("masked row", _MASKED_ROWS[site.masked_row]),
        ("guard", site.guard),
        ("used as", f"{site.role} ({site.consumer})"),
        ("verdict", f"{site.verdict.action}: {site.verdict.reason}"),
    ]
    if cost is not None:
        settings = " ".join(f"{k}={v}" for k, v in cost.options.items())
        widest = f"{cost.widest_integer_bits} bits" if cost.widest_integer_bits else "no integers"
        facts += [
            ("", ""),
            ("method", f"{cost.method} {settings}".rstrip()),
            ("function", cost.function),
            ("passes", f"{cost.passes} over a row of {cost.length:,}"),
            ("an element", _counts(cost.per_element)),
            ("a row", _counts(cost.per_row)),
            ("tables", f"{cost.table_entries} entries"),
            ("widest", f"{widest}; no overflow up to rows of {cost.largest_length:,}"),
            ("accuracy", "not known without data: softq convert, then softq check with your data"),
        ]
    return lines(f"{name:<11} {text}" for name, text in facts)


_MASKED_ROWS: Mapping[str, str] = {
    "nan": "a row without any unmasked element is NaN",
    "zero": "a row without any unmasked element is zeros",
    "uniform": "a row without any unmasked element is 1/N everywhere",
    "scores": "a row without any unmasked element is the softmax of its own scores: the mask is finite",
}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "nothing"
