"""Calibration: `rows` samples the attention rows of each site, `fit` fits a method's options on them."""

from softq.calibration.fit import fit, fit_draws, make_fit
from softq.calibration.rows import collect, collect_rows, exact_weights, input_specs, spec_of, without_masked_rows
from softq.calibration.sampling import Reservoir, Sampling

__all__ = [
    "Reservoir", "Sampling", "collect", "collect_rows", "exact_weights", "fit", "fit_draws", "input_specs", "make_fit",
    "spec_of", "without_masked_rows",
]  # fmt: skip
