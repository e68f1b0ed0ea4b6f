"""Runners of converted ONNX models: one session serves all plans that differ in numbers and tables alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from softq.conversion import expose
from softq.methods import METHODS
from softq.modelfile import as_model
from softq.passes.rewriting.calls import EXPOSED_KEY, Exposed, make_call, same_function
from softq.rowprog.onnx import function_name
from softq.runner import OnnxRunner, Runner

if TYPE_CHECKING:
    import onnx_ir as ir

    from softq.data import Array
    from softq.plans import Plan, SitePlan


class OnnxSessions:
    """Gives a runner for each plan of one model; the sessions used last stay open.

    To load a model takes as long as to evaluate it on some samples, and the widths of a method mostly differ in the
    numbers and tables of one program: they are inputs of the session here, so that it is made once. Values are those of
    the model that `softq.conversion.convert` makes, to the bit.

    Args:
        model: The model; it is not changed.
        threads: Threads of onnxruntime; all cores if None.
        most: Sessions that are open at a time.
    """

    def __init__(self, model: ir.Model, threads: int | None, most: int = 1) -> None:
        self._model, self._threads, self._most = model, threads, most
        self._open: list[_Shared] = []

    def runner(self, plan: Plan) -> Runner:
        """Return a runner of what the plan makes of the model.

        Raises:
            SoftqError: as in `softq.conversion.convert`.
            InputError: onnxruntime cannot load it.
        """
        for number, there in enumerate(self._open):
            if (arrays := there.arrays(plan)) is not None:
                self._open.append(self._open.pop(number))
                return there.runner.give(arrays)
        # Before the next is made: two models at a time may be more than the memory holds.
        del self._open[: len(self._open) - self._most + 1]
        made = _Shared.open(self._model, plan, self._threads)
        self._open.append(made)
        arrays = made.arrays(plan)
        # None if a site lies in a function of the model, where nothing comes from outside.
        return made.runner if arrays is None else made.runner.give(arrays)


@dataclass(frozen=True)
class _Shared:
    """A session, what it was made for, and its inputs for the plans' numbers and tables."""

    runner: OnnxRunner
    plan: Plan
    exposed: Mapping[str, Exposed]

    @classmethod
    def open(cls, model: ir.Model, plan: Plan, threads: int | None) -> _Shared:
        made = expose(as_model(model), plan)
        places: Sequence[Exposed] = made.meta[EXPOSED_KEY]
        return cls(OnnxRunner.open(made, threads=threads), plan, {place.site: place for place in places})

    def arrays(self, plan: Plan) -> dict[str, Array] | None:
        """Return what the session must be given to compute what a plan says; None if it cannot."""
        if _frame(plan) != _frame(self.plan) or {site.id for site in plan.sites} != set(self.exposed):
            return None
        found: dict[str, Array] = {}
        for planned in plan.sites:
            there = self.exposed[planned.id]
            call = make_call(planned, there.context, exposed=True)
            if not same_function(call.function, there.function):
                return None
            names = [str(value.name) for value in there.inputs]
            found |= dict(zip(names, call.arrays.values(), strict=True))
        return found


def _frame(plan: Plan) -> tuple[Plan, dict[str, tuple[str, ...]]]:
    """Return what of a plan shapes the graph."""
    return replace(plan, sites=()), {site.id: (site.method, *_values_of(site)) for site in plan.sites}


def _values_of(site: SitePlan) -> list[str]:
    """Return the name of the function that codes V, if one does: it stands in the graph beside the weights'."""
    program = METHODS.get(site.method).values_program(site.configure())
    return [] if program is None else [function_name(program)]
