"""What a setting does to the rows of one site: errors that need no run of the model, from a sample of its rows.

The rows are those of the float model. What of them is the same for every setting is computed once: `SiteRows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.calibration import exact_weights, without_masked_rows
from softq.errors import InputError
from softq.forms.matching.value_sets import MASKED
from softq.methods import METHODS, Fitted, Options, Sample
from softq.plans import SitePlan
from softq.rowprog import run
from softq.sweeps.records import SiteErrors

_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)
_TOP = 5

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class _Block:
    """Rows of one length and one head, without those that are fully masked, and their exact weights.

    The samples of a block follow each other in its rows: `ends` has the row behind the last of each.
    """

    head: int
    scores: NDArray[np.float32]
    exact: Floats
    first: Indices
    top: Indices
    masked: int
    ends: tuple[int, ...]
    values: tuple[NDArray[np.float32] | None, ...]
    outputs: tuple[Floats | None, ...]


class SiteRows:
    """A sample of the rows of one site.

    Args:
        samples: Rows with their V, as `softq.calibration.collect_rows` gives them.

    Attributes:
        heads: The heads of which there are rows with an unmasked element.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        groups: dict[tuple[int, int], list[Sample]] = {}
        for sample in map(without_masked_rows, samples):
            if len(sample.scores):
                groups.setdefault((sample.head, sample.scores.shape[-1]), []).append(sample)
        self._blocks = [_block(head, group) for (head, _), group in sorted(groups.items(), key=lambda item: item[0])]
        self.heads = sorted({block.head for block in self._blocks})

    def errors(self, planned: SitePlan, head: int | None = None) -> SiteErrors:
        """Return what a site's plan does to the rows, by the row program in the interpreter.

        Of equal weights the first is the greater one, so that a code too coarse to tell weights apart flips their
        order.

        Args:
            planned: What the site gets.
            head: Only the rows of this head; None for all.

        Raises:
            InputError: no row is left that has an unmasked element.
        """
        options = planned.configure()
        blocks = [block for block in self._blocks if head in (None, block.head)]
        if not blocks:
            raise InputError(f"site {planned.id}: the data have no row with an unmasked element to tell errors from")
        change = size = 0.0
        sums: list[Floats] = []
        flips: list[NDArray[np.bool_]] = []
        top: list[NDArray[np.bool_]] = []
        for block, found in zip(blocks, _weights(planned.method, options, planned.fitted, blocks), strict=True):
            sums.append(found.sum(axis=-1))
            lost = np.isnan(found).any(axis=-1)  # a NaN is at no position
            greatest = _greatest(found, _TOP)
            flips.append((block.first != greatest[:, 0]) | lost)
            top.append((block.top != np.sort(greatest, axis=-1)).any(axis=-1) | lost)
            start = 0
            for end, values, output in zip(block.ends, block.values, block.outputs, strict=True):
                if values is not None and output is not None:
                    moved = (found[start:end] - block.exact[start:end]) @ values.astype(np.float64)
                    change += float(np.sum(moved**2))
                    size += float(np.sum(output**2))
                start = end
        valued = all(values is not None for block in blocks for values in block.values)
        total = np.concatenate(sums)
        quantiles = [float(q) for q in np.quantile(total, _QUANTILES)]
        return SiteErrors(
            output_error=math.sqrt(change / size) if valued and size > 0 else None,
            row_sums=(quantiles[0], quantiles[1], quantiles[2], quantiles[3], quantiles[4]),
            mean_row_sum=float(total.mean()),
            argmax_flips=float(np.concatenate(flips).mean()),
            top5_flips=float(np.concatenate(top).mean()),
            masked=sum(block.masked for block in blocks) / sum(block.scores.size for block in blocks),
            rows=len(total),
        )


def _block(head: int, samples: Sequence[Sample]) -> _Block:
    scores = np.concatenate([sample.scores for sample in samples])
    exact = exact_weights(scores)
    ends = [int(end) for end in np.cumsum([len(sample.scores) for sample in samples])]
    values = [sample.values for sample in samples]
    starts = [0, *ends[:-1]]
    outputs = [
        None if v is None else exact[start:end] @ v.astype(np.float64)
        for start, end, v in zip(starts, ends, values, strict=True)
    ]
    greatest = _greatest(exact, _TOP)
    masked = int((scores <= MASKED / 2).sum())  # the score itself is added to the mask
    return _Block(
        head, scores, exact, greatest[:, 0], np.sort(greatest, axis=-1), masked, tuple(ends), tuple(values),
        tuple(outputs),
    )  # fmt: skip


def _weights(method: str, options: Options, fitted: Fitted, blocks: Sequence[_Block]) -> list[Floats]:
    """Return the weights of each block; blocks of one length that get the same numbers are computed together."""
    together: dict[tuple[int, int | None], list[int]] = {}
    a_head = any(isinstance(value, tuple) for value in fitted.values())
    for number, block in enumerate(blocks):
        together.setdefault((block.scores.shape[-1], block.head if a_head else None), []).append(number)
    found: dict[int, Floats] = {}
    for (_, head), numbers in together.items():
        # What is fitted per head is, for the rows of that head, a number of the site.
        mine = {name: value[head or 0] if isinstance(value, tuple) else value for name, value in fitted.items()}
        weights = _program_weights(method, replace(options, **dict.fromkeys(mine, "site")), mine,
                                   np.concatenate([blocks[number].scores for number in numbers]))  # fmt: skip
        cuts = np.cumsum([len(blocks[number].scores) for number in numbers])[:-1]
        found |= zip(numbers, np.split(weights, cuts), strict=True)
    return [found[number] for number in range(len(blocks))]


def _program_weights(method: str, options: Options, fitted: dict[str, float], scores: NDArray[np.float32]) -> Floats:
    entry = METHODS.get(method)
    program = entry.program(options)
    out = run(program, scores, params=entry.parameters(options, fitted))
    if not program.is_pair:
        return out["probabilities"].astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
    return np.where(out["normalizer"] == 0, 0.0, share)  # where nothing is left of a row its output is zeros


def _greatest(weights: Floats, count: int) -> Indices:
    """Return for each row where its greatest weights stand, the greatest first; of equal ones the first counts."""
    left = weights.copy()
    rows = np.arange(len(left))
    found: list[Indices] = []
    for _ in range(min(count, left.shape[-1])):
        found.append(left.argmax(axis=-1))
        left[rows, found[-1]] = -math.inf
    return np.stack(found, axis=-1)
