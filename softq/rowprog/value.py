"""Values of a program under construction, and what makes them: each operator by its name, Python's by their signs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from softq.errors import UsageError
from softq.rowprog.ops import OPS
from softq.rowprog.program import Node, ScanBody
from softq.rowprog.types import DType, Kind, Number, exact

GREATEST_GROUP = 256
"""Elements of a group of `group_max` at most."""


class Builder:
    """Makes the nodes of a program, equal expressions only once."""

    def __init__(self) -> None:
        self._nodes: dict[object, Node] = {}

    @property
    def nodes(self) -> Iterable[Node]:
        """The nodes that were made, in their order."""
        return self._nodes.values()

    def apply(self, op: str, *operands: Operand) -> Value:
        """Return an operator of `softq.rowprog.ops`; a Python number takes the type of an operand of its class.

        Raises:
            UsageError: an operand is not what the operator takes.
        """
        rule = OPS[op]
        types = {o.type: v.dtype for o, v in zip(rule.operands, operands, strict=False) if isinstance(v, Value)}
        given: list[Value] = []
        for operand, value in zip(rule.operands, operands, strict=False):
            if isinstance(value, Value):
                given.append(self.own(value))
            elif operand.type in types:
                held = exact(value, types[operand.type], rounding=False, where=f"{op}: ")
                given.append(self.make("const", (), types[operand.type], Kind.SCALAR, {"value": held}))
            else:
                raise UsageError(f"{op} of Python numbers: at least one operand must be a traced value")
        dtype, kind = rule.type_of([(value.dtype, value.kind) for value in given])
        assert dtype is not None, f"the operands of {op} do not decide its type"
        return self.make(op, tuple(value.node for value in given), dtype, kind)

    binary = unary = apply  # what methods of other packages call it

    # Leaves

    def const(self, value: Number, dtype: DType) -> Value:
        """Return a constant. An integer type holds integers only; f32 takes the nearest f32, and bool a bool."""
        return self.make("const", (), dtype, Kind.SCALAR, {"value": exact(value, dtype, rounding=dtype.is_float)})

    def index(self) -> Value:
        """Return the position of each element, row of i32."""
        return self.apply("index")

    def length(self) -> Value:
        """Return N, scalar of i32."""
        return self.apply("length")

    # Elementwise

    def divide(self, a: Operand, b: Operand) -> Value:
        """Return a / b: the floor for integers (a >= 0 and b > 0 must be provable), rounded for f32."""
        return self.apply("divide", a, b)

    def min(self, a: Operand, b: Operand) -> Value:
        """Return select(a < b, a, b): b where either is NaN."""
        return self.apply("min", a, b)

    def max(self, a: Operand, b: Operand) -> Value:
        """Return select(b < a, a, b): b where either is NaN."""
        return self.apply("max", a, b)

    def clamp(self, a: Value, low: Operand, high: Operand) -> Value:
        """Return min(max(a, low), high); a NaN becomes low."""
        return self.min(self.max(a, low), high)

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """Return a where the condition is true, else b."""
        return self.apply("select", condition, a, b)

    def cast(self, a: Value, dtype: DType) -> Value:
        """Return the same value in another type; into an integer type it must provably fit."""
        self.own(a)
        if DType.BOOL in (a.dtype, dtype):
            raise UsageError(f"cast from {a.dtype.value} to {dtype.value} is not defined; use select or a comparison")
        _, kind = OPS["cast"].type_of([(a.dtype, a.kind)])
        return a if a.dtype is dtype else self.make("cast", (a.node,), dtype, kind)

    def rint(self, a: Value) -> Value:
        """Return the nearest integers, half to even, as f32."""
        return self.apply("rint", a)

    def log2(self, a: Value) -> Value:
        """Return the logarithm to base 2."""
        return self.apply("log2", a)

    def sqrt(self, a: Value) -> Value:
        """Return the square root."""
        return self.apply("sqrt", a)

    def lut(self, table: Value, at: Value) -> Value:
        """Return the table's entries at integer positions."""
        return self.apply("lut", table, at)

    def exp2i(self, n: Value) -> Value:
        """Return 2^n as f32, exactly, for i32 n in [-126, 127]."""
        return self.apply("exp2i", n)

    def normalize(self, a: Value) -> tuple[Value, Value]:
        """Return (mantissa, shift) of a u32 scalar > 0: a << shift = mantissa in [2^31, 2^32)."""
        _, kind = OPS["normalize"].type_of([(self.own(a).dtype, a.kind)])
        parts = {"mantissa": DType.U32, "shift": DType.I32}
        mantissa, shift = (self.make("normalize", (a.node,), t, kind, {"part": part}) for part, t in parts.items())
        return mantissa, shift

    def assume(self, a: Value, low: Number, high: Number, because: str) -> Value:
        """Return `a`, known to lie in [low, high] for a reason that the analysis cannot see."""
        self.own(a)
        if a.dtype is DType.BOOL or not low <= high or not because:
            raise UsageError(f"assume needs a number, low <= high and a reason; got {a}, [{low}, {high}], {because!r}")
        ends = {name: exact(end, a.dtype, rounding=False) for name, end in (("low", low), ("high", high))}
        return self.make("assume", (a.node,), a.dtype, a.kind, {**ends, "because": because})

    def exp_minus(self, d: Value, value: Value) -> Value:
        """Return `value`, which is e^-d; a backend with an exponential of its own may compute it by that instead."""
        if value.kind is not d.kind:
            raise UsageError(f"exp_minus takes two floats of one kind, not {d} and {value}")
        return self.apply("exp_minus", d, value)

    def round_to(self, a: Value, value: Value, form: str) -> Value:
        """Return `value`, which is `a` rounded to a format; `softq.rowprog.rounding.round_to` writes it."""
        if value.kind is not a.kind:
            raise UsageError(f"round_to takes two floats of one kind, not {a} and {value}")
        dtype, kind = OPS["round_to"].type_of([(self.own(x).dtype, x.kind) for x in (a, value)])
        assert dtype is not None
        return self.make("round_to", (a.node, value.node), dtype, kind, {"format": form})

    # Groups of elements

    def group_max(self, a: Value, size: int) -> Value:
        """Return the greatest of each element's group of `size` consecutive ones, row of f32."""
        dtype, kind = OPS["group_max"].type_of([(self.own(a).dtype, a.kind)])
        if not 2 <= size <= GREATEST_GROUP or size & (size - 1):
            raise UsageError(f"group_max takes groups of a power of two, 2 to {GREATEST_GROUP} elements, not {size}")
        assert dtype is not None
        return self.make("group_max", (a.node,), dtype, kind, {"size": size})

    # Reductions

    def row_max(self, a: Value) -> Value:
        """Return the greatest element of the row."""
        return self.apply("row_max", a)

    def row_min(self, a: Value) -> Value:
        """Return the least element of the row."""
        return self.apply("row_min", a)

    def row_sum(self, a: Value) -> Value:
        """Return the sum over the row, in the type of the elements: cast first where it needs a wider one."""
        return self.apply("row_sum", a)

    def any(self, condition: Value) -> Value:
        """Return whether the condition holds for any element of the row (false for an empty one)."""
        marks = self.select(condition, self.const(1, DType.U8), self.const(0, DType.U8))  # unsigned: 0 of an empty row
        return self.row_max(marks) > 0

    # Building blocks

    def make(
        self, op: str, args: tuple[Node, ...], dtype: DType, kind: Kind, attrs: Mapping[str, object] | None = None
    ) -> Value:
        """Return a node of the given type, unchecked: the one that is there already if it is equal."""
        attrs = dict(attrs or {})
        # repr tells -0.0 from 0.0 and one NaN from a number; dictionaries keep their order of insertion.
        held = tuple((k, id(v) if isinstance(v, ScanBody) else repr(v)) for k, v in attrs.items())
        key = (op, tuple(map(id, args)), dtype, kind, held)
        return Value(self, self._nodes.setdefault(key, Node(op, args, dtype, kind, attrs)))

    def own(self, value: Value) -> Value:
        """Return a value of this program.

        Raises:
            UsageError: it belongs to another one.
        """
        if value.trace is not self:
            raise UsageError(f"{value} belongs to another trace")
        return value


