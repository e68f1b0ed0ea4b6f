"""Options that a model learns in training: a number, or one a head as a graph that holds the function has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from softq.methods._contract import FITTED_SCOPES, Fitted, Options, OptionValue, option
from softq.rowprog import DType, Trace, Value


def learned_option(default: float, help: str, *, low: float, high: float) -> OptionValue:
    """Return a field as `option` does, of a number or of one that is given at run time."""
    return option(default, help, low=low, high=high, words=tuple(FITTED_SCOPES))


def learned(t: Trace, options: Options, name: str) -> Value:
    """Return an option as a scalar of f32: a constant, or a run-time parameter."""
    value, spec = options.to_json()[name], options.specs()[name]
    if isinstance(value, str):
        return t.param(name, FITTED_SCOPES[value], DType.F32, spec.low, spec.high, spec.help)
    return t.const(float(value), DType.F32)


def parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    """Return the run-time parameters, as `Method.parameters` does."""
    arrays = {name: np.atleast_1d(np.asarray(numbers, np.float32)) for name, numbers in fitted.items()}
    return {name: a.reshape(-1, 1, 1) if options.fitted[name] == "head" else a for name, a in arrays.items()}
