"""Find every softmax of a model and say what happens to it and why; changes nothing but `meta`.

The files of `softq/forms` say what is a candidate; `analysis.candidates` walks all containers and works out mask, guard
and use, and `analysis.policy` decides: attention is converted; classifier heads, samplers, routers, detectors and
everything else stay exact unless asked for, because what they decide (a class, a token, an expert) is a discrete error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx_ir as ir

from softq.errors import UsageError
from softq.graph.facts import ASSUMED_KEY, NOTHING, Assumed, Facts
from softq.graph.view import ModelView
from softq.passes import PassEntry
from softq.passes.analysis.candidates import Finding, find_candidates, shorten
from softq.passes.analysis.policy import Policy, judge
from softq.passes.analysis.readers import OrderOnly
from softq.site import META_KEY, Site

SITES_KEY = "softq.sites"
"""Key under which `Locate` leaves the tuple of all sites in `ir.Model.meta`."""


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


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of every container of a model."""
    yield from ModelView(model).nodes


def locate(
    model: ir.Model,
    *,
    all_sites: bool = False,
    select: Sequence[str] = (),
    rewrites: Collection[str] | None = None,
    logarithms: Collection[str] | bool = False,
    methods: Mapping[str, str] | str = "",
    assumed: Assumed = NOTHING,
    facts: Facts | None = None,
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
        facts: Facts of the model as it is; None to ask anew.

    Raises:
        UsageError: a glob matches no site, both options are given, or the model has no value that is assumed a mask;
            the message lists what there is.
    """
    _check_masks(model, assumed)
    model.meta[ASSUMED_KEY] = assumed
    found = findings(facts or Facts(ModelView(model)), Policy(all_sites, select, rewrites, logarithms, methods))
    sites = tuple(finding.site for finding in found)
    carriers = {finding.node: finding.site for finding in found}
    for node in ModelView(model).nodes:
        node.meta.pop(META_KEY, None)
        if node in carriers:
            node.meta[META_KEY] = carriers[node]
    model.meta[SITES_KEY] = sites
    return sites


def _check_masks(model: ir.Model, assumed: Assumed) -> None:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    for name in sorted(assumed.masks - {value.name for value in values}):
        inputs = shorten([str(value.name) for value in model.graph.inputs])
        raise UsageError(
            f"no tensor of the main graph is called {name!r} that could be a mask; of its inputs, {inputs}"
        )


def superfluous(model: ir.Model, kind: str) -> list[tuple[Finding, OrderOnly]]:
    """Return the softmaxes that the pass `kind` makes superfluous; a model without sites is judged by the default."""
    located = is_located(model)
    asked = ((f, f.node.meta.get(META_KEY) if located else f.site) for f in findings(Facts(ModelView(model))))
    rewritten = [f for f, site in asked if isinstance(site, Site) and site.rewrite == kind]
    return [(f, f.order) for f in rewritten if f.order is not None and f.order.kind == kind]


def is_located(model: ir.Model) -> bool:
    """Return whether `model` carries what `locate` left, and is no copy that lost it."""
    sites = model.meta.get(SITES_KEY)
    return sites is not None and (not sites or any(META_KEY in node.meta for node in ModelView(model).nodes))


def findings(facts: Facts, policy: Policy | None = None) -> tuple[Finding, ...]:
    """Return the sites of a model with the nodes and values they were found at; writes nothing.

    Raises:
        UsageError: a glob matches no site.
    """
    return judge(find_candidates(facts), Policy() if policy is None else policy)


PASS = PassEntry("locate", Locate, "Find every softmax and say what happens to it and why")
