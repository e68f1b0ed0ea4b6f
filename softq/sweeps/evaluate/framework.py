"""What a framework gives a sweep: the model as it runs, and a runner of what each plan makes of it.

Everything else of a sweep (data, metrics, intervals, settings, fits, plans, the folder) is one for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from softq.data import DataSource
from softq.modelfile import ModelLike
from softq.runner import Runner, Written

if TYPE_CHECKING:
    import onnx_ir as ir

    from softq.plans import Plan

ModelSource: TypeAlias = "ModelLike | Callable[..., object]"
"""What a framework takes for a model: a path or a name, or what it has in memory."""


class Sessions(Protocol):
    """Gives a runner for each plan of one model."""

    def runner(self, plan: Plan) -> Runner:
        """Return a runner of what the plan makes of the model.

        Raises:
            SoftqError: as in `softq.conversion.convert`.
            InputError: the framework cannot load it.
        """
        ...


class Opened(Protocol):
    """A model that a framework has opened."""

    @property
    def model(self) -> ModelLike:
        """The ONNX model that is judged, fitted and planned: the model itself, or the one that it is exported as."""
        ...

    @property
    def conditions(self) -> Mapping[str, object]:
        """What values depend on beside graph and weights of that one, by name; a sweep goes on only with the same."""
        ...

    @property
    def packages(self) -> Sequence[str]:
        """Packages that compute the values, beside those of all sweeps."""
        ...

    def runner(self) -> Runner:
        """Return the float model, ready to run."""
        ...

    def sessions(self, model: ir.Model, most: int = 1) -> Sessions:
        """Return what runs the models that plans make.

        Args:
            model: `model` as it was loaded.
            most: How many may be open at a time.
        """
        ...

    def write(self, model: ir.Model, plan: Plan | None, folder: Path) -> Written:
        """Return what is timed: what a plan makes of the model, or the float model.

        Args:
            model: `model` as it was loaded.
            plan: The plan, or None for the float model.
            folder: An empty one, where files can lie as long as it is timed.
        """
        ...


@dataclass(frozen=True)
class Framework:
    """Where models come from that are measured.

    Attributes:
        name: What users type; the file's name.
        open: Opens a model, of which the data (to measure on, and to fit on, where there are some), the samples per run
            (or None) and the threads (all cores if None) are known.
        distributed: Whether other processes can measure, too: they load a model by its path.
    """

    name: str
    open: Callable[[ModelSource, Sequence[DataSource], int | None, int | None], Opened]
    distributed: bool = False
