"""What a plan means for a model: its sites found again, each with the verdict that the plan gives it."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from softq.errors import RefusalError
from softq.graph.facts import Assumed
from softq.passes.locate import locate
from softq.plan_making import check_own
from softq.plans import Plan, SitePlan
from softq.site import Site


def follow(work: ir.Model, plan: Plan, graph: str) -> tuple[Assumed, tuple[Site, ...], dict[str, SitePlan]]:
    """Return what a plan assumes, the model's softmaxes with its verdicts, and what each site gets.

    Args:
        work: The model; only `meta` is written.
        plan: The plan.
        graph: The hash of the model's graph.

    Raises:
        InputError: the plan was made for another graph or for other sites.
        UsageError: an option is wrong, or there is no tensor of a mask's name.
        RefusalError: a site cannot be converted as the plan says.
    """
    assumed = Assumed(frozenset(plan.masks), plan.allow_float32)
    found = locate(work, assumed=assumed)
    planned = plan.match(graph, found)
    if planned or plan.rewrites:
        chosen = [glob.escape(key) for key in planned]
        logarithms = [key for key, site in planned.items() if site.find_method().logarithms]
        methods = {key: site.method for key, site in planned.items()}
        found = locate(
            work, select=chosen, rewrites=plan.rewrites, logarithms=logarithms, methods=methods, assumed=assumed
        )
    _must_convert(found, list(planned), plan.rewrites)
    known = {site.id: site for site in found}
    for site in plan.sites:
        site.configure()
        check_own(known[site.id], site)
    return assumed, found, planned


def _must_convert(found: Sequence[Site], planned: Sequence[str], rewrites: Mapping[str, str]) -> None:
    for site in found:
        if site.id in planned and site.verdict.action != "convert":
            raise RefusalError(f"plan: site {site.id} cannot be converted: {site.verdict.reason}")
        if rewrites.get(site.id, "") != site.rewrite:
            raise RefusalError(f"plan: {rewrites[site.id]} does not apply to site {site.id}: {site.verdict.reason}")
