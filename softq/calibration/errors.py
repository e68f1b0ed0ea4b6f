"""The error of P V that options are fitted by, of each sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.calibration.rows import exact_weights, without_masked_rows
from softq.methods import Method, Options, Sample
from softq.rowprog import prepare


class Errors:
    """The error of each sample that has a row which is not fully masked, for numbers of the options to be fitted.

    Attributes:
        samples: These samples, without their fully masked rows.

    Args:
        method: The method.
        options: Its options; those to be fitted say `site`.
        samples: The samples.
    """

    def __init__(self, method: Method, options: Options, samples: Sequence[Sample]) -> None:
        self._method, self._options = method, options
        program = method.program(options)
        references = [reference for sample in samples if (reference := _reference(sample)) is not None]
        self.samples = [reference.sample for reference in references]
        # Rows of one length go through the program together: a step of a scan costs the same for one row and for
        # hundreds.
        alike: dict[int, list[_Reference]] = {}
        for reference in references:
            alike.setdefault(reference.sample.scores.shape[-1], []).append(reference)
        self._runs = [
            (prepare(program, np.concatenate([one.sample.scores for one in of])), of) for of in alike.values()
        ]

    def __call__(self, numbers: Mapping[str, float]) -> NDArray[np.float64]:
        """Return the squared error of P V (or of P where there is no V) of each sample, relative to its own size."""
        parameters = self._method.parameters(self._options, numbers)
        return np.array([error for run, of in self._runs for error in _errors_of(run(parameters), of)])


def by_head(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Return the samples of each head: what is fitted for one of them is a site's number over these."""
    return [[s for s in samples if s.head == head] for head in range(1 + max(s.head for s in samples))]


@dataclass(frozen=True)
class _Reference:
    """A sample without its fully masked rows, its exact weights, and their product with V (or themselves)."""

    sample: Sample
    weights: NDArray[np.float64]
    output: NDArray[np.float64]


def _reference(sample: Sample) -> _Reference | None:
    sample = without_masked_rows(sample)
    if not len(sample.scores):
        return None
    weights = exact_weights(sample.scores)
    values = None if sample.values is None else sample.values.astype(np.float64)
    output = weights if values is None else weights @ values
    return _Reference(replace(sample, values=values), weights, output)


def _errors_of(out: Mapping[str, NDArray[np.generic]], references: Sequence[_Reference]) -> Iterator[float]:
    if "normalizer" in out:
        p = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
    else:
        p = out["probabilities"].astype(np.float64)
    row = 0
    for reference in references:
        rows = slice(row, row := row + len(reference.weights))
        difference, v = p[rows] - reference.weights, reference.sample.values
        if v is not None:
            difference = difference @ v
        size = float(np.sum(reference.output**2))
        yield float(np.sum(difference**2)) / size if size > 0 else 0.0
