"""What a model's inputs take, as far as its graph says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import onnx_ir as ir

from softq.calibration.rows import io_specs
from softq.data import SHARED, without_samples
from softq.errors import UsageError
from softq.input_shapes import InputShapes, fix_input_shapes
from softq.modelfile import ModelLike, as_model

Role = Literal["values", "indices", "mask", "positions", "segments", "flags"]

_NAMES: tuple[tuple[Role, str], ...] = (
    ("mask", "mask"),
    ("positions", "position"),
    ("segments", "token_?type|segment"),
)
"""What inputs of integers are called that are no indices, in every exporter's models."""

OPEN_LENGTH = 16
"""Length that an open axis gets where none is given."""


BATCH = "BATCH"
"""Name of the number of samples in a run."""


@dataclass(frozen=True)
class Input:
    """An input of a model.

    Attributes:
        name: Its name.
        dtype: NumPy's name of its element type.
        shape: A number, or for an open axis its name or None.
        role: What it is: indices into a table, such as ids of tokens; a mask, positions or segments by its name; flags;
            else values.
        bound: The length of the table that indices select from; None if it is not known.
        shared: Whether it has axes, but none for samples (`softq.data.without_samples`); an axis as long as a run has
            samples is called BATCH.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    role: Role
    bound: int | None = None
    shared: bool = False

    @property
    def array(self) -> str:
        """The name of its array in data."""
        return SHARED + self.name if self.shared else self.name

    def lengths(self, count: int, open_length: int = OPEN_LENGTH) -> tuple[int, ...]:
        """Return the shape of its array for `count` samples, with the given length of open axes."""
        own = [dim if isinstance(dim, int) else 1 if dim == BATCH else open_length for dim in self.shape]
        return tuple(own) if self.shared or not own else (count, *own[1:])

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if dim is None else str(dim) for dim in self.shape)}]"


def find_inputs(model: ModelLike, input_shapes: InputShapes | None = None) -> tuple[Input, ...]:
    """Return what a model takes.

    Raises:
        InputError: the file is no usable ONNX model, or `input_shapes` does not fit it.
        UsageError: an input has no known rank, or holds neither numbers nor truth values.
    """
    work = as_model(model)
    fix_input_shapes(work, input_shapes)
    inputs = [_describe(value) for value in work.graph.inputs if value.name not in work.graph.initializers]
    shared = {spec.name for spec in without_samples(*io_specs(work))}
    samples = {dim for one in inputs if one.name not in shared for dim in one.shape[:1] if isinstance(dim, str)}
    return tuple(
        replace(one, shape=tuple(BATCH if dim in samples else dim for dim in one.shape), shared=True)
        if one.name in shared else one for one in inputs
    )  # fmt: skip


def batch_of(inputs: Sequence[Input]) -> int:
    """Return how many samples the model takes at a time: what its inputs fix, else 1."""
    return max((first for one in inputs for first in one.shape[: not one.shared] if isinstance(first, int)), default=1)


def check_count(inputs: Sequence[Input], count: int | None) -> int:
    """Return how many samples to make up: `count`, else 16 or the next multiple of what the model takes at a time.

    Raises:
        UsageError: the model cannot take that many.
    """
    batch = batch_of(inputs)
    if count is None:
        return -(-16 // batch) * batch
    if count % batch:
        raise UsageError(f"count is {count}; the model takes exactly {batch} samples at a time")
    return count


def _describe(value: ir.Value) -> Input:
    name = value.name or ""
    if value.shape is None:
        raise UsageError(f"the shape of input {name!r} is not known; --input-shape '{name}:LENGTHS' gives it")
    shape = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    if value.dtype is None or value.dtype is ir.DataType.STRING:
        raise UsageError(f"input {name!r} holds no numbers")
    dtype = value.dtype.numpy()
    if dtype.kind == "b":
        return Input(name, dtype.name, shape, "mask" if "mask" in name.lower() else "flags")
    if dtype.kind not in "iu":
        return Input(name, dtype.name, shape, "values")
    bound = _table_length(value)
    for role, pattern in _NAMES:
        if re.search(pattern, name.lower()):
            return Input(name, dtype.name, shape, role, bound)
    return Input(name, dtype.name, shape, "values" if bound is None and len(shape) > 2 else "indices", bound)


def _table_length(value: ir.Value) -> int | None:
    """Return the least number of rows of the tables that a value selects from."""
    found: list[int] = []
    for node, index in value.uses():
        if node.op_type in ("Cast", "Identity"):
            found += [length for length in [_table_length(node.outputs[0])] if length is not None]
        elif node.op_type == "Gather" and index == 1:
            table, axis = node.inputs[0], node.attributes.get_int("axis", 0)
            if table is not None and table.shape is not None and isinstance(length := table.shape[axis], int):
                found.append(length)
    return min(found, default=None)
