"""Calibration: `rows` samples the attention rows of each site, `fit` fits a method's options on them."""

from softq.calibration.fit import fit, make_fit
from softq.calibration.rows import Reservoir, collect, collect_rows, input_specs

__all__ = ["Reservoir", "collect", "collect_rows", "fit", "input_specs", "make_fit"]
