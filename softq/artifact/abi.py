"""The numbers that `softq.h` and Python share."""

MAX_RANK = 8
"""Greatest number of axes of an input or output; `SOFTQ_MAX_RANK`."""

ERROR_BYTES = 512
"""Size of a buffer that holds any message; `SOFTQ_ERROR_BYTES`."""

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64")  # fmt: skip
"""Element types of inputs and outputs by their `softq_dtype`, less one."""

FUNCTIONS = ("inputs", "outputs", "input", "output", "open", "clone", "shape", "run", "message", "close")
"""The functions, each with `softq_` before its name."""
