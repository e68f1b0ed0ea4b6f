"""What is looked at: a runtime's softmax of one type, beside the exact one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from softq.audit.process import RuntimeProcess
from softq.audit.task import FLOATS, INTEGERS, Array, Encoding, Task
from softq.errors import UsageError

Reals = NDArray[np.float64]

TOLERANCES = {"int8": 2.0, "uint8": 2.0, "int16": 16.0, "float16": 4.0, "float32": 512.0, "float64": 512.0}
"""Units by which a result may be wrong before that is a fault.

Of float32 that is 6e-5 of 1: sums of thousands of elements, one after another, are no fault. A result of float16 is
rounded to half a unit, and the rest is for an exponential and a sum in float32.
"""


DEFAULT_SCALE = 0.05
"""What one unit of integer scores is where nothing is said: 8 bits reach from the maximum to e^-12.75."""


def encodings(
    dtype: str, scores: Encoding | None, result: Encoding | None, usual: Encoding | None
) -> tuple[Encoding | None, Encoding | None]:
    """Return what integer scores and results stand for: what is given, else the usual; None for floats.

    Raises:
        UsageError: floats are given such a thing, or integers nothing that says what their results are.
    """
    if dtype in FLOATS:
        if scores is not None or result is not None:
            raise UsageError(f"{dtype} has no scale and no zero point; these are for {', '.join(INTEGERS)}")
        return None, None
    return scores or Encoding(dtype, DEFAULT_SCALE, 0 if dtype != "uint8" else 128), result or usual


@dataclass
class Subject:
    """A runtime's softmax of one type.

    Attributes:
        process: Runs it; None for results that were recorded.
        dtype: NumPy's name of the scores' type.
        scores: What integer scores stand for; None for floats.
        result: What integer results stand for; None for floats.
        tolerance: Units by which a result may be wrong before that is a fault.
        any_axis: Whether the runtime takes another axis than the last.
        axis: Along which rows are given to it, counted from the last axis, which is -1.
        elements: Of the rows looked at so far.
        slack: Units by which a result may be wrong where it is asked whether something else than values breaks: more
            than the tolerance for a runtime that approximates.
    """

    process: RuntimeProcess | None
    dtype: str
    scores: Encoding | None
    result: Encoding | None
    tolerance: float
    any_axis: bool
    axis: int = -1
    elements: int = field(default=0)
    slack: float = field(init=False)

    def __post_init__(self) -> None:
        self.slack = self.tolerance

    @property
    def is_float(self) -> bool:
        """Whether scores and results are floats."""
        return self.scores is None

    @property
    def has_all_sums(self) -> bool:
        """Whether rows can reach every sum that matters: scores are of 8 bits, and results integers of as many."""
        encodings = (self.scores, self.result)
        return all(one is not None and one.high - one.low < 256 for one in encodings)

    @property
    def lowest(self) -> float:
        """The least finite score."""
        return float(np.finfo(self.dtype).min) if self.scores is None else self.scores.low

    @property
    def highest(self) -> float:
        """The greatest finite score."""
        return float(np.finfo(self.dtype).max) if self.scores is None else self.scores.high

    @property
    def unit(self) -> float:
        """What one unit of the result is: the scale, or of floats the distance of 1 to the next number."""
        return float(np.finfo(self.dtype).eps) if self.result is None else self.result.scale

    @property
    def full_scale(self) -> float:
        """How many units 1 is."""
        return 1 / self.unit

    def task(self, shape: tuple[int, ...], axis: int = -1, threads: int = 1) -> Task:
        """Return the task of a shape."""
        return Task(shape, axis, self.dtype, self.scores, self.result, threads)

    def compute(self, x: Array, axis: int = -1, threads: int = 1) -> Array:
        """Return the runtime's softmax of scores along an axis; the last one is `self.axis` to the runtime.

        Raises:
            FailureError: there is none.
        """
        self.elements += x.size
        assert self.process is not None, "what was recorded is not asked"
        task, given = self.ask(x, axis, threads)
        found = self.process.run(task, given)
        return found if task.axis == axis else np.moveaxis(found, self.axis, -1).reshape(x.shape)

    def ask(self, x: Array, axis: int = -1, threads: int = 1) -> tuple[Task, Array]:
        """Return what the runtime is asked for the softmax of these scores along an axis."""
        given = self.arrange(x.astype(self.dtype), axis)
        return self.task(given.shape, self.axis if axis == -1 else axis, threads), given

    def arrange(self, x: Array, axis: int = -1) -> Array:
        """Return an array with its rows along `self.axis`, if `axis` is the last one; else as it is."""
        if axis != -1 or self.axis == -1:
            return np.ascontiguousarray(x)
        # A row alone stands in a tensor that has the axis.
        return np.ascontiguousarray(np.moveaxis(x.reshape((1,) * (-self.axis - x.ndim) + x.shape), -1, self.axis))

    def exact(self, x: Array, axis: int = -1) -> Reals:
        """Return the exact softmax in units of the result, not rounded: NaN where the arithmetic gives it."""
        values = x.astype(np.float64) if self.scores is None else self.scores.decode(x.astype(self.dtype))
        with np.errstate(all="ignore"):
            powers = np.exp(values - np.max(values, axis, keepdims=True))
            weights = powers / np.sum(powers, axis, keepdims=True)
        return weights / self.unit if self.result is None else self.result.encode(weights)

    def to_units(self, found: Array) -> Reals:
        """Return a result in units of it."""
        return found.astype(np.float64) / (self.unit if self.result is None else 1.0)

    def errors(self, found: Array, exact: Reals) -> Reals:
        """Return by how many units each element is wrong; infinite where one of both is NaN."""
        with np.errstate(invalid="ignore"):
            off = np.abs(self.to_units(found) - exact)
        return np.where(np.isnan(self.to_units(found)) & np.isnan(exact), 0.0, np.where(np.isnan(off), np.inf, off))

    def wrong_rows(self, x: Array, found: Array, limit: float | None = None) -> NDArray[np.intp]:
        """Return the rows (along the last axis) in which an element is wrong by more than a limit, worst first.

        The limit is `slack` where none is given.
        """
        worst = np.max(self.errors(found, self.exact(x)), -1, initial=0.0)
        rows = np.flatnonzero(worst > (self.slack if limit is None else limit))
        return rows[np.argsort(-worst[rows], kind="stable")]
