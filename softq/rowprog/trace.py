"""Tracing: ordinary Python over `Value`s that builds a program.

    t = Trace("name", scores=DType.F32)
    m = t.row_max(t.scores)
    ...
    program = t.program(weights=w, normalizer=s)

Types are strict: two operands must have the same type, and a Python number takes the type of the other operand if it
is exactly representable there. Equal expressions become one node. Errors name the operator and what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from softq.errors import UsageError
from softq.rowprog.literals import exact
from softq.rowprog.program import Node, Number, Param, Program, ScanBody, Scope, param_of, walk
from softq.rowprog.types import DType, Kind
from softq.rowprog.value import Operand, Value

_BOOL_ONLY = {"and", "or", "not"}
_INTEGER_ONLY = {"shl", "shr"}
_TO_BOOL = {"lt", "le", "eq"}
_FLOAT_ONLY = {"rint", "log2", "sqrt"}


class Trace:
    """A program under construction.

    Args:
        name: The method's name.
        structure: Suffix that tells this program from others of the method.
        scores: Element type of the scores.
        masked: Whether the caller gives a boolean row `valid`.
        contract: Whether a backend may fuse multiply and add.
    """

    def __init__(
        self, name: str, *, structure: str = "", scores: DType = DType.F32, masked: bool = False, contract: bool = False
    ) -> None:
        if scores is DType.BOOL:
            raise UsageError("scores cannot be bool; allowed are f32 and the integer types")
        self._name, self._structure, self._masked, self._contract = name, structure, masked, contract
        self._nodes: dict[object, Node] = {}
        self._order: list[Node] = []
        self.scores = self._value("input", (), scores, Kind.ROW, {"name": "scores"})
        self.valid = self._value("input", (), DType.BOOL, Kind.ROW, {"name": "valid"}) if masked else None

    def program(self, **outputs: Value) -> Program:
        """Return the finished program.

        `outputs` are `probabilities`, or `weights` and `normalizer`; more may stand beside them.

        Raises:
            UsageError: neither of the two interfaces is complete, or a result has the wrong kind.
        """
        kinds = {"probabilities": Kind.ROW, "weights": Kind.ROW, "normalizer": Kind.SCALAR}
        if ("probabilities" in outputs) == ("weights" in outputs and "normalizer" in outputs):
            raise UsageError(
                f"program {self._name}: outputs are {', '.join(outputs) or 'none'}; expected either "
                "probabilities, or weights and normalizer"
            )
        for name, value in outputs.items():
            self._own(value)
            if kinds.get(name, value.kind) is not value.kind:
                raise UsageError(
                    f"program {self._name}: {name} is a {value.kind.value}, expected a {kinds[name].value}"
                )
        return Program(
            self._name,
            self._structure,
            self.scores.dtype,
            self._masked,
            {name: value.node for name, value in outputs.items()},
            self._contract,
        )

    # Leaves

    def const(self, value: Number, dtype: DType) -> Value:
        """Return a constant. An integer type holds integers only; f32 takes the nearest f32, and bool a bool."""
        return self._value("const", (), dtype, Kind.SCALAR, {"value": exact(value, dtype, rounding=dtype.is_float)})

    def table(self, values: Sequence[Number], dtype: DType) -> Value:
        """Return a constant lookup table."""
        if not values:
            raise UsageError("a table needs at least one entry")
        entries = tuple(exact(value, dtype, rounding=dtype.is_float) for value in values)
        return self._value("table", (), dtype, Kind.TABLE, {"values": entries})

    def param(
        self, name: str, scope: Scope, dtype: DType, low: Number, high: Number, meaning: str, size: int | None = None
    ) -> Value:
        """Return a run-time parameter (a table if `size` is given) whose values lie in [low, high]."""
        if not low <= high:
            raise UsageError(f"parameter {name}: the interval [{low}, {high}] is empty")
        param = Param(
            name, scope, dtype, exact(low, dtype, rounding=True), exact(high, dtype, rounding=True), size, meaning
        )
        for node in self._order:
            if node.op == "param" and param_of(node).name == name and param_of(node) != param:
                raise UsageError(f"parameter {name} is declared twice, with different properties")
        return self._value("param", (), dtype, Kind.SCALAR if size is None else Kind.TABLE, {"param": param})

    def index(self) -> Value:
        """Return the position of each element, row of i32."""
        return self._value("index", (), DType.I32, Kind.ROW, {})

    def length(self) -> Value:
        """Return N, scalar of i32."""
        return self._value("length", (), DType.I32, Kind.SCALAR, {})

    # Elementwise

    def binary(self, op: str, a: Operand, b: Operand) -> Value:
        """Return `op` of two operands of one type; a Python number takes the type of the other."""
        x, y = self._pair(op, a, b)
        dtype = x.dtype
        if op in _BOOL_ONLY and dtype is not DType.BOOL:
            raise UsageError(f"{op} takes bool operands, not {dtype.value}")
        if op not in _BOOL_ONLY and op != "eq" and dtype is DType.BOOL:
            raise UsageError(f"{op} takes numbers, not bool")
        if op in _INTEGER_ONLY and not dtype.is_integer:
            raise UsageError(f"{op} takes integers, not {dtype.value}")
        return self._apply(op, (x, y), DType.BOOL if op in _TO_BOOL else dtype)

    def unary(self, op: str, a: Value) -> Value:
        """Return `op` of one operand."""
        self._own(a)
        if op in _BOOL_ONLY and a.dtype is not DType.BOOL:
            raise UsageError(f"{op} takes a bool operand, not {a.dtype.value}")
        if op in _FLOAT_ONLY and not a.dtype.is_float:
            raise UsageError(f"{op} takes f32, not {a.dtype.value}")
        return self._apply(op, (a,), a.dtype)

    def divide(self, a: Operand, b: Operand) -> Value:
        """Return a / b: the floor for integers (a >= 0 and b > 0 must be provable), rounded for f32."""
        return self.binary("divide", a, b)

    def min(self, a: Operand, b: Operand) -> Value:
        """Return select(a < b, a, b): b where either is NaN."""
        return self.binary("min", a, b)

    def max(self, a: Operand, b: Operand) -> Value:
        """Return select(b < a, a, b): b where either is NaN."""
        return self.binary("max", a, b)

    def clamp(self, a: Value, low: Operand, high: Operand) -> Value:
        """Return min(max(a, low), high); a NaN becomes low."""
        return self.min(self.max(a, low), high)

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """Return a where the condition is true, else b."""
        self._own(condition)
        if condition.dtype is not DType.BOOL:
            raise UsageError(f"select needs a bool condition, not {condition.dtype.value}")
        x, y = self._pair("select", a, b)
        return self._apply("select", (condition, x, y), x.dtype)

    def cast(self, a: Value, dtype: DType) -> Value:
        """Return the same value in another type; into an integer type it must provably fit."""
        self._own(a)
        if DType.BOOL in (a.dtype, dtype):
            raise UsageError(f"cast from {a.dtype.value} to {dtype.value} is not defined; use select or a comparison")
        return a if a.dtype is dtype else self._apply("cast", (a,), dtype)

    def rint(self, a: Value) -> Value:
        """Return the nearest integers, half to even, as f32."""
        return self.unary("rint", a)

    def log2(self, a: Value) -> Value:
        """Return the logarithm to base 2."""
        return self.unary("log2", a)

    def sqrt(self, a: Value) -> Value:
        """Return the square root."""
        return self.unary("sqrt", a)

    def lut(self, table: Value, at: Value) -> Value:
        """Return the table's entries at integer positions."""
        self._own(table)
        self._own(at)
        if table.kind is not Kind.TABLE:
            raise UsageError(f"lut looks up a table, not a {table.kind.value}")
        if not at.dtype.is_integer:
            raise UsageError(f"lut needs an integer position, not {at.dtype.value}")
        return self._value("lut", (table.node, at.node), table.dtype, at.kind, {})

    def exp2i(self, n: Value) -> Value:
        """Return 2^n as f32, exactly, for i32 n in [-126, 127]."""
        self._own(n)
        if n.dtype is not DType.I32:
            raise UsageError(f"exp2i takes i32, not {n.dtype.value}")
        return self._apply("exp2i", (n,), DType.F32)

    def normalize(self, a: Value) -> tuple[Value, Value]:
        """Return (mantissa, shift) of a u32 scalar > 0: a << shift = mantissa in [2^31, 2^32)."""
        self._own(a)
        if a.dtype is not DType.U32 or a.kind is not Kind.SCALAR:
            raise UsageError(f"normalize takes a scalar of u32, not a {a.kind.value} of {a.dtype.value}")
        return (
            self._value("normalize", (a.node,), DType.U32, Kind.SCALAR, {"part": "mantissa"}),
            self._value("normalize", (a.node,), DType.I32, Kind.SCALAR, {"part": "shift"}),
        )

    def assume(self, a: Value, low: Number, high: Number, because: str) -> Value:
        """Return `a`, known to lie in [low, high] for a reason that the analysis cannot see."""
        self._own(a)
        if a.dtype is DType.BOOL or not low <= high or not because:
            raise UsageError(f"assume needs a number, low <= high and a reason; got {a}, [{low}, {high}], {because!r}")
        attrs = {
            "low": exact(low, a.dtype, rounding=False),
            "high": exact(high, a.dtype, rounding=False),
            "because": because,
        }
        return self._value("assume", (a.node,), a.dtype, a.kind, attrs)

    def exp_minus(self, d: Value, value: Value) -> Value:
        """Return `value`, which is e^-d; a backend with an exponential of its own may compute it by that instead."""
        self._own(d)
        self._own(value)
        if not d.dtype.is_float or value.dtype is not d.dtype or value.kind is not d.kind:
            raise UsageError(f"exp_minus takes two floats of one kind, not {d} and {value}")
        return self._value("exp_minus", (d.node, value.node), d.dtype, d.kind, {})

    # Reductions and loops

    def row_max(self, a: Value) -> Value:
        """Return the greatest element of the row."""
        return self._reduce("row_max", a)

    def row_min(self, a: Value) -> Value:
        """Return the least element of the row."""
        return self._reduce("row_min", a)

    def row_sum(self, a: Value) -> Value:
        """Return the sum over the row, in the type of the elements: cast first where it needs a wider one."""
        return self._reduce("row_sum", a)

    def any(self, condition: Value) -> Value:
        """Return whether the condition holds for any element of the row (false for an empty one)."""
        self._own(condition)
        marks = self.select(condition, self.const(1, DType.U8), self.const(0, DType.U8))  # unsigned: 0 of an empty row
        return self.row_max(marks) > 0

    def scan(
        self,
        init: Sequence[Value],
        rows: Sequence[Value],
        step: Callable[..., tuple[Sequence[Value], Sequence[Value]]],
        invariants: Sequence[tuple[Number, Number]],
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Return (last states, output rows) of a loop over the elements.

        Args:
            init: The states before the first element, scalars.
            rows: The rows whose elements the step sees.
            step: Called once with the states and then the elements as scalars; returns (next states, outputs). It may
                use scalars from outside.
            invariants: For each state the interval that it never leaves.
        """
        for value in (*init, *rows):
            self._own(value)
        if (
            any(v.kind is not Kind.SCALAR for v in init)
            or any(v.kind is not Kind.ROW for v in rows)
            or len(init) != len(invariants)
        ):
            raise UsageError("scan carries scalars along rows, with one invariant a state")
        if not rows:
            raise UsageError("scan goes along rows: at least one is needed")
        mark = len(self._order)
        number = sum(node.op == "scan" for node in self._order)
        holders = [
            self._value("input", (), v.dtype, Kind.SCALAR, {"name": f"scan{number}.{i}"})
            for i, v in enumerate((*init, *rows))
        ]
        states, elements = holders[: len(init)], holders[len(init) :]
        after, outputs = step(*states, *elements)
        if [v.dtype for v in after] != [v.dtype for v in init]:
            raise UsageError(
                f"the scan's step returns states of {[v.dtype.value for v in after]}; "
                f"expected {[v.dtype.value for v in init]}"
            )
        for value in (*after, *outputs):
            self._own(value)
            if value.kind is not Kind.SCALAR:
                raise UsageError("the scan's step sees one element at a time: its results are scalars")
        outer = {id(node) for node in self._order[:mark]}
        inner = list(walk(v.node for v in (*after, *outputs)))
        if any(arg.kind is Kind.ROW for node in inner if id(node) not in outer for arg in node.args):
            raise UsageError("the scan's step sees one element at a time: a row from outside cannot be used in it")
        captured = tuple(node for node in inner if id(node) in outer and node.op not in ("const", "table"))
        body = ScanBody(
            tuple(v.node for v in states),
            tuple(v.node for v in elements),
            tuple(v.node for v in after),
            tuple(v.node for v in outputs),
            tuple(
                (exact(low, v.dtype, rounding=False), exact(high, v.dtype, rounding=False))
                for v, (low, high) in zip(init, invariants, strict=True)
            ),
        )
        args = (*(v.node for v in (*init, *rows)), *captured)
        results = [
            self._value("scan", args, v.dtype, Kind.SCALAR if i < len(init) else Kind.ROW, {"body": body, "result": i})
            for i, v in enumerate((*after, *outputs))
        ]
        return tuple(results[: len(init)]), tuple(results[len(init) :])

    # Building blocks

    def _reduce(self, op: str, a: Value) -> Value:
        self._own(a)
        if a.kind is not Kind.ROW or a.dtype is DType.BOOL:
            raise UsageError(f"{op} reduces a row of numbers, not a {a.kind.value} of {a.dtype.value}")
        return self._value(op, (a.node,), a.dtype, Kind.SCALAR, {})

    def _apply(self, op: str, args: Sequence[Value], dtype: DType) -> Value:
        if any(a.kind is Kind.TABLE for a in args):
            raise UsageError(f"{op} takes rows and scalars; a table is only looked up")
        kind = Kind.ROW if any(a.kind is Kind.ROW for a in args) else Kind.SCALAR
        return self._value(op, tuple(a.node for a in args), dtype, kind, {})

    def _pair(self, op: str, a: Operand, b: Operand) -> tuple[Value, Value]:
        if not isinstance(a, Value) and not isinstance(b, Value):
            raise UsageError(f"{op} of two Python numbers: at least one operand must be a traced value")
        like = a if isinstance(a, Value) else b
        assert isinstance(like, Value)
        x, y = (v if isinstance(v, Value) else self._literal(op, v, like.dtype) for v in (a, b))
        self._own(x)
        self._own(y)
        if x.dtype is not y.dtype:
            raise UsageError(f"{op} of {x.dtype.value} and {y.dtype.value}: cast one of them, nothing is promoted")
        return x, y

    def _literal(self, op: str, value: Number, dtype: DType) -> Value:
        held = exact(value, dtype, rounding=False, where=f"{op}: ")
        return self._value("const", (), dtype, Kind.SCALAR, {"value": held})

    def _own(self, value: Value) -> None:
        if value.trace is not self:
            raise UsageError(f"{value} belongs to another trace")

    def _value(self, op: str, args: tuple[Node, ...], dtype: DType, kind: Kind, attrs: Mapping[str, object]) -> Value:
        # repr tells -0.0 from 0.0 and one NaN from a number; dictionaries keep their order of insertion.
        key = (
            op,
            tuple(map(id, args)),
            dtype,
            kind,
            tuple((k, id(v) if isinstance(v, ScanBody) else repr(v)) for k, v in attrs.items()),
        )
        node = self._nodes.get(key)
        if node is None:
            node = Node(op, args, dtype, kind, dict(attrs))
            self._nodes[key] = node
            self._order.append(node)
        return Value(self, node)