def _sign(op: str, *, swapped: bool = False) -> Callable[[Value, Operand], Value]:
    """Return what Python's sign of a binary operator does; `swapped`: its right operand is the operator's first."""

    def apply(self: Value, other: Operand) -> Value:
        return self.trace.apply(op, *((other, self) if swapped else (self, other)))

    return apply


class Value:
    """A value of a program under construction: a row, or one number per row."""

    __slots__ = ("node", "trace")

    def __init__(self, trace: Builder, node: Node) -> None:
        self.trace = trace
        self.node = node

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.node.dtype

    @property
    def kind(self) -> Kind:
        """Row, scalar or table."""
        return self.node.kind

    __add__, __sub__, __mul__ = _sign("add"), _sign("sub"), _sign("mul")
    __radd__, __rsub__, __rmul__ = _sign("add", swapped=True), _sign("sub", swapped=True), _sign("mul", swapped=True)
    __lshift__, __rshift__ = _sign("shl"), _sign("shr")
    __lt__, __le__ = _sign("lt"), _sign("le")
    __gt__, __ge__ = _sign("lt", swapped=True), _sign("le", swapped=True)
    __and__, __or__ = _sign("and"), _sign("or")

    def __neg__(self) -> Value:
        return self.trace.apply("sub", 0, self)

    def __invert__(self) -> Value:
        return self.trace.apply("not", self)

    def eq(self, other: Operand) -> Value:
        """Return where the two are equal. Python's `==` stays identity, so that values can be dictionary keys."""
        return self.trace.apply("eq", self, other)

    def __bool__(self) -> bool:
        raise UsageError("a traced value has no truth value: a row program has no branches; use select")

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.dtype.value} {self.node.op}>"


Operand = Value | Number
