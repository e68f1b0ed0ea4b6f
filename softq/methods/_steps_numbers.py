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
    4: {"r": 23.0, "first": 0.17, "shift": 0.7, "slope": 0.0},
    5: {"r": 110.0, "first": 0.12, "shift": 4.0, "slope": 0.0},
    6: {"r": 358.0, "first": 0.06, "shift": 3.0, "slope": 0.0},
    7: {"r": 1152.0, "first": 0.03, "shift": 0.4, "slope": 0.0},
}
