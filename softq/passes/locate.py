"""Find every softmax of a model and say what happens to it and why; changes nothing but `meta`.

The rules of `softq/passes/_forms` say what is a candidate; this pass walks all containers, works out mask, guard and
use, and applies the policy: attention is converted; classifier heads, samplers, routers, detectors and everything else
stay exact unless asked for, because what they decide (a class, a token, an expert) is a discrete error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import onnx_ir as ir

from softq.errors import SoftqError, UsageError
from softq.methods import METHODS
from softq.passes import PassEntry
from softq.passes._forms import FORMS, Inside, Match
from softq.passes._forms._facts import ASSUMED_KEY, NOTHING, Assumed, Facts, named
from softq.passes._forms._guards import Behind, look_behind, masked_row
from softq.passes._forms._lifts import Lift
from softq.passes._forms._masks import NO_MASK, FoundMask, find_mask
from softq.passes._forms._roles import Usage, find_usage, is_chosen
from softq.passes._forms.replaced import DOMAIN
from softq.passes._forms.written_function import find_around
from softq.passes._graph import Container, ModelView, function_label, operator_label
from softq.passes._logarithms import find_logarithms
from softq.passes._superfluous import OrderOnly, find_order_only
from softq.site import META_KEY, OwnFunction, Role, Site, Verdict

SITES_KEY = "softq.sites"
"""Key under which `Locate` leaves the tuple of all sites in `ir.Model.meta`."""

_SHOWN = 12
"""How many site ids an error message lists."""

_DTYPE_NAMES = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}
_EXACT_ONLY = (
    "exact only: the logarithm of its weights is taken, and with another method a weight of zero would be -inf"
)
_KEPT: dict[Role, str] = {
    "classifier": "a classifier head or output: its probabilities are the interface",
    "router": "a router: another choice by TopK is a discrete error",
    "sampler": "a sampler: what is drawn from it is a discrete decision",
    "detector": "a part of a detector or of a sampling grid: small weights move coordinates",
    "other": "not recognised as attention",
}


@dataclass(frozen=True, eq=False)
class Finding:
    """A site with the nodes and values it was found at.

    Attributes:
        site: What is said about it.
        node: The node that carries the site.
        container: Where the node is.
        match: What the rule recognised.
        mask: The mask in front of it.
        behind: What follows it; None where the result is inside an operator.
        order: The one reader that needs no more than the order of the weights; None if there is more.
        around: The function that a softmax is together with what stands in front of it; None if there is none.
    """

    site: Site
    node: ir.Node
    container: Container
    match: Match
    mask: FoundMask
    behind: Behind | None
    order: OrderOnly | None
    around: Match | None = None


class Locate(ir.passes.InPlacePass):
    """Leave each candidate's `Site` in the meta of its node, and the tuple of all in the meta of the model.

    Args:
        all_sites: Convert every site that can be, whatever it is used for.
        select: Globs over site ids; if any are given, exactly the sites that match are converted, where they can be.
    """

    def __init__(self, all_sites: bool = False, select: Sequence[str] = ()) -> None:
        super().__init__()
        self.all_sites = all_sites
        self.select = tuple(select)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Locate the sites; the model itself stays as it is."""
        locate(model, all_sites=self.all_sites, select=self.select)
        return ir.passes.PassResult(model, modified=False)


@dataclass(frozen=True)
class Policy:
    """What is to be converted; see `locate`."""

    all_sites: bool = False
    select: Sequence[str] = ()
    rewrites: Collection[str] | None = None
    logarithms: Collection[str] | bool = False
    methods: Mapping[str, str] | str = ""


def locate(
    model: ir.Model,
    *,
    all_sites: bool = False,
    select: Sequence[str] = (),
    rewrites: Collection[str] | None = None,
    logarithms: Collection[str] | bool = False,
    methods: Mapping[str, str] | str = "",
    assumed: Assumed = NOTHING,
) -> tuple[Site, ...]:
    """Return every softmax of `model` with verdict and reason, and leave the sites in the meta of nodes and model.

    Args:
        model: The model; only `meta` is written.
        all_sites: Convert every site that can be, whatever it is used for.
        select: Globs over site ids; if any are given, exactly the sites that match are converted, where they can be.
        rewrites: Ids of the sites that are made superfluous because only their order is used; by default all such.
        logarithms: Whether the method gives logarithms of weights, or the ids of the sites that get such a method.
        methods: Name of the method to come, or that of each site that gets one by id: a site that is another function
            than the softmax takes that function's method only.
        assumed: What the user says of the model that its graph does not prove.

    Raises:
        UsageError: a glob matches no site, both options are given, or the model has no value that is assumed a mask;
            the message lists what there is.
    """
    _check_masks(model, assumed)
    model.meta[ASSUMED_KEY] = assumed
    found = findings(Facts(ModelView(model)), Policy(all_sites, select, rewrites, logarithms, methods))
    sites = tuple(finding.site for finding in found)
    carriers = {finding.node: finding.site for finding in found}
    for node in all_nodes(model):
        if node in carriers:
            node.meta[META_KEY] = carriers[node]
        else:
            node.meta.pop(META_KEY, None)
    model.meta[SITES_KEY] = sites
    return sites


