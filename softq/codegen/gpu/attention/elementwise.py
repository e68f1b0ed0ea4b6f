"""TVM's elementwise functions as text: what is done to a score, or to an element of the result, within a kernel.

A function is taken from its loop nest over rows: what it does to the element at (row, column), and where in other
tensors it reads for it. Places there are `base + column * step`, so that a thread computes the base once a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
class Elementwise:
    """What is done to an element.

    Attributes:
        value: The result.
        held: What stands for the arguments in registers, by their position.
        reads: What is read.
        row: What stands for the row's number.
        column: What stands for the column's, of which the result may be made too.
        scalars: What stands for sizes.
    """

    value: Any
    held: Mapping[int, Any]
    reads: tuple[Read, ...]
    row: Any
    column: Any
    scalars: tuple[Any, ...]


def read_elementwise(nest: Nest, result: int, held: Mapping[int, str]) -> Elementwise | None:
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
    return Elementwise(value, stand, tuple(reads), row, column, nest.scalars)


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
        names: The text of a variable.
        sizes: Whether they are of sizes, which are not negative.
        widen: Whether float16 is computed as float32, without rounding in between; else it is only loaded.
    """

    def __init__(
        self, text: Text, names: Callable[[Any], str | None], *, sizes: bool = False, widen: bool = False
    ) -> None:
        self._text, self._names, self._sizes, self._widen = text, names, sizes, widen
        self._bound: dict[int, str] = {}

    def of(self, expr: Any) -> str:
        """Return the text of an expression.

        Raises:
            UnwrittenError: there is none.
        """
        if str(expr.ty) == "float16" and not self._widen and not isinstance(expr, tirx.Var):
            raise UnwrittenError
        if isinstance(expr, (tirx.FloatImm, tirx.IntImm)):
            return literal(plain(expr) if isinstance(expr, tirx.IntImm) else float(expr.value), _type(expr))
        if isinstance(expr, tirx.Var):
            name = self._bound.get(key(expr)) or self._names(expr)
            if name is None:
                raise UnwrittenError
            return name
        if isinstance(expr, tirx.Let):
            self._bound[key(expr.var)] = self._text.define(_type(expr.var), self.of(expr.value), "let")
            return self.of(expr.body)
        if isinstance(expr, tirx.Not):
            return f"!({self.of(expr.a)})"
        if isinstance(expr, tirx.Cast):
            return self._cast(expr)
        choice = isinstance(expr, tvm.ir.Call) and str(getattr(expr.op, "name", "")) == "tirx.if_then_else"
        if isinstance(expr, tirx.Select) or choice:
            parts = list(expr.args) if choice else [expr.condition, expr.true_value, expr.false_value]
            return f"({self.of(parts[0])} ? {self.of(parts[1])} : {self.of(parts[2])})"
        return self._two(expr)

    def _two(self, expr: Any) -> str:
        kind = type(expr)
        if kind in _CHOICE:
            a, b = self.of(expr.a), self.of(expr.b)
            return f"({a} {_CHOICE[kind]} {b} ? {a} : {b})"
        rules = _EITHER
        if kind not in _EITHER:
            rules = _FLOATS if _type(expr) == "f32" else _WHOLE
        if kind not in rules or (kind in (tirx.FloorDiv, tirx.FloorMod) and not self._sizes):
            raise UnwrittenError
        return rules[kind].format(self.of(expr.a), self.of(expr.b))

    def _cast(self, expr: Any) -> str:
        old, new = _type(expr.value), _type(expr)
        if new == "bool":
            return f"({self.of(expr.value)} != 0)"
        if old == "f32" and new != "f32":
            raise UnwrittenError
        return f"(({new})({self.of(expr.value)}))"


def _type(expr: Any) -> str:
    name = str(expr.ty.dtype) if hasattr(expr.ty, "dtype") else str(expr.ty)
    if name == "bool":
        return "bool"
    if name == "float16":
        return "f32"
    if name not in TYPES:
        raise UnwrittenError
    return TYPES[name]
