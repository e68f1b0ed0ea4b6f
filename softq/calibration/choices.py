"""Options of which a few numbers come into question: the usual one, unless the error of P V is against it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from softq.calibration.errors import Errors, by_head
from softq.errors import UsageError
from softq.methods import Fitted, Method, Options, Sample

_DOUBT = 2.0
"""Standard errors by which a number has to be better than the usual one: a fit on little data shall not harm."""


def choose(
    method: Method, options: Options, samples: Sequence[Sample], found: Fitted
) -> dict[str, float | tuple[float, ...]]:
    """Return a number for each option that the method has choices for, of a site or per head.

    Args:
        method: The method.
        options: Its options.
        samples: Rows of the site.
        found: Numbers of the other options that are fitted.

    Raises:
        UsageError: some are fitted for a site and others per head.
    """
    choices = dict(method.choices)
    scopes = {name: scope for name, scope in options.fitted.items() if name in choices}
    per_head = "head" in scopes.values()
    if len(set(scopes.values())) > 1 or (not per_head and any(isinstance(value, tuple) for value in found.values())):
        each = ", ".join(f"{name}={scope}" for name, scope in options.fitted.items())
        raise UsageError(f"{method.name}: options are chosen together, and per head where others are, not {each}")
    single = replace(options, **dict.fromkeys(options.fitted, "site"))
    chosen: list[dict[str, float]] = []
    for head, group in enumerate(by_head(samples) if per_head else [samples]):
        fixed = {name: value[head] if isinstance(value, tuple) else value for name, value in found.items()}
        chosen.append(_choose(Errors(method, single, group), {name: choices[name] for name in scopes}, fixed))
    return {name: tuple(one[name] for one in chosen) if per_head else chosen[0][name] for name in scopes}


def _choose(errors: Errors, choices: Mapping[str, Sequence[float]], fixed: Mapping[str, float]) -> dict[str, float]:
    """Return a number for each option, one after the other: the first, unless another is better beyond doubt.

    Beyond doubt: by more than `_DOUBT` standard errors of the mean over the samples, which are paired. A single sample
    leaves every doubt.
    """
    chosen = {name: float(numbers[0]) for name, numbers in choices.items()}
    before = errors({**fixed, **chosen})
    for name, numbers in choices.items() if len(before) > 1 else ():
        for number in map(float, numbers[1:]):
            after = errors({**fixed, **chosen, name: number})
            gain = before - after
            if gain.mean() > _DOUBT * gain.std(ddof=1) / math.sqrt(len(gain)):
                chosen[name], before = number, after
    return chosen
