"""What a method declares: the classes that every file of this folder uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods._written import Written
from softq.rowprog import DType, Program, Trace, Value

FITTED_SCOPES: Mapping[str, Literal["site", "head"]] = {"site": "site", "head": "head"}
"""Words that an option takes instead of a number to have it fitted: one value a site, or one a head of the site."""

OptionValue = int | float | str
Fitted = Mapping[str, float | tuple[float, ...]]
"""Fitted options of one site by name: one number, or one a head."""

Error = Callable[[Mapping[str, float]], float]
"""The squared error of P V over some samples when the options to be fitted have these numbers."""


@dataclass(frozen=True)
class OptionSpec:
    """What an option takes: numbers of one type within limits, and perhaps some words."""

    number: type[int] | type[float] | None
    low: float
    high: float
    words: tuple[str, ...]
    help: str

    @property
    def allowed(self) -> str:
        """What is allowed, for messages and help."""
        kind = {int: "a whole number", float: "a number", None: ""}[self.number]
        numbers = [f"{kind} from {self.low:g} to {self.high:g}"] if self.number else []
        return " or ".join(numbers + [" or ".join(self.words)] * bool(self.words))

    def parse(self, name: str, value: object) -> OptionValue:
        """Return the value as the option holds it.

        Raises:
            UsageError: it is not allowed; the message says what is.
        """
        if isinstance(value, str) and value in self.words:
            return value
        if self.number is not None and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                given = float(value)
                if self.low <= given <= self.high and (self.number is float or given == int(given)):
                    return self.number(given)
            except (ValueError, OverflowError):
                pass
        raise UsageError(f"{name} is {value!r}; allowed is {self.allowed}")


def option(
    default: OptionValue, help: str, *, low: float = 0, high: float = 0, words: Sequence[str] = ()
) -> OptionValue:
    """Return a dataclass field that is an option of a method.

    Args:
        default: Its default; the type of a number fixes the type of the option, and a word needs `low` and `high`
            as floats if numbers are allowed too.
        help: What it does, with its unit.
        low: Least number allowed.
        high: Greatest number allowed; equal to `low` if only words are.
        words: Words allowed instead of a number.
    """
    number: type[int] | type[float] | None = None
    if high > low:
        number = int if isinstance(default, int) else float
    spec = OptionSpec(number, low, high, tuple(words), help)
    return field(default=spec.parse("default", default), metadata={"option": spec})


@dataclass(frozen=True)
class Options:
    """Base of a method's options: a frozen dataclass whose fields are made by `option`."""

    unnamed: ClassVar[Mapping[str, OptionValue]] = {}
    """Options that are no part of the structure's name while they have these values."""

    @classmethod
    def specs(cls) -> dict[str, OptionSpec]:
        """Return what each option takes, by name."""
        return {f.name: f.metadata["option"] for f in dataclasses.fields(cls)}

    def to_json(self) -> dict[str, OptionValue]:
        """Return the options by name."""
        return dataclasses.asdict(self)

    @property
    def fitted(self) -> dict[str, Literal["site", "head"]]:
        """The options that are to be fitted, with their scope."""
        return {name: FITTED_SCOPES[str(value)] for name, value in self.to_json().items() if value in FITTED_SCOPES}

    @property
    def structure(self) -> str:
        """The options as part of a name: `b4_r0p75`, initials of the fields and their values."""
        named = [(name, value) for name, value in self.to_json().items() if self.unnamed.get(name) != value]
        return "_".join(f"{name[0]}{_name(value)}" for name, value in named)


def _name(value: OptionValue) -> str:
    text = value if isinstance(value, str) else repr(int(value) if value == int(value) else value)
    return text.replace("-", "m").replace(".", "p").replace("+", "")


@dataclass(frozen=True)
class Sample:
    """Some attention rows of one site, for fitting.

    Attributes:
        scores: f32 [R, N]; -inf where masked.
        values: What the weights are multiplied with, f32 [N, D]; None where the site has no such product.
        head: Index of the attention head, 0 where there are none.
    """

    scores: NDArray[np.float32]
    values: NDArray[np.float32] | None
    head: int


Fit = Callable[["Options", Sequence[Sample], Error], Mapping[str, float]]
"""Finds numbers for all options to be fitted, of one site or of one head: options, its samples, the error."""


def _no_parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    return {}


def _as_given(options: Options, calibrated: bool) -> Options:
    return options


@dataclass(frozen=True)
class Method:
    """One softmax method.

    Attributes:
        name: What users type; the file's name with hyphens.
        summary: One line.
        source: Where the formula comes from.
        options: The dataclass of its options.
        trace: Writes the program; returns the outputs by name.
        integer_scores: Whether `trace` takes 8-bit integer scores too.
        drop_in: Whether it serves a model that was trained with the exact softmax; if not, it is refused there unless
            the user allows it.
        calibration: What calibration data are used for, one line; "none" if for nothing.
        contract: Whether a backend may fuse a multiplication and an addition into one rounding.
        resolve: Replaces options that leave a choice ("auto") by what holds with or without calibration data.
        parameters: Run-time parameters from the fitted options: a number as an array [1] ([heads, 1, 1] a head), a
            table as [size] ([heads, 1, size] a head).
        candidates: For an option to be fitted, the values to try; the one with the least squared error of P V is taken.
        fit: Instead of `candidates`, a search with a criterion of the method's own, or over several options at once.
        written: For functions that graphs write out: the settings with which this might be a given one.
        operator: The standard ONNX operator that this method computes itself, empty if it is none.
        logarithms: Whether the weights are the exponentials themselves, so that the logarithm of a weight is its score
            less the greatest one, less the logarithm of the normalizer. Others would make -inf of a weight of zero.
        coarseness: Greatest relative error of a great probability with the default options, where levels lie so wide
            apart that a row of two or three equal scores shows it; 0 for finer ones.
        order_free: Whether the order of a row's elements does not matter; only then is a greater score's weight certain
            to be no less.
        normalized: Whether the probabilities of a row sum to 1, but for rounding: equal scores share it equally.
        shift_free: Whether a constant added to all scores of a row changes nothing.
        monotone: Whether, if `order_free`, a greater score's weight is no less than a smaller one's.
    """

    name: str
    summary: str
    source: str
    options: type[Options]
    trace: Callable[[Trace, Options], Mapping[str, Value]]
    integer_scores: bool
    drop_in: bool
    calibration: str
    contract: bool
    resolve: Callable[[Options, bool], Options] = _as_given
    parameters: Callable[[Options, Fitted], Mapping[str, NDArray[np.generic]]] = _no_parameters
    candidates: Callable[[Options, str], Sequence[float]] | None = None
    fit: Fit | None = None
    written: Written | None = None
    operator: str = ""
    logarithms: bool = False
    coarseness: float = 0.0
    order_free: bool = True
    normalized: bool = True
    shift_free: bool = True
    monotone: bool = True

    def configure(self, settings: Mapping[str, object]) -> Options:
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

    def program(self, options: Options, *, scores: DType = DType.F32, masked: bool = False) -> Program:
        """Return the row program for these options.

        Raises:
            UsageError: the method does not take scores of this type.
        """
        return _program(self, options, scores, masked)


@lru_cache(maxsize=256)
def _program(method: Method, options: Options, scores: DType, masked: bool) -> Program:
    if not scores.is_float and not method.integer_scores:
        raise UsageError(f"method {method.name} takes f32 scores only, not {scores.value}")
    trace = Trace(method.name, structure=options.structure, scores=scores, masked=masked, contract=method.contract)
    return trace.program(**method.trace(trace, options))
