"""The numbers that `softq.h` and Python share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

MAX_RANK = 8
"""Greatest number of axes of an input or output; `SOFTQ_MAX_RANK`."""

ERROR_BYTES = 512
"""Size of a buffer that holds any message; `SOFTQ_ERROR_BYTES`."""

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
          "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2", "uint2")  # fmt: skip
"""Element types of inputs and outputs by their `softq_dtype`, less one; names are those of NumPy and of ml_dtypes."""

FUNCTIONS = ("inputs", "outputs", "input", "output", "open", "clone", "shape", "run", "message", "close")
"""The functions, each with `softq_` before its name."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of a name of `DTYPES`."""
    return np.dtype(getattr(ml_dtypes, name, name))
