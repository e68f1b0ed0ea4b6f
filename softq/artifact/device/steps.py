"""The launches of a built model: a program, and how each of its kernels is started on a device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from softq.artifact.device.starting import MOST_BLOCKS, Number, Range, Start, multiple, over
from softq.artifact.machine import Cpu
from softq.artifact.program import Limit, Op, Operator, Program, Size, Step, StepList, Tensor
from softq.errors import InputError
from softq.files import parse_json

SCHEMA = 1

Kind = Literal["items", "blocks", "rows", "tiles", "attention"]


@dataclass(frozen=True)
class RowForm:
    """A kernel of a row program for some lengths of rows.

    Attributes:
        symbol: Its name.
        rows: Rows per block.
        threads: Threads per block.
        chunk: With `aligned`, what the length and the mask's strides must be multiples of.
        aligned: Whether they must.
        longest: Greatest length; None if there is no limit.
        shared: Bytes of dynamic shared memory per block.
    """

    symbol: str
    rows: int
    threads: int
    chunk: int
    aligned: bool
    longest: int | None
    shared: int = 0

    def start(self, items: Size, scalars: Sequence[Size]) -> Start:
        """Return how it is started; the length comes first, a mask's strides come last."""
        length, strides = scalars[0], scalars[3:]
        when: list[Range] = []
        if self.aligned:
            when.append(multiple(length, self.chunk))
            # The mask is read in chunks only if its last axis is as long as the rows: else that stride is 0.
            when += (
                Range(Op("mul", Op("floormod", one, self.chunk), Op("min", strides[3], 1)), 0, 0) for one in strides[:3]
            )
        if self.longest is not None:
            when.append(Range(length, 0, self.longest))
        return Start(self.symbol, self.threads, over(items, self.rows), tuple(when), self.shared)


@dataclass(frozen=True)
class TileForm:
    """A kernel of a product of matrices [m, k] and [k, n] for some of their sizes.

    Attributes:
        symbol: Its name.
        rows: Rows of the result per block.
        columns: Columns of the result per block.
        threads: Threads per block.
        chunk: What k, and the distance between rows of the right operand, must be multiples of.
        most_rows: Greatest m; None if there is no limit.
        least_blocks: The fewest blocks with which it is worth while.
    """

    symbol: str
    rows: int
    columns: int
    threads: int
    chunk: int
    most_rows: int | None
    least_blocks: int

    def start(self, items: Size, scalars: Sequence[Size]) -> Start:
        """Return how it is started for so many products; the numbers are those of `Launch`."""
        m, k, n, *_, pitch = scalars
        blocks = Op("mul", Op("mul", items, over(m, self.rows)), over(n, self.columns))
        when = [multiple(k, self.chunk), multiple(pitch, self.chunk)] if self.chunk > 1 else []
        if self.most_rows is not None:
            when.append(Range(m, 0, self.most_rows))
        if self.least_blocks:
            when.append(Range(blocks, self.least_blocks, MOST_BLOCKS))
        return Start(self.symbol, self.threads, blocks, tuple(when))


@dataclass(frozen=True)
class QueryForm:
    """A kernel of an attention for some numbers of rows of queries.

    Attributes:
        symbol: Its name.
        rows: Rows per block, all of one matrix of keys.
        threads: Threads per block.
        most_rows: Greatest number of rows for each matrix; None if there is no limit.
    """

    symbol: str
    rows: int
    threads: int
    most_rows: int | None

    def start(self, items: Size, scalars: Sequence[Size]) -> Start:
        """Return how it is started for so many matrices of keys; the number of rows comes first."""
        when = () if self.most_rows is None else (Range(scalars[0], 0, self.most_rows),)
        return Start(self.symbol, self.threads, Op("mul", items, over(scalars[0], self.rows)), when)


_FORMS = {"rows": RowForm, "tiles": TileForm, "attention": QueryForm}