def _check_masks(model: ir.Model, assumed: Assumed) -> None:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    for name in sorted(assumed.masks - {value.name for value in values}):
        inputs = shortened([str(value.name) for value in model.graph.inputs])
        raise UsageError(
            f"no tensor of the main graph is called {name!r} that could be a mask; of its inputs, {inputs}"
        )


def superfluous(model: ir.Model, kind: str) -> list[tuple[Finding, OrderOnly]]:
    """Return the softmaxes that the pass `kind` makes superfluous; a model without sites is judged by the default."""
    located = SITES_KEY in model.meta and any(META_KEY in node.meta for node in all_nodes(model))
    found: list[tuple[Finding, OrderOnly]] = []
    for finding in findings(Facts(ModelView(model))):
        site = finding.node.meta.get(META_KEY) if located else finding.site
        if finding.order is not None and isinstance(site, Site) and site.rewrite == kind == finding.order.kind:
            found.append((finding, finding.order))
    return found


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of every container of `model`."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def findings(facts: Facts, policy: Policy | None = None) -> tuple[Finding, ...]:
    """Return the sites of a model with the nodes and values they were found at; writes nothing.

    Raises:
        UsageError: a glob matches no site, or all sites and a selection are asked for.
    """
    policy = Policy() if policy is None else policy
    if policy.all_sites and policy.select:
        raise UsageError(f"all sites and a selection of sites ({', '.join(policy.select)}) cannot be asked for at once")
    found: list[Finding] = []
    taken: dict[str, int] = {}
    for container in facts.view.containers:
        if container.function is not None and container.function[0] == DOMAIN:
            continue
        for index, node in enumerate(container.body):
            form, match = _match(node, facts)
            if match is not None:
                found.append(_finding(form, match, node, _site_id(container, node, index, taken), container, facts))
    ids = [finding.site.id for finding in found]
    chosen: set[str] | None = None if not policy.select and policy.rewrites is None else set()
    for glob in policy.select:
        hits = {i for i in ids if i == glob or fnmatchcase(i, glob)}
        if not hits:
            raise UsageError(f"no softmax matches {glob!r}; {shortened(ids)}")
        chosen = hits | (chosen or set())
    judged = [_judge(finding, policy, chosen) for finding in found]
    inside = {
        node: finding.site
        for finding in judged
        if finding.match.function is not None and finding.site.verdict.action == "convert"
        for node in finding.match.nodes
        if node is not finding.node
    }
    return tuple(_part_of(finding, inside.get(finding.node)) for finding in judged)


def _part_of(finding: Finding, whole: Site | None) -> Finding:
    """Keep what is a part of a function that is converted."""
    if whole is None:
        return finding
    verdict = Verdict("keep", f"it is a part of {whole.id}, which is converted as a whole")
    return replace(finding, site=replace(finding.site, verdict=verdict, rewrite=""))


def _match(node: ir.Node, facts: Facts) -> tuple[str, Match | None]:
    for last in (False, True):
        asked = [form for form in FORMS.entries().values() if form.last == last]
        hits = [(form.name, match) for form in asked if (match := form.match(node, facts)) is not None]
        if len(hits) > 1:
            raise SoftqError(f"the forms {' and '.join(name for name, _ in hits)} both claim node {node.name!r}")
        if hits:
            return hits[0]
    return "", None


def said(function: OwnFunction) -> str:
    """Return a function in words: its method and the options that are not the default ones."""
    method = METHODS.get(function.method)
    usual = method.resolve(method.configure({}), False).to_json()
    options = {name: value for name, value in function.options.items() if value != usual[name]}
    options |= {name: "/".join(f"{number:g}" for number in numbers) for name, numbers in function.fitted.items()}
    with_options = " with " + ", ".join(f"{name}={value}" for name, value in options.items()) if options else ""
    return f"the function of the method {method.name}{with_options}"


def _site_id(container: Container, node: ir.Node, index: int, taken: dict[str, int]) -> str:
    name = next((output.name for output in node.outputs if output.name), f"{operator_label(node)}#{index}")
    site = "/".join((*container.path, name))
    taken[site] = taken.get(site, 0) + 1
    while taken[site] > 1:
        # The same id once more: count up until it is new.
        site = f"{site}#{taken[site]}"
        taken[site] = taken.get(site, 0) + 1
    return site


def shortened(ids: Sequence[str]) -> str:
    """Return the ids for a message."""
    if not ids:
        return "the model has none"
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"there are: {', '.join(ids[:_SHOWN])}{more}"


