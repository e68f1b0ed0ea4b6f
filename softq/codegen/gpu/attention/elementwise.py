"""TVM's elementwise functions as text: what is done to a score, or to an element of the result, within a kernel.

A function is taken from its loop nest over rows: what it does to the element at (row, column), and where in other
tensors it reads for it. Places there are `base + column * step`, so that a thread computes the base once a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.codegen.gpu.dialect.text import Text, literal
from softq.compiler.tir.expressions import found, mentions
from softq.compiler.tir.loop_nests import Nest, elements_of
from softq.compiler.tir.symbolic import key, plain

TYPES: Mapping[str, str] = {
    "float32": "f32", "float16": "u16", "int32": "i32", "int64": "i64", "uint8": "u8", "int8": "i8", "bool": "u8",
}  # fmt: skip
"""Types of memory that are read, by NumPy's name."""


@dataclass(frozen=True)
class Read:
    """An element of another tensor.

    Attributes:
        position: Of the argument of the function that it is an element of.
        base: Its place in the row's first column, of the row's number.
        step: How far it is from one column to the next.
        dtype: NumPy's name of its type.
        var: What stands for it.
    """

    position: int
    base: Any
    step: Any
    dtype: str
    var: Any


@dataclass(frozen=True)
class Function:
    """What is done to an element in a kernel.

    Attributes:
        value: The result.
        held: What stands for the arguments in registers, by their position.
        reads: What is read.
        row: What stands for the row's number.
        column: What stands for the column's, of which the result may be made too.
        scalars: What stands for sizes.
        memory: The kernel's pointers, by position of the argument.
        sizes: The kernel's numbers, by `key` of the variable that stands for them.
    """

    value: Any
    held: Mapping[int, Any]
    reads: tuple[Read, ...]
    row: Any
    column: Any
    scalars: tuple[Any, ...]
    memory: Mapping[int, str] = field(default_factory=dict[int, str])
    sizes: Mapping[int, str] = field(default_factory=dict[int, str])

    def pointers(self) -> Iterator[str]:
        """Yield the declarations of its pointers."""
        for position, name in self.memory.items():
            (dtype,) = {TYPES[read.dtype] for read in self.reads if read.position == position}
            yield f"const GLOBAL {dtype} *RESTRICT {name}"

    def bases(self, text: Text, row: str) -> Iterator[tuple[int, str]]:
        """Yield number and base of each read in a row."""
        expressions = Expressions(text, {key(self.row): row, **self.sizes}, sizes=True)
        for n, read in enumerate(self.reads):
            yield n, expressions.of(read.base)

    def apply(
        self, text: Text, registers: Mapping[int, str], base: Callable[[int], str], *, widen: bool = False
    ) -> str:
        """Return the result for arguments in registers, in the column `column`; `base` is that of each read."""
        names = {key(self.column): f"(({TYPES[str(self.column.ty.dtype)]})column)", **self.sizes}
        sizes = Expressions(text, names, sizes=True)
        for n, read in enumerate(self.reads):
            x = f"{self.memory[read.position]}[{base(n)} + column * {sizes.of(read.step)}]"
            names[key(read.var)] = {"bool": f"({x} != 0)", "float16": f"from_f16({x})"}.get(read.dtype, x)
        names |= {key(var): registers[position] for position, var in self.held.items()}
        return Expressions(text, names, widen=widen).of(self.value)


def read_elementwise(nest: Nest, result: int, held: Mapping[int, str]) -> Function | None:
    """Return what a nest over rows does to an element, or None if it is something else.

    Args:
        nest: The nest.
        result: Position of the result among the function's parameters.
        held: Arguments whose elements at the same place are in registers, and their types; by position.
    """
    parts = elements_of(nest)
    if parts is None:
        return None
    store, owner, row, column = parts.store, parts.owner, parts.row.loop_var, parts.column.loop_var
    if owner.get(key(store.buffer)) != result or _line(store.indices, row, column) is None:
        return None
    stand = {position: tirx.Var("held", dtype) for position, dtype in held.items()}
    reads: list[Read] = []
    fits = True

    def replaced(load: Any) -> Any:
        nonlocal fits
        at, dtype = owner.get(key(load.source)), str(load.ty.dtype)
        if isinstance(at, int) and at in stand:
            return stand[at]
        line = _line(load.indices, row, column)
        if line is None or not isinstance(at, int) or dtype not in TYPES:
            fits = False
            return load
        reads.append(Read(at, *line, dtype, tirx.Var("read", dtype)))
        return reads[-1].var

    value = structural_map(store.value, (tvm.ir.TensorLoad, replaced))
    if not fits or mentions(value, row) or found(value, tvm.ir.TensorLoad):
        return None
    return Function(value, stand, tuple(reads), row, column, nest.scalars)


