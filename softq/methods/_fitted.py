"""Options that are fitted on data or learned in training: constants of the program, or its run-time parameters.

What a program takes from such an option, numbers of f32 and tables, is computed by one function: for an option that is
a number while tracing, for one that says `site` or `head` when its numbers are known, per site or per head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods._contract import Fitted, OptionsT
from softq.rowprog import DType, Trace, Value

Constants = Callable[[OptionsT, Mapping[str, float]], Mapping[str, float | Sequence[float]]]
"""Returns what follows from an option by name: numbers, and tables, those of u8 as bytes.

Fitted numbers stand in place of the options'.
"""


@dataclass(frozen=True)
class Given:
    """One of these: its interval and meaning as in `Trace.param`, its type, and its entries if it is a table."""

    name: str
    low: float
    high: float
    meaning: str
    dtype: DType = DType.F32
    size: int | None = None


def take(t: Trace, options: OptionsT, option: str, constants: Constants[OptionsT], *wanted: Given) -> list[Value]:
    """Return what the program takes from an option: run-time parameters where it is fitted, else constants.

    Raises:
        UsageError: the option is "auto".
    """
    check_resolved(t, options, option)
    scope = options.fitted.get(option)
    if scope is not None:
        return [t.param(g.name, scope, g.dtype, g.low, g.high, g.meaning, g.size) for g in wanted]
    found = constants(options, {})
    values = [(found[g.name], g.dtype) for g in wanted]
    return [t.table(v, dtype) if isinstance(v, Sequence) else t.const(v, dtype) for v, dtype in values]


def check_resolved(t: Trace, options: OptionsT, *names: str) -> None:
    """Refuse options that are still "auto"."""
    given = options.to_json()
    if any(given[name] == "auto" for name in names):
        raise UsageError(f"{t.name}: {' or '.join(names)} is auto; resolve() the options first")


def fit_if_calibrated(**alone: Callable[[OptionsT], float]) -> Callable[[OptionsT, bool], OptionsT]:
    """Return `Method.resolve`: options that are "auto" are fitted per site, without calibration data these numbers."""

    def resolve(options: OptionsT, calibrated: bool) -> OptionsT:
        given = options.to_json()
        auto = {name: usual for name, usual in alone.items() if given[name] == "auto"}
        return replace(options, **{name: "site" if calibrated else usual(options) for name, usual in auto.items()})

    return resolve


def per_head(**made: Constants[OptionsT]) -> Callable[[OptionsT, Fitted], Mapping[str, NDArray[np.generic]]]:
    """Return `Method.parameters` of a method that takes these constants from its options, by the option's name."""

    def parameters(options: OptionsT, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
        found: dict[str, NDArray[np.generic]] = {}
        for name, constants in made.items():
            if name not in fitted:
                continue
            columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, np.float64)) for v in fitted.values()))
            heads = [dict(zip(fitted, map(float, row), strict=True)) for row in zip(*columns, strict=True)]
            each = [constants(options, numbers) for numbers in heads]
            for key, first in each[0].items():
                array = np.array([list(v) if isinstance(v := one[key], Sequence) else v for one in each])
                table = isinstance(first, Sequence)
                whole = np.uint8 if isinstance(first, bytes) else np.uint32
                array = array.astype(whole if table and array.dtype.kind in "iu" else np.float32)
                if options.fitted[name] == "site":
                    found[key] = array[0] if table else array[:1]
                else:
                    found[key] = array.reshape(len(each), 1, -1)
        return found

    return parameters


def take_learned(t: Trace, options: OptionsT, name: str) -> Value:
    """Return an option that a model learns as a scalar of f32: itself, or a run-time parameter of its name."""
    spec = options.specs()[name]
    return take(t, options, name, itself(name), Given(name, spec.low, spec.high, spec.help))[0]


def itself(name: str) -> Constants[OptionsT]:
    """Return the option's own number as what the program takes from it."""
    return lambda options, fitted: {name: float(fitted.get(name, options.to_json()[name]))}
