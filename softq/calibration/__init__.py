"""Calibration: `rows` samples the attention rows of each site, `fit` fits a method's options on them."""

from softq.calibration.fit import fit, make_fit
from softq.calibration.rows import Reservoir, collect, collect_rows, exact_weights, input_specs, without_masked_rows

__all__ = [
    "Reservoir", "collect", "collect_rows", "exact_weights", "fit", "input_specs", "make_fit", "without_masked_rows"
]  # fmt: skip
