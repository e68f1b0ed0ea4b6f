"""Recurrences: a work item is a direction of a block of sequences, which goes through all steps.

The weights are packed in panels as right operands of products are, so that vectors run over the gates; the states of a
block stand in memory of the thread, each with room for whole vectors, and what is computed behind their end is never
read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.gemm.tiles import Matrix, Sums, Tile, block_tiles, ceil_divide, number
from softq.compiler.legalize.activations import ACTIVATIONS
from softq.compiler.ops.recurrence import Activation, RecurrenceOp
from softq.compiler.tir.expressions import Names
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import ceiling, computed, multiplied


def _f(value: float) -> Any:
    return tirx.FloatImm("float32", value)


def groups_of(op: RecurrenceOp) -> tuple[int, ...]:
    """Return how many gates each array of weights is for."""
    return (2, 1) if op.kind == "GRU" else (op.gates,)


_NUMBERS = 64
"""Bytes of a sequence's own numbers; the rest of the memory begins at a multiple of vectors."""

_STATES = ("hidden", "cell", "extra", "fresh")


def scratch_bytes(op: RecurrenceOp, hidden: Size, tile: Tile) -> Size:
    """Return the bytes that a thread needs: for each sequence its gates and states."""
    gates = [computed("add", multiplied([gates, hidden]), tile.lanes) for gates in groups_of(op)]
    total: Size = tile.lanes
    for part in [*gates, *[computed("add", hidden, tile.lanes)] * len(_STATES)]:
        total = computed("add", total, part)
    return multiplied([computed("add", total, _NUMBERS // 4), tile.rows, 4])


def recurrence_kernel(symbol: str, op: RecurrenceOp, tile: Tile) -> tirx.PrimFunc:
    """Return the kernel of a recurrence.

        void symbol(x, panels..., given..., states, last, [cells], scratch,
                    int64_t steps, batch, hidden, begin, end)

    What the pointers are, `RecurrenceOp` says; weights are panels [directions, panels, hidden, columns]. A work item is
    a direction and up to `tile.rows` sequences.
    """
    types = {"x": "float32", **{f"panels{i}": "float32" for i in range(len(groups_of(op)))}}
    for name in ("bias", "hidden", "cell", "peepholes", "lengths"):
        if name in op.given:
            types[f"given_{name}"] = "int64" if name == "lengths" else "float32"
    types |= dict.fromkeys(("states", "last", *(["cells"] if op.kind == "LSTM" else [])), "float32")
    types["scratch"] = "uint8"
    with kernel_function(symbol, types, ("steps", "batch", "hidden")) as made:
        _Kernel(op, tile, made).emit()
    return made.function


class _Kernel:
    def __init__(self, op: RecurrenceOp, tile: Tile, made: KernelFunction) -> None:
        self._op, self._tile, self._memory, self._size = op, tile, made.memory, made.sizes
        self._hidden, self._rows, self._lanes = made.sizes["hidden"], number(tile.rows), number(tile.lanes)
        # Numbers that many expressions share are kept in memory: TVM would copy and simplify them together.
        self._numbers = T.alloc_buffer((16,), "int64", scope="local")
        self._kept = 0
        # Numbers of each sequence stand there too: TVM would shrink an array of its own to the block's sequences.
        memory, rows = made.memory["scratch"], tile.rows
        at = [T.address_of(memory[number(start * rows)]) for start in (0, 8, _NUMBERS)]
        self._time, self._length = (T.decl_buffer((number(1),), "int64", data=x, align=8) for x in at[:2])
        self._floats = T.decl_buffer((number(1),), "float32", data=at[2], align=4)
        self._sums = Sums(tile)
        self._starts, at = list[Any](), number(0)
        lanes = self._lanes
        for gates in groups_of(op):
            self._starts.append(at)
            at = at + ceil_divide(number(gates) * self._hidden, lanes) * lanes
        self._stride = self._keep(at + lanes)
        self._width = self._keep(ceil_divide(self._hidden, lanes) * lanes)
        self._starts = [self._keep(start) for start in self._starts]
        self._place = {
            name: self._keep(self._rows * (self._stride + number(i) * self._width)) for i, name in enumerate(_STATES)
        }
        self._done = T.alloc_buffer((1,), "int64", scope="local")

    def _keep(self, value: Any) -> Any:
        at = number(self._kept)
        self._kept += 1
        T.buffer_store(self._numbers, value, [at])
        return self._numbers[at]

    def emit(self) -> None:
        batch = self._size["batch"]
        blocks, directions = ceil_divide(batch, self._rows), number(len(self._op.reverse))
        longest = T.alloc_buffer((1,), "int64", scope="local")
        zero = number(0)
        with T.serial(self._size["begin"], self._size["end"]) as item:
            direction, first = tirx.truncdiv(item, blocks), tirx.truncmod(item, blocks) * self._rows
            count = tirx.min(self._rows, batch - first)
            T.buffer_store(longest, zero, [zero])
            with T.serial(zero, count) as row:
                steps = self._size["steps"]
                if "lengths" in self._op.given:
                    steps = self._memory["given_lengths"][first + row]
                T.buffer_store(self._length, steps, [row])
                T.buffer_store(longest, tirx.max(longest[zero], steps), [zero])
                sequence = (direction * batch + first + row) * self._hidden
                for name in ("hidden", "cell") if self._op.kind == "LSTM" else ("hidden",):
                    source = self._memory[f"given_{name}"] if name in self._op.given else None
                    self._copy(source, sequence, self._floats, self._at(name, row), self._hidden)
            with T.serial(zero, longest[zero]) as step:
                self._take_inputs(step, direction, directions, first, count)
                self._step(direction, count, step)
                with T.serial(zero, count) as row, T.If(step < self._length[row]), T.Then():
                    out = ((self._time[row] * directions + direction) * batch + first + row) * self._hidden
                    self._copy(self._floats, self._at("hidden", row), self._memory["states"], out, self._hidden)
            with T.serial(zero, count) as row:
                sequence = (direction * batch + first + row) * self._hidden
                for name, result in (("hidden", "last"), ("cell", "cells")):
                    if result in self._memory:
                        # A sequence without steps has no last one.
                        self._copy(self._floats, self._at(name, row), self._memory[result], sequence, self._hidden)
                if "lengths" in self._op.given:
                    with T.serial(self._length[row], self._size["steps"]) as time:
                        out = ((time * directions + direction) * batch + first + row) * self._hidden
                        self._copy(None, zero, self._memory["states"], out, self._hidden)

    def _at(self, name: str, row: Any) -> Any:
        return self._place[name] + row * self._width

    def _gate(self, gate: int, row: Any) -> Any:
        """Return where a gate of a sequence begins."""
        part, inside = 0, gate
        for gates in groups_of(self._op):
            if inside < gates:
                break
            part, inside = part + 1, inside - gates
        return row * self._stride + self._starts[part] + number(inside) * self._hidden

    @staticmethod
    def _copy(source: Any, at: Any, target: Any, to: Any, count: Any) -> None:
        """Emit a copy, of zeros where there is no source."""
        with T.serial(number(0), count) as i:
            T.buffer_store(target, _f(0.0) if source is None else source[at + i], [to + i])

    def _take_inputs(self, step: Any, direction: Any, directions: Any, first: Any, count: Any) -> None:
        """Emit what every sum begins with: the products of the inputs of the sequences' next steps."""
        reverse, zero, hidden = self._op.reverse, number(0), self._hidden
        with T.serial(zero, count) as row:
            behind = self._length[row] - number(1) - step
            time = behind if all(reverse) else step
            if len(set(reverse)) > 1:
                time = tirx.Select(direction == number(reverse.index(True)), behind, step)
            # Of a sequence that has ended nothing is used, but something is read.
            T.buffer_store(self._time, tirx.max(tirx.min(time, self._size["steps"] - number(1)), zero), [row])
            start = (self._time[row] * self._size["batch"] + first + row) * directions + direction
            start = start * number(self._op.gates) * hidden
            if self._op.kind != "GRU":
                self._copy(self._memory["x"], start, self._floats, self._gate(0, row), number(self._op.gates) * hidden)
                return
            self._copy(self._memory["x"], start, self._floats, self._gate(0, row), number(2) * hidden)
            whole = "bias" in self._op.given
            to = self._at("fresh", row) if whole else self._gate(2, row)
            self._copy(self._memory["x"], start + number(2) * hidden, self._floats, to, hidden)
            if whole:
                bias = self._memory["given_bias"]
                self._copy(bias, direction * hidden, self._floats, self._gate(2, row), hidden)

    def _multiply(self, part: int, left: str, direction: Any, count: Any) -> None:
        """Emit the product of a state with weights, added to the gates."""
        tile, hidden = self._tile, self._hidden
        columns = number(groups_of(self._op)[part]) * hidden
        panels = ceil_divide(columns, number(tile.columns))
        with T.serial(number(0), panels) as panel:
            column = panel * number(tile.columns)
            width = tirx.min(number(tile.columns), columns - column)
            start = (direction * panels + panel) * hidden * number(tile.columns)
            weights = Matrix(self._memory[f"panels{part}"], start, number(tile.columns))
            for rows, vectors, row in block_tiles(tile, width, number(0), count, self._done):
                gates = Matrix(self._floats, row * self._stride + self._starts[part] + column, self._stride)
                state = Matrix(self._floats, self._at(left, row), self._width)
                full = number(vectors * tile.lanes)
                self._sums.load(rows, gates, full, vectors)
                self._sums.add_products(rows, state, weights, hidden, vectors)
                self._sums.store(rows, gates, full, vectors)

    def _step(self, direction: Any, count: Any, step: Any) -> None:
        self._multiply(0, "hidden", direction, count)
        if self._op.kind == "GRU":
            separate = "bias" not in self._op.given
            if separate:
                self._activate(direction, count, step, self._reset)
            self._multiply(1, "extra" if separate else "hidden", direction, count)
        update = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self._op.kind]
        self._activate(direction, count, step, update)

    def _activate(self, direction: Any, count: Any, step: Any, update: Callable[..., None]) -> None:
        """Emit a function of the gates of each sequence that has not ended, for each vector of them."""
        op, zero = self._op, number(0)
        alike = len(set(op.activations)) == 1
        with T.serial(zero, count) as row, T.If(step < self._length[row]), T.Then():
            for number_, functions in enumerate(op.activations[: 1 if alike else None]):
                with nullcontext() if alike else T.If(direction == number(number_)):  # noqa: SIM117
                    with (
                        nullcontext() if alike else T.Then(),
                        T.serial(zero, tirx.truncdiv(self._width, self._lanes)) as block,
                        (T.serial if self._tile.lanes == 1 else T.vectorized)(zero, self._lanes) as lane,
                    ):
                        update(functions, direction, row, block * self._lanes + lane)

    def _apply(self, function: Activation, x: Any) -> Any:
        """Return an activation of a number, which the formula uses many times."""
        names, clip = Names(), self._op.clip
        if clip is not None:
            x = names.bind("unlimited", x)
            x = names.bind("below", tirx.Select(x > _f(clip), _f(clip), x))
            x = tirx.Select(x < _f(-clip), _f(-clip), x)
        x = names.bind("x", x)
        return names.around(ACTIVATIONS[function.name](x, function.alpha, function.beta))

    def _load(self, start: Any, j: Any) -> Any:
        return self._floats[start + j]

    def _store(self, value: Any, name: str, row: Any, j: Any) -> None:
        T.buffer_store(self._floats, value, [self._at(name, row) + j])

    def _rnn(self, functions: Sequence[Activation], direction: Any, row: Any, j: Any) -> None:
        self._store(self._apply(functions[0], self._load(self._gate(0, row), j)), "hidden", row, j)

    def _reset(self, functions: Sequence[Activation], direction: Any, row: Any, j: Any) -> None:
        """Emit the state as the reset gate lets it through."""
        reset = self._apply(functions[0], self._load(self._gate(1, row), j))
        self._store(reset * self._load(self._at("hidden", row), j), "extra", row, j)

    def _gru(self, functions: Sequence[Activation], direction: Any, row: Any, j: Any) -> None:
        fresh = self._load(self._gate(2, row), j)
        if "bias" in self._op.given:
            fresh = fresh * self._apply(functions[0], self._load(self._gate(1, row), j))
            fresh = fresh + self._load(self._at("fresh", row), j)
        self._store(self._apply(functions[1], fresh), "extra", row, j)
        self._store(self._apply(functions[0], self._load(self._gate(0, row), j)), "fresh", row, j)
        old, new, update = (self._load(self._at(name, row), j) for name in ("hidden", "extra", "fresh"))
        self._store((_f(1.0) - update) * new + update * old, "hidden", row, j)

    def _lstm(self, functions: Sequence[Activation], direction: Any, row: Any, j: Any) -> None:
        gate, cell_function, hidden_function = functions

        def opened(number_: int, seen: int) -> Any:
            x = self._load(self._gate(number_, row), j)
            if "peepholes" in self._op.given:
                at = (direction * number(3) + number(seen)) * self._hidden
                inside = tirx.min(j, self._hidden - number(1))
                x = x + self._memory["given_peepholes"][at + inside] * self._load(self._at("cell", row), j)
            return self._apply(gate, x)

        self._store(opened(0, 0), "extra", row, j)
        kept = _f(1.0) - self._load(self._at("extra", row), j) if self._op.coupled else opened(2, 2)
        self._store(kept, "fresh", row, j)
        new = self._apply(cell_function, self._load(self._gate(3, row), j))
        entering, kept, cell = (self._load(self._at(name, row), j) for name in ("extra", "fresh", "cell"))
        self._store(kept * cell + entering * new, "cell", row, j)
        shown = self._apply(hidden_function, self._load(self._at("cell", row), j))
        self._store(shown * opened(1, 1), "hidden", row, j)


def items(op: RecurrenceOp, batch: Size, tile: Tile) -> Size:
    """Return how many work items there are."""
    return multiplied([len(op.reverse), ceiling(batch, tile.rows)])