def _line(indices: Any, row: Any, column: Any) -> tuple[Any, Any] | None:
    """Return base and step of a place, if it lies on a line along the columns."""
    if len(indices) != 1:
        return None
    parts = tvm.sym.detect_linear_equation(indices[0], [column])
    if len(parts) != 2 or any(mentions(parts[0], v) for v in (row, column)) or mentions(parts[1], column):
        return None
    return parts[1], parts[0]


class UnwrittenError(Exception):
    """An expression has no text here."""


_FLOATS: Mapping[type, str] = {
    tirx.Add: "({} + {})", tirx.Sub: "({} - {})", tirx.Mul: "PRODUCT({}, {})", tirx.Div: "QUOTIENT({}, {})",
}  # fmt: skip
_WHOLE: Mapping[type, str] = {
    tirx.Add: "({} + {})", tirx.Sub: "({} - {})", tirx.Mul: "({} * {})", tirx.FloorDiv: "({} / {})",
    tirx.FloorMod: "({} % {})",
}  # fmt: skip
_EITHER: Mapping[type, str] = {
    tirx.EQ: "({} == {})", tirx.NE: "({} != {})", tirx.LT: "({} < {})", tirx.LE: "({} <= {})", tirx.GT: "({} > {})",
    tirx.GE: "({} >= {})", tirx.And: "({} && {})", tirx.Or: "({} || {})",
}  # fmt: skip
_CHOICE: Mapping[type, str] = {tirx.Max: ">", tirx.Min: "<"}


class Expressions:
    """TVM's expressions as text.

    Args:
        text: The kernel's lines, for names that expressions bind.
        names: The text of each variable, by `key`.
        sizes: Whether they are of sizes, which are not negative.
        widen: Whether float16 is computed as float32, without rounding in between; else it is only loaded.
    """

    TYPES: ClassVar[Mapping[str, str]] = {**TYPES, "float16": "f32", "bool": "bool"}
    """Types in registers, by NumPy's name."""

    def __init__(self, text: Text, names: Mapping[int, str], *, sizes: bool = False, widen: bool = False) -> None:
        self._text, self._names, self._sizes, self._widen = text, dict(names), sizes, widen

    def of(self, expr: Any) -> str:
        """Return the text of an expression.

        Raises:
            UnwrittenError: there is none.
        """
        if isinstance(expr, tirx.FloatImm):
            return literal(float(np.float32(expr.value)), self.type_of(expr))
        if isinstance(expr, tirx.IntImm):
            return literal(plain(expr), self.type_of(expr))
        if isinstance(expr, tirx.Var):
            if key(expr) not in self._names:
                raise UnwrittenError
            return self._names[key(expr)]
        if isinstance(expr, tirx.Let):
            self._names[key(expr.var)] = self.bind(expr.var, expr.value)
            return self.of(expr.body)
        if str(expr.ty) == "float16" and not self._widen:
            raise UnwrittenError
        if isinstance(expr, tirx.Not):
            return f"!({self.of(expr.a)})"
        if isinstance(expr, tirx.Cast):
            return self._cast(expr)
        choice = isinstance(expr, tvm.ir.Call) and str(getattr(expr.op, "name", "")) == "tirx.if_then_else"
        if isinstance(expr, tirx.Select) or choice:
            parts = list(expr.args) if choice else [expr.condition, expr.true_value, expr.false_value]
            return f"({self.of(parts[0])} ? {self.of(parts[1])} : {self.of(parts[2])})"
        return self._two(expr)

    def bind(self, var: Any, value: Any) -> str:
        """Return the text of a variable that has this value."""
        return self._text.define(self.type_of(var), self.of(value), "let")

    def type_of(self, expr: Any) -> str:
        """Return the type that an expression has in registers.

        Raises:
            UnwrittenError: there is none.
        """
        name = str(expr.ty.dtype) if hasattr(expr.ty, "dtype") else str(expr.ty)
        if name not in self.TYPES:
            raise UnwrittenError
        return self.TYPES[name]

    def _two(self, expr: Any) -> str:
        kind = type(expr)
        if kind in _CHOICE:
            a, b = self.of(expr.a), self.of(expr.b)
            return f"({a} {_CHOICE[kind]} {b} ? {a} : {b})"
        rules = _EITHER
        if kind not in _EITHER:
            rules = _FLOATS if self.type_of(expr) == "f32" else _WHOLE
        if kind not in rules or (kind in (tirx.FloorDiv, tirx.FloorMod) and not self._sizes):
            raise UnwrittenError
        return rules[kind].format(self.of(expr.a), self.of(expr.b))

    def _cast(self, expr: Any) -> str:
        old, new = self.type_of(expr.value), self.type_of(expr)
        if new == "bool":
            return f"({self.of(expr.value)} != 0)"
        if old == "f32" and new != "f32":
            raise UnwrittenError
        return f"(({new})({self.of(expr.value)}))"
