"""A method, a metric and a target for softq: w = max(0, 1 - d / width) for the distance d = max(x) - x."""

from dataclasses import dataclass

import numpy as np

from softq.methods import Method, Options, Outputs, option
from softq.metrics import MEAN, PairedMetric, PerSample
from softq.passes.fold_constants import FoldConstants
from softq.passes.inline_functions import InlineFunctions
from softq.rowprog import DType, Trace
from softq.rowprog.library import distance
from softq.targets import Target


@dataclass(frozen=True)
class RampOptions(Options):
    """How far from the greatest score a weight becomes 0."""

    width: float = option(8.0, "distance from which on the weight is 0", low=1.0, high=64.0)


def _trace(t: Trace, options: RampOptions) -> Outputs:
    d = distance(t)
    near = t.max(d.row, 0.0)  # 0 for a score of +inf, which takes all the weight
    return d.pair(t.max(1.0 - near * t.const(1 / options.width, DType.F32), 0.0))


def _margin(output: np.ndarray) -> np.ndarray:
    best = np.sort(output.astype(np.float64), axis=-1)
    return best[:, -1] - best[:, -2]


def _change(reference: np.ndarray, candidate: np.ndarray) -> PerSample:
    return PerSample(abs(_margin(candidate) - _margin(reference)), np.ones(len(reference)))


METHOD = Method("ramp", "A straight line instead of the exponential.", "none", RampOptions, _trace, drop_in=True)
METRIC = PairedMetric("margin-change", "lower", "output units", "change of the lead of the best score", False, _change,
                      kind=MEAN, bounds=(0.0, float("inf")))  # fmt: skip
TARGET = Target("tidy-onnx", "Plain operators, constants folded.", "an .onnx file", "nothing",
                passes=lambda: (InlineFunctions(), FoldConstants()))  # fmt: skip
