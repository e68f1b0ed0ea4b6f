"""Growing steps without calibration data, by bits: `python -m benchmarks.growing_steps` searches these numbers.

A number of `first`, `shift` and `slope` means what `softq.methods._steps` says.
"""

from __future__ import annotations

from collections.abc import Mapping

Numbers = Mapping[int, Mapping[str, float]]

OF_FLOATS: Numbers = {
    2: {"r": 1.3, "first": 0.8, "shift": 0.2, "slope": 0.2},
    3: {"r": 6.5, "first": 0.4, "shift": 0.8, "slope": 0.0},
    4: {"r": 23.0, "first": 0.17, "shift": 0.7, "slope": 0.0},
}
"""Middle of what the sites of SmolLM2-135M and models/wikipedia_lm are fitted to."""

OF_BYTES: Numbers = {
    2: {"r": 1.3, "first": 0.8, "shift": 0.2, "slope": 0.2},
    3: {"r": 6.5, "first": 0.4, "shift": 0.8, "slope": 0.0},
    4: {"r": 23.7, "first": 0.218, "shift": 1.1, "slope": 0.0},
    5: {"r": 110.0, "first": 0.12, "shift": 4.0, "slope": 0.0},
    6: {"r": 346.0, "first": 0.0383, "shift": 3.8, "slope": 0.0},
    7: {"r": 1070.0, "first": 0.009, "shift": 0.4, "slope": 0.0},
}
"""Found on calibration data of models/mnist_vit, models/wikipedia_lm and SmolLM2-135M, and on normal rows; with 2 and 3
bits those of floats, which nothing found beats on all of them."""
