"""Synthetic rows: the relative error of P V by the length of rows, the spread of scores and the mean of V."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.formats.settings import SETTINGS, Setting
from softq.calibration import fit
from softq.methods import METHODS, Sample
from softq.rowprog import Program, run

LENGTHS, SPREADS, MEANS, DRAWS = (256, 1024, 4096), (1.0, 4.0), (1.0, 0.0), 8
ROWS, SIZE = 16, 32

FITS = range(100, 104)
"""The draws that options are fitted on; none of them is measured."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """Scores [rows, N], V [N, size], and P V in float64."""

    scores: NDArray[np.float32]
    values: NDArray[np.float32]
    wanted: Floats

    @staticmethod
    def of(length: int, spread: float, mean: float, number: int) -> Draw:
        """Return the same draw each time."""
        rng = np.random.default_rng((length, int(spread * 10), int(mean * 10), number))
        x = (rng.normal(size=(ROWS, length)) * spread).astype(np.float32)
        v = (rng.normal(size=(length, SIZE)) + mean).astype(np.float32)
        e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True).astype(np.float64))
        return Draw(x, v, e @ v.astype(np.float64) / e.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class Weighed:
    """A setting with its fitted numbers: what makes the weights, and what codes a column of V, if one does."""

    program: Program
    params: Mapping[str, NDArray[np.generic]]
    values: Program | None

    @staticmethod
    def of(setting: Setting, draws: Sequence[Draw]) -> Weighed:
        """Return the setting, fitted on these draws where it is."""
        method = METHODS.get(setting.method)
        options = method.resolve(method.configure(setting.settings), setting.fitted)
        samples = [Sample(draw.scores, draw.values, 0) for draw in draws]
        fitted = fit(method, options, samples) if setting.fitted else {}
        params = {name: value.reshape(-1) for name, value in method.parameters(options, fitted).items()}
        return Weighed(method.program(options), params, method.values_program(options))

    def error(self, draw: Draw) -> float:
        """Return the relative error of P V, sums in float64."""
        out = run(self.program, draw.scores, params=self.params)
        held = draw.values
        if self.values is not None:
            held = run(self.values, np.ascontiguousarray(held.T))["values"].T
        whole = out["weights" if self.program.is_pair else "probabilities"].astype(np.float64) @ held.astype(np.float64)
        whole = whole / out["normalizer"].astype(np.float64) if self.program.is_pair else whole
        return float(np.linalg.norm(whole - draw.wanted) / np.linalg.norm(draw.wanted))


_T_95 = 2.365
"""Student's t of 7 degrees of freedom."""


def measure_rows() -> list[dict[str, Any]]:
    """Return the mean error of each setting over the draws, with a 95% interval of the mean."""
    rows: list[dict[str, Any]] = []
    for mean, length, spread in product(MEANS, LENGTHS, SPREADS):
        draws, others = ([Draw.of(length, spread, mean, number) for number in numbers]
                         for numbers in (range(DRAWS), FITS))  # fmt: skip
        for setting in SETTINGS:
            weighed = Weighed.of(setting, others)
            found = np.array([weighed.error(draw) for draw in draws])
            half = _T_95 * float(found.std(ddof=1)) / math.sqrt(DRAWS)
            rows.append({"label": setting.label, "bits": setting.bits, "length": length, "spread": spread,
                         "mean": mean, "error": float(found.mean()), "half": half})  # fmt: skip
        print(f"mean {mean:g}, N = {length}, sd {spread:g}: done", flush=True)
    return rows
