"""What special scores give, computed by the reference interpreter."""

from __future__ import annotations

import math

import numpy as np

from softq.methods import Method
from softq.rowprog import run

_INF, _NAN = math.inf, math.nan
_CASES: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = (
    ("all equal", (2, 2, 2, 2), (1, 1, 1, 1)),
    ("one element", (2,), (1,)),
    ("-inf", (0, -_INF, 0, -_INF), (1, 1, 1, 1)),
    ("+inf", (_INF, 0, 3, _INF), (1, 1, 1, 1)),
    ("only -inf", (-_INF, -_INF), (1, 1)),
    ("a NaN", (0, _NAN, 0, _INF), (1, 1, 1, 1)),
    ("masked, with a NaN and +inf under the mask", (0, _NAN, 0, _INF), (1, 0, 1, 0)),
    ("fully masked", (0, 1), (0, 0)),
    ("empty", (), ()),
)
"""Name, scores, and which elements take part."""


def special_values(method: Method) -> list[dict[str, object]]:
    """Return, for each kind of special row, the scores, which of them take part, and each output of float scores.

    Numbers are numbers, and text where JSON has none: "nan", "inf", "-inf". Of a row that holds a NaN only the
    normalizer (or the probabilities) is specified; further outputs are None there.
    """
    program = method.program(method.resolve(method.configure({}), False), masked=True)
    decisive = "normalizer" if program.is_pair else "probabilities"
    found: list[dict[str, object]] = []
    for name, scores, valid in _CASES:
        keep = np.array(valid, np.bool_)
        x = np.array(scores, np.float32)
        out = run(program, x[None], valid=keep[None])
        unspecified = bool(np.any(np.isnan(x[keep])))
        found.append({
            "row": name,
            "scores": [_plain(v) for v in x.tolist()],
            "valid": keep.tolist(),
            "outputs": {
                k: None if unspecified and k != decisive else [_plain(v) for v in values[0].tolist()]
                for k, values in out.items()
            },
        })  # fmt: skip
    return found


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
