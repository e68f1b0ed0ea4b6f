"""What a method declares: the class that every file of this folder makes one of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Generic

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods._options import Options, OptionValue
from softq.methods._roundings import FloatOptions
from softq.methods._written import Written
from softq.rowprog import DType, Program, Trace, Value

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OptionsT = TypeVar("OptionsT", bound=Options, default=Options)
else:
    from typing import TypeVar

    OptionsT = TypeVar("OptionsT")

Outputs = Mapping[str, Value]
"""What a program returns by name: weights and normalizer, or probabilities; codes may stand beside them."""

Fitted = Mapping[str, float | tuple[float, ...]]
"""Fitted options of one site by name: one number, or one per head."""


@dataclass(frozen=True)
class Spread:
    """What a fitted option came to on each of several draws alone: numbers, or one per head.

    Attributes:
        low: The least.
        high: The greatest.
        deviation: The standard deviation over the draws.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    deviation: float | tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """The fitted options of one site, and by how much they depend on the draw where there were several."""

    fitted: Fitted
    spread: Mapping[str, Spread] = field(default_factory=dict[str, Spread])


Error = Callable[[Mapping[str, float]], float]
"""The squared error of P V over some samples when the options to be fitted have these numbers."""


@dataclass(frozen=True)
class Sample:
    """Some attention rows of one site, for fitting.

    Attributes:
        scores: f32 [R, N]; -inf where masked.
        values: What the weights are multiplied with, f32 [N, D]; None where the site has no such product.
        head: Index of the attention head, 0 where there are none.
        draw: Which of several repetitions of the sampling it belongs to.
    """

    scores: NDArray[np.float32]
    values: NDArray[np.float32] | None
    head: int
    draw: int = 0


@dataclass(frozen=True)
class Method(Generic[OptionsT]):
    """One softmax method, with options of the class `OptionsT`.

    Attributes:
        name: What users type; the file's name with hyphens.
        summary: One line.
        source: Where the formula comes from.
        options: The dataclass of its options.
        trace: Writes the program; returns the outputs by name.
        drop_in: Whether it serves a model that was trained with the exact softmax; if not, it is refused there unless
            the user allows it.
        integer_scores: Whether `trace` takes 8-bit integer scores too.
        calibration: What calibration data are used for, one line; "none" if for nothing.
        contract: Whether a backend may fuse a multiplication and an addition into one rounding.
        resolve: Replaces options that leave a choice ("auto") by what holds with or without calibration data.
        doubt: Of resolved options that are allowed and give results that hardly anyone wants: a sentence that says so,
            which who chose them is warned with; empty of all others.
        parameters: Run-time parameters from the fitted options: a number as an array [1] ([heads, 1, 1] per head), a
            table as [size] ([heads, 1, size] per head). `_fitted.per_head` makes it.
        candidates: For an option to be fitted, the values to try; the one with the least squared error of P V is taken.
        fit: Instead of `candidates`, a search with a criterion of the method's own, or over several options at once:
            returns a number for each option to be fitted, of one site or of one head, from its samples and the error.
        choices: For options to be fitted of which a few numbers come into question: these, the usual one first. Another
            is taken where the error over the samples says so beyond doubt, once the other options are fitted.
        written: For functions that graphs write out: the settings with which this might be a given one.
        operator: The standard ONNX operator that this method computes itself, empty if it is none.
        logarithms: Whether the weights are the exponentials themselves, so that the logarithm of a weight is its score
            less the greatest one, less the logarithm of the normalizer. Others would make -inf of a weight of zero.
        byte_weights: Settings with which the weights are integers that a byte holds; empty if there are none.
        byte_fits: Settings that take the place of these where there are calibration data.
        values: Of what the weights are multiplied with: codes one column of it, over the keys, which a trace has as its
            scores; returns the row that takes its place, or None where it stays as it is.
    """

    name: str
    summary: str
    source: str
    options: type[OptionsT]
    trace: Callable[[Trace, OptionsT], Outputs]
    drop_in: bool = False
    integer_scores: bool = False
    calibration: str = "none"
    contract: bool = False
    resolve: Callable[[OptionsT, bool], OptionsT] = lambda options, calibrated: options
    doubt: Callable[[OptionsT], str] = lambda options: ""
    parameters: Callable[[OptionsT, Fitted], Mapping[str, NDArray[np.generic]]] = lambda options, fitted: {}
    candidates: Callable[[OptionsT, str], Sequence[float]] | None = None
    fit: Callable[[OptionsT, Sequence[Sample], Error], Mapping[str, float]] | None = None
    choices: tuple[tuple[str, tuple[float, ...]], ...] = ()
    written: Written | None = None
    operator: str = ""
    logarithms: bool = False
    byte_weights: tuple[tuple[str, OptionValue], ...] = ()
    byte_fits: tuple[tuple[str, OptionValue], ...] = ()
    values: Callable[[Trace, OptionsT], Value | None] = lambda t, options: None

    def __post_init__(self) -> None:
        """Refuse options whose defaults are not allowed."""
        self.options.specs()

    def configure(self, settings: Mapping[str, object]) -> OptionsT:
        """Return the options with these settings (text or numbers) over the defaults.

        Raises:
            UsageError: an option is unknown or its value not allowed; the message lists what is.
        """
        specs = self.options.specs()
        for name in settings:
            if name not in specs:
                known = ", ".join(specs) or "none"
                raise UsageError(f"method {self.name} has no option {name!r}; its options are: {known}")
        return self.options(
            **{name: specs[name].parse(f"{self.name} {name}", value) for name, value in settings.items()}
        )

    def program(self, options: OptionsT, *, scores: DType = DType.F32, masked: bool = False) -> Program:
        """Return the row program for these options.

        Raises:
            UsageError: the method does not take scores of this type.
        """
        return _program(self, options, scores, masked)

    def values_program(self, options: OptionsT) -> Program | None:
        """Return the row program that codes a column of V over the keys, its output `values`; None where V stays."""
        trace = Trace(f"{self.name}-values", structure=options.structure)
        values = self.values(trace, options)
        return None if values is None else trace.program(values=values)


@lru_cache(maxsize=256)
def _program(method: Method[OptionsT], options: OptionsT, scores: DType, masked: bool) -> Program:
    if not scores.is_float and not method.integer_scores:
        raise UsageError(f"method {method.name} takes float32 scores only, not {scores.numpy}")
    types = {str(step): name for step, name in options.types.items()} if isinstance(options, FloatOptions) else {}
    trace = Trace(
        method.name, structure=options.structure, scores=scores, masked=masked, contract=method.contract, types=types
    )
    outputs = method.trace(trace, options)
    for step in types:
        if step not in trace.steps:
            has = ", ".join(sorted(trace.steps)) or "none"
            raise UsageError(
                f"method {method.name} rounds no {step} here: {step}_type is {types[step]}, allowed is f32; its steps "
                f"with a type are: {has}"
            )
    return trace.program(**outputs)
