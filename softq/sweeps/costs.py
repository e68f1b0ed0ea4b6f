"""What settings take on a target, by what it says before anything is built: `--cost TARGET[,KEY=VALUE...][:NAME]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from softq.building import TargetSpec, parse_target
from softq.errors import RefusalError, UsageError
from softq.methods import METHODS, OptionValue
from softq.site import Site
from softq.sweeps.planner import Planner
from softq.sweeps.records import Costed
from softq.targets import TARGETS, Use


@dataclass(frozen=True)
class CostSpec:
    """Which costs are wanted.

    Attributes:
        text: The target with its options, as the user gave it.
        target: The target.
        name: The one cost that is meant; empty for all.
    """

    text: str
    target: TargetSpec
    name: str = ""


def parse_cost(text: str) -> CostSpec:
    """Return the costs that a text names.

    Raises:
        UsageError: the target or an option is unknown, or it says no costs before a build.
    """
    target, _, name = text.partition(":")
    spec = parse_target(target)
    if spec.target.cost is None:
        known = ", ".join(name for name, one in TARGETS.entries().items() if one.cost is not None)
        raise UsageError(f"target {spec.target.name} says no costs before a build; these do: {known}")
    return CostSpec(target, spec, name)


class Costs:
    """What methods take on a target where a model's sites use them; each question is put to the target once.

    Args:
        spec: The target.
        planner: The sites of the model.
    """

    def __init__(self, spec: CostSpec, planner: Planner) -> None:
        self._spec, self._planner = spec, planner
        self._found: dict[str, Costed] = {}

    def of(self, method: str, options: Mapping[str, OptionValue], site: str | None = None) -> Costed:
        """Return what one unit takes that computes a method for a site, or for all that take it."""
        known = self._planner.found(METHODS.get(method).logarithms)
        there = [one for one in known if (one.takes_method if site is None else one.id == site)]
        use = Use(method, options, _longest(there), any(one.mask in ("where", "additive") for one in there))
        key = str((method, sorted(options.items()), use.row_length, use.masked))
        if key not in self._found:
            self._found[key] = self._ask(use)
        return self._found[key]

    def _ask(self, use: Use) -> Costed:
        ask = self._spec.target.target.cost
        assert ask is not None
        try:
            amounts = ask(use, self._spec.target.options)
        except RefusalError as error:
            return Costed({}, str(error))
        if self._spec.name and self._spec.name not in amounts:
            raise UsageError(
                f"target {self._spec.target.target.name} says no {self._spec.name}; it says {', '.join(amounts)}"
            )
        return Costed(amounts)


def _longest(sites: Iterable[Site]) -> int | None:
    """Return the elements of the longest row of some sites; None if one of them is not known."""
    lengths = [None if site.shape is None or site.axis is None else site.shape[site.axis] for site in sites]
    return (
        max((n for n in lengths if isinstance(n, int)), default=None)
        if all(isinstance(n, int) for n in lengths)
        else None
    )
