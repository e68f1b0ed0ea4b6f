"""From choices (which site gets which method with which options) to plans; what calibration sees is gathered once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softq._version import __version__
from softq.calibration import Sampling, collect_rows, fit_draws
from softq.calibration.rows import io_specs
from softq.data import DataSource, open_data
from softq.errors import RefusalError
from softq.graph.facts import Assumed
from softq.graph.view import ModelView
from softq.methods import METHODS, Fit, Method, Options, OptionValue, Sample
from softq.modelfile import ModelLike, as_model, graph_hash, weights_fingerprint
from softq.passes.locate import locate
from softq.plan_making import check_substitutes, plan_sites
from softq.plans import DEFAULT_MAX_LENGTH, Plan, SitePlan
from softq.site import META_KEY, Site
from softq.sweeps.evaluate.evaluator import data_hash
from softq.sweeps.records import Setting

Choice = tuple[str, Mapping[str, OptionValue]]
"""A method's name, and its options as the user gave them."""


@dataclass(frozen=True)
class Selection:
    """Which sites of a model take a method, and what is believed of them; the fields are those of `convert`."""

    sites: Sequence[str] = ()
    all_sites: bool = False
    masks: Sequence[str] = ()
    allow_float32: bool = False
    max_length: int | None = None
    batch: int | None = None
    allow_substitute: bool = False

    @property
    def assumed(self) -> Assumed:
        """What is believed of masks and types."""
        return Assumed(frozenset(self.masks), self.allow_float32)


class Planner:
    """Makes plans for one model.

    Args:
        model: A path or a model.
        selection: Which sites are meant.
        calibration: Data for options that are fitted, or None.
        sampling: Which rows of them are fitted on; the usual ones if None.

    Attributes:
        graph: Hash of the graph without weights.
        weights: Fingerprint of the weights.
        calibrated: Whether there are calibration data.
    """

    def __init__(
        self,
        model: ModelLike,
        selection: Selection,
        calibration: DataSource | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self._selection, self._sampling = selection, sampling or Sampling()
        self.model = as_model(model)
        self.graph, self.weights = graph_hash(self.model), weights_fingerprint(self.model)
        self.calibrated = calibration is not None
        self._calibration = (
            None if calibration is None else open_data(calibration, *io_specs(self.model), reject_nan=True)
        )
        self._found: dict[bool, tuple[Site, ...]] = {}
        self._rows: dict[bool, dict[str, list[Sample]]] = {}
        self._fitted: dict[str, Fit] = {}

    def calibration_hash(self) -> str | None:
        """Return the hash of the calibration data, None without."""
        return None if self._calibration is None else data_hash(self._calibration, self._selection.batch)

    def found(self, logarithms: bool = False) -> tuple[Site, ...]:
        """Return every softmax with its verdict, for methods that give logarithms of weights, or for the others."""
        if logarithms not in self._found:
            chosen = self._selection
            self._found[logarithms] = locate(
                self.model,
                select=chosen.sites,
                all_sites=chosen.all_sites,
                logarithms=logarithms,
                assumed=chosen.assumed,
            )
        return self._found[logarithms]

    def sites(self, method: str) -> list[str]:
        """Return the ids of the sites that take a method, in the order of the graph."""
        return [site.id for site in self.found(METHODS.get(method).logarithms) if site.takes_method]

    def check(self, methods: Iterable[str]) -> None:
        """Refuse methods that are no drop-in for the sites that they would get.

        Raises:
            UsageError: there is one, and it is not allowed.
        """
        for method in sorted(set(methods)):
            check_substitutes(((site, method) for site in self.sites(method)), self._selection.allow_substitute)

    def describe(self, methods: Sequence[str]) -> tuple[dict[str, Any], ...]:
        """Return the sites that take one of the methods as plain values, each with the name of its node."""
        wanted = {name for method in methods for name in self.sites(method)}
        flag = any(METHODS.get(method).logarithms for method in methods)
        sites = self.found(flag)
        nodes: dict[str, str | None] = {}
        for container in ModelView(self.model).containers:
            for node in container.body:
                site = node.meta.get(META_KEY)
                if isinstance(site, Site):
                    nodes[site.id] = node.name
        return tuple(site.to_json() | {"node": nodes.get(site.id)} for site in sites if site.id in wanted)

    def rows(self, method: str) -> dict[str, list[Sample]]:
        """Return a bounded sample of the calibration data's rows for each site that takes the method."""
        flag = METHODS.get(method).logarithms
        if flag not in self._rows:
            assert self._calibration is not None
            self._rows[flag] = collect_rows(
                self.model, self.sites(method), self._calibration, flag, self._selection.assumed,
                sampling=self._sampling, batch=self._selection.batch,
            )  # fmt: skip
        return self._rows[flag]

    def site_plan(self, site: str, choice: Choice) -> SitePlan:
        """Return what one site gets, fitted options included.

        Raises:
            UsageError: an option is not allowed, or is to be fitted and there are no calibration data.
        """
        method, options = choice
        there = [one for one in self.found(METHODS.get(method).logarithms) if one.id == site]
        fit_site = self._fit if self.calibrated else None
        return plan_sites(there, method, options, fit_site, allow_substitute=self._selection.allow_substitute)[0]

    def _fit(self, site: Site, method: Method, options: Options) -> Fit:
        key = json.dumps([site.id, method.name, sorted(options.to_json().items())])
        if key not in self._fitted:
            self._fitted[key] = fit_draws(method, options, self.rows(method.name)[site.id])
        return self._fitted[key]

    def everywhere(self, choice: Choice) -> Plan:
        """Return the plan that gives every site the same, as `convert` would.

        Raises:
            RefusalError: no site takes the method.
        """
        sites = self.sites(choice[0])
        if not sites:
            raise RefusalError(f"no site of the model takes {choice[0]}: nothing to measure")
        found = self.found(METHODS.get(choice[0]).logarithms)
        return self.plan(dict.fromkeys(sites, choice), {site.id: site.rewrite for site in found if site.rewrite})

    def plan(self, choices: Mapping[str, Choice], rewrites: Mapping[str, str] | None = None) -> Plan:
        """Return the plan that gives each named site its choice; the others stay as they are."""
        chosen = self._selection
        return Plan(
            __version__,
            self.graph,
            self.weights,
            tuple(self.site_plan(site, choice) for site, choice in choices.items()),
            chosen.max_length or DEFAULT_MAX_LENGTH,
            rewrites or {},
            tuple(sorted(chosen.assumed.masks)),
            chosen.allow_float32,
        )


def plan_for(planner: Planner, setting: Setting) -> Plan:
    """Return the plan of a setting: at all sites that take its method, or at its one site."""
    choice = (setting.method, setting.options)
    return planner.everywhere(choice) if setting.site is None else planner.plan({setting.site: choice})