@dataclass(frozen=True)
class Launch:
    """How a kernel is started.

    Attributes:
        kind: `items`: one thread per work item, the number of items as the last argument. `blocks`: one block each.
            `rows`: a row program; the number of rows comes before the other numbers, of which the first three are i32.
            `tiles`: products of matrices, of which there are as many as work items; the numbers are m, k, n, the
            elements from one left and one right operand to the next, and `pitch`, those between rows of the right one.
            `attention`: rows of queries for each of so many matrices of keys as there are work items; the first number
            is how many rows.
        module: The module that it stands in.
        threads: Threads per block.
        forms: Of a row program, of products and of attentions its kernels; the first that fits is the one to take.
    """

    kind: Kind
    module: str
    threads: int
    forms: tuple[RowForm | TileForm | QueryForm, ...] = ()

    def starts(self, step: Step) -> tuple[Start, ...]:
        """Return the ways to start it for a step; the first whose conditions hold is the one to take."""
        if self.kind in _FORMS:
            return tuple(form.start(step.items, step.scalars) for form in self.forms)
        blocks = step.items if self.kind == "blocks" else over(step.items, self.threads)
        return (Start(step.kernel, self.threads, blocks),)

    def numbers(self, step: Step) -> tuple[Number, ...]:
        """Return what it gets behind its tensors."""
        numbers = [Number("int64", size) for size in step.scalars]
        items = Number("int64", step.items)
        if self.kind == "rows":
            return (items, *(Number("int32", one.size) for one in numbers[:3]), *numbers[3:])
        return (*numbers, items) if self.kind == "items" else (*numbers,)


@dataclass(frozen=True)
class DeviceProgram:
    """A model for a device.

    Attributes:
        program: Its steps; `objects` is empty.
        launches: How each kernel is started, by the name that steps have for it.
        sources: The text of each module.
        code: What was compiled of each module, empty if there was no compiler.
        form: What the code is: `cubin` or `ptx`.
        host: The processor that the library in C is for; None if there is none for it.
    """

    program: Program
    launches: Mapping[str, Launch]
    sources: Mapping[str, str]
    code: Mapping[str, bytes] = field(default_factory=dict)
    form: str = "cubin"
    host: Cpu | None = None


@dataclass(frozen=True)
class Steps(StepList):
    """What is read back of a program: its steps, the bytes of each weight by its offset, and the launches."""

    weights: Mapping[int, int]
    launches: Mapping[str, Launch]


def to_json(device: DeviceProgram) -> str:
    """Return the launches as text that `from_json` reads."""
    program = device.program
    value = {
        "schema": SCHEMA,
        "inputs": program.inputs,
        "outputs": program.outputs,
        "tensors": [[t.name, t.dtype, [_encoded(s) for s in t.shape], t.place, t.at] for t in program.tensors],
        "slots": [_encoded(size) for size in program.slots],
        "steps": [
            [s.kernel, s.tensors, [_encoded(x) for x in s.scalars], _encoded(s.items), s.site, s.error]
            for s in program.steps
        ],
        "limits": [[_encoded(limit.size), limit.low, limit.high, limit.because] for limit in program.limits],
        "weights": {str(at): int(np.asarray(array).nbytes) for at, array in program.weights.items()},
        "launches": {
            name: [one.kind, one.module, one.threads, [list(vars(form).values()) for form in one.forms]]
            for name, one in device.launches.items()
        },
    }
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> Steps:
    """Return what `to_json` wrote.

    Raises:
        InputError: it is something else.
    """
    try:
        value = cast("dict[str, Any]", parse_json(text))
        if value["schema"] != SCHEMA:
            raise InputError(f"the launches have schema {value['schema']!r}; this softq reads {SCHEMA}")
        return Steps(
            tuple(value["inputs"]),
            tuple(value["outputs"]),
            tuple(Tensor(n, d, tuple(map(_decoded, s)), p, a) for n, d, s, p, a in value["tensors"]),
            tuple(map(_decoded, value["slots"])),
            tuple(
                Step(k, tuple(t), tuple(map(_decoded, s)), _decoded(i), 0, site, error)
                for k, t, s, i, site, error in value["steps"]
            ),
            tuple(Limit(_decoded(s), low, high, because) for s, low, high, because in value["limits"]),
            {int(at): size for at, size in value["weights"].items()},
            {
                n: Launch(k, m, t, tuple(_FORMS[k](*f) for f in forms))
                for n, (k, m, t, forms) in value["launches"].items()
            },
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the launches are damaged: {error}") from error


def _encoded(size: Size) -> object:
    return [size.operator, _encoded(size.a), _encoded(size.b)] if isinstance(size, Op) else size


def _decoded(value: Any) -> Size:
    if isinstance(value, list):
        operator, a, b = cast("list[Any]", value)
        return Op(cast("Operator", operator), _decoded(a), _decoded(b))
    return cast("int | str", value)
