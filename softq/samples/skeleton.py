"""A file of samples for a model, for a user to fill in."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from softq.samples.inputs import BATCH, OPEN_LENGTH, Input, batch_of
from softq.samples.made_up import SMALL_BOUND

FUNCTION = "samples"
"""What the function of the file is called."""


def skeleton(model: str, inputs: Sequence[Input]) -> str:
    """Return the text of a module whose function `samples` yields samples: made up, until a user fills in others."""
    lengths: dict[str, str] = {}
    arrays = [f"            {_quoted(one.array)}: {_value(one, _shape(one, lengths))},  # {one}" for one in inputs]
    named = [f"{name} = {OPEN_LENGTH}  # the model leaves it open: {dim}" for dim, name in lengths.items()]
    batch = batch_of(inputs)
    return "\n".join([
        f'"""Samples for {_plain(model)}, made up of random numbers: put your own in their place.',
        "",
        f"softq takes them as --data FILE.py:{FUNCTION}, or --calibration; arrays called label.NAME are labels.",
        "An array called shared.NAME is the same for all samples of its dict.",
        '"""',
        "",
        "import numpy as np",
        "",
        "COUNT = 16  # how often the model is run",
        f"{BATCH} = {batch}  # samples of a run: the first axis",
        *named,
        "",
        "",
        f"def {FUNCTION}():",
        '    """Yield a dict with an array per input of the model."""',
        "    random = np.random.default_rng(0)",
        "    for _ in range(COUNT):",
        "        yield {",
        *arrays,
        "        }",
        "",
    ])  # fmt: skip


def _shape(one: Input, lengths: dict[str, str]) -> str:
    dims = [dim if isinstance(dim, int) else _constant(one, axis, dim, lengths) for axis, dim in enumerate(one.shape)]
    if dims and not one.shared:
        dims[0] = BATCH
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"


def _constant(one: Input, axis: int, dim: str | None, lengths: dict[str, str]) -> str:
    """Return the name of the constant for an open axis: one for all axes of the same name."""
    if dim == BATCH or (axis == 0 and not one.shared):
        return BATCH
    key = dim or f"axis {axis} of {_plain(one.name)}"
    if key not in lengths:
        name = re.sub(r"\W+", "_", key, flags=re.ASCII).strip("_").upper() or f"LENGTH_{len(lengths)}"
        name = f"LENGTH_{name}" if name[0].isdigit() or name in ("COUNT", BATCH) else name
        lengths[key] = name if name not in lengths.values() else f"{name}_{len(lengths)}"
    return lengths[key]


def _value(one: Input, shape: str) -> str:
    dtype = f"np.{one.dtype}" if one.dtype != "bool" else "bool"
    if one.role == "mask":
        return f"np.ones({shape}, {dtype})"
    if one.role == "segments" or (one.role == "positions" and not one.shape):
        return f"np.zeros({shape}, {dtype})"
    if one.role == "positions":
        return f"np.zeros({shape}, {dtype}) + np.arange({shape}[-1], dtype={dtype})"
    if one.role == "flags":
        return f"random.integers(0, 2, {shape}).astype({dtype})"
    if one.role == "indices":
        return f"random.integers(0, {one.bound or SMALL_BOUND}, {shape}).astype({dtype})"
    if "int" in one.dtype:
        low = 0 if one.dtype.startswith("u") else -128
        return f"random.integers({low}, 128, {shape}).astype({dtype})"
    return f"random.standard_normal({shape}).astype({dtype})"


def _quoted(name: str) -> str:
    return json.dumps(name)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in text)
