"""A user's own metric: `package.module:name` of a function, or of a `Metric`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from softq.data import load_object
from softq.errors import InputError, UsageError
from softq.metrics.base.kinds import HeldMetric, Metric
from softq.metrics.base.meter import Tensors
from softq.wording import kind_of


def user_metric(text: str) -> Metric:
    """Return the metric whose score is `function(outputs, labels) -> float`.

    The function gets two dicts of arrays over all samples: the model's outputs, and the labels without `label.` in
    their names. It is called once for each model; a
    sweep calls it for halves of the samples too, for the interval. It declares itself by attributes::

        def word_errors(outputs, labels): ...
        word_errors.direction = "lower"   # or "higher": which is better
        word_errors.unit = "fraction"

    A `softq.metrics.Metric` serves too: one that tells what each sample adds has the intervals of its kind, which say
    more of few samples than the spread over halves.

    Raises:
        UsageError: there is no such function, or it does not declare itself.
    """
    function = load_object(text, "metric")
    if isinstance(function, Metric):
        return replace(function, name=text)
    if not callable(function):
        raise UsageError(f"metric {text!r} is {kind_of(function)}; it must be a function or a softq.metrics.Metric")
    direction: object = getattr(function, "direction", None)
    unit: object = getattr(function, "unit", None)
    if direction not in ("higher", "lower"):
        raise UsageError(f"metric {text!r}: its attribute 'direction' is {direction!r}; it must be 'higher' or 'lower'")
    if not isinstance(unit, str) or not unit:
        raise UsageError(f"metric {text!r}: its attribute 'unit' is {unit!r}; it must be a text such as 'fraction'")

    def score(outputs: Tensors, labels: Tensors, output: str, label: str | None) -> float:
        try:
            value = function(dict(outputs), dict(labels))
        except (Exception, SystemExit) as error:
            line = (str(error).splitlines() or [""])[0]
            raise InputError(f"metric {text!r} raised {type(error).__name__}: {line}") from error
        if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
            value = cast("object", value.item())
        if not isinstance(value, (int, float)):
            raise InputError(f"metric {text!r} returned {kind_of(value)}; expected a float")
        return float(value)

    summary = ((function.__doc__ or "").strip().splitlines() or [f"the function {text}"])[0]
    everything = (-math.inf, math.inf)
    return HeldMetric(text, direction, unit, summary, False, score, all_outputs=True, kind=None, bounds=everything)