def _finding(form: str, match: Match, node: ir.Node, site_id: str, container: Container, facts: Facts) -> Finding:
    own = match.function is not None
    mask = NO_MASK if match.scores is None or own else find_mask(match.scores, facts)
    if match.hidden is not None:
        mask = FoundMask("where", match.hidden.masked_row, Lift(match.scores, (), (match.hidden.source,)))
    behind = None if match.weights is None else look_behind(match.weights, facts)
    # Such a form is attention by its definition, also where a divisor stands between the weights and the product.
    usage = Usage("attention", "MatMul") if own else _usage(match, behind, node, facts)
    if usage.role == "other" and match.scores is not None and is_chosen(match.scores):
        usage = replace(usage, role="router")
    shape = facts.shape(match.scores)
    shape = facts.shape(match.weights) if shape is None else shape
    dtype = facts.dtype(match.scores) or facts.dtype(match.weights)
    guard = "none" if behind is None else behind.guard
    found = match.inside or Inside(dtype, shape, mask.kind, masked_row(mask.masked_row, guard), guard)
    has_rank = found.shape is not None and len(found.shape) >= 4
    has_heads = usage.role == "attention" and has_rank and match.axis in {-1, -2}
    verdict = match.verdict
    deferred = [] if match.weights is None else [found.node for found in find_logarithms(match.weights)]
    if verdict is None and any(log not in deferred for log in usage.logs):
        verdict = Verdict("keep", "the logarithm of its result is taken, and not of its weights alone")
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
        shape=None if found.shape is None else named(found.shape),
        mask=found.mask,
        masked_row=found.masked_row,
        guard=found.guard,
        role=usage.role,
        consumer=usage.consumer,
        verdict=verdict or Verdict("convert", match.note),
        logarithm=match.logarithm or bool(usage.logs),
        function=match.function,
    )
    around = find_around(node, facts) if verdict is None else None
    order = None if own else find_order_only(match, facts)
    return Finding(site, node, container, match, mask, behind, order, around)


def _usage(match: Match, behind: Behind | None, node: ir.Node, facts: Facts) -> Usage:
    if behind is not None:
        usage = find_usage(behind.weights, match.axis, facts)
        if not match.logarithm:
            return usage
        # A product with logarithms is no attention, and their logarithm is nobody's.
        return replace(usage, role="other" if usage.role == "attention" else usage.role, logs=())
    # The product with the values is inside the operator; what comes out is no longer a weight.
    role: Role = "attention" if "ttention" in node.op_type else "other"
    return Usage(role, "itself" if role == "attention" else "nothing")


def _judge(finding: Finding, policy: Policy, chosen: set[str] | None) -> Finding:
    """Apply the policy to a site that could be converted."""
    if finding.site.verdict.action != "convert":
        return finding
    given = policy.methods if isinstance(policy.methods, str) else policy.methods.get(finding.site.id, "")
    around = None if finding.around is None else finding.around.function
    if finding.around is not None and around is not None and around.method == given:
        # The whole is what the method is, and for any other the softmax is one like others.
        site = replace(finding.site, function=around)
        finding = replace(finding, site=site, match=finding.around, mask=NO_MASK, order=None)
    site = finding.site
    if site.function is not None and site.function.method != given:
        reason = f"it is no softmax but {said(site.function)}, and that method alone can take its place"
        return replace(finding, site=replace(site, verdict=Verdict("keep", reason)))
    tail = f"; {site.verdict.reason}" if site.verdict.reason else ""
    if around is not None:
        tail += f"; with what stands in front of it, it is {said(around)}"
    if finding.mask.why:
        tail += f"; its mask stays in the scores: {finding.mask.why}"
    by_default = chosen is None and not policy.all_sites
    if finding.order is not None and (by_default if policy.rewrites is None else site.id in policy.rewrites):
        verdict = Verdict("convert", f"only the order of its weights is used ({site.consumer}), which its scores have")
        return replace(finding, site=replace(site, verdict=verdict, rewrite=finding.order.kind))
    able = policy.logarithms if isinstance(policy.logarithms, bool) else site.id in policy.logarithms
    if site.logarithm and not able:
        verdict = Verdict("keep", _EXACT_ONLY)
    elif chosen is not None:
        verdict = Verdict("convert", f"selected{tail}") if site.id in chosen else Verdict("keep", "not selected")
    elif policy.all_sites:
        verdict = Verdict("convert", f"all sites were asked for{tail}")
    elif site.role == "attention":
        inside = site.consumer == "itself"
        use = "the product with V is inside the operator" if inside else f"the result goes into {site.consumer}"
        verdict = Verdict("convert", f"attention: {use}{tail}")
    elif site.consumer == "nothing":
        verdict = Verdict("keep", "nothing reads its result")
    else:
        verdict = Verdict("keep", f"{_KEPT[site.role]} (it goes into {site.consumer})")
    return replace(finding, site=replace(site, verdict=verdict))


PASS = PassEntry(name="locate", factory=Locate, summary="Find every softmax and say what happens to it and why")
