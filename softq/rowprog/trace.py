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
from softq.rowprog.program import Param, Program, ScanBody, Scope, param_of, walk
from softq.rowprog.types import DType, Kind, Number, exact
from softq.rowprog.value import Builder, Value


class Trace(Builder):
    """A program under construction.

    Args:
        name: The method's name.
        structure: Suffix that tells this program from others of the method.
        scores: Element type of the scores.
        masked: Whether the caller gives a boolean row `valid`.
        contract: Whether a backend may fuse multiply and add.
        types: The formats that steps of `softq.rowprog.library` are rounded to, by the step's name.

    Attributes:
        steps: Those of these steps that were traced.
    """

    def __init__(
        self,
        name: str,
        *,
        structure: str = "",
        scores: DType = DType.F32,
        masked: bool = False,
        contract: bool = False,
        types: Mapping[str, str] | None = None,
    ) -> None:
        if scores is DType.BOOL:
            raise UsageError("scores cannot be bool; allowed are f32 and the integer types")
        self.name, self._structure, self._masked, self._contract = name, structure, masked, contract
        self.types = dict(types or {})
        self.steps = set[str]()
        super().__init__()
        self.scores = self.make("input", (), scores, Kind.ROW, {"name": "scores"})
        self.valid = self.make("input", (), DType.BOOL, Kind.ROW, {"name": "valid"}) if masked else None

    def program(self, **outputs: Value) -> Program:
        """Return the finished program.

        `outputs` are `probabilities`, or `weights` and `normalizer`; more may stand beside them. A program that makes
        no weights but codes what they are multiplied with has `values` alone.

        Raises:
            UsageError: neither of the two interfaces is complete, or a result has the wrong kind.
        """
        kinds = {"probabilities": Kind.ROW, "weights": Kind.ROW, "normalizer": Kind.SCALAR, "values": Kind.ROW}
        pair = "weights" in outputs and "normalizer" in outputs
        if ("probabilities" in outputs) == pair and [*outputs] != ["values"]:
            raise UsageError(
                f"program {self.name}: outputs are {', '.join(outputs) or 'none'}; expected either "
                "probabilities, or weights and normalizer"
            )
        for name, value in outputs.items():
            self.own(value)
            if kinds.get(name, value.kind) is not value.kind:
                raise UsageError(f"program {self.name}: {name} is a {value.kind.value}, expected a {kinds[name].value}")
        return Program(
            self.name,
            self._structure,
            self.scores.dtype,
            self._masked,
            {name: value.node for name, value in outputs.items()},
            # How a number is rounded to a format tells apart what a product is and what it is rounded to.
            self._contract and all(node.op != "round_to" for node in self.nodes),
        )

    # Leaves

    def table(self, values: Sequence[Number], dtype: DType) -> Value:
        """Return a constant lookup table."""
        if not values:
            raise UsageError("a table needs at least one entry")
        entries = tuple(exact(value, dtype, rounding=dtype.is_float) for value in values)
        return self.make("table", (), dtype, Kind.TABLE, {"values": entries})

    def param(
        self, name: str, scope: Scope, dtype: DType, low: Number, high: Number, meaning: str, size: int | None = None
    ) -> Value:
        """Return a run-time parameter (a table if `size` is given) whose values lie in [low, high]."""
        if not low <= high:
            raise UsageError(f"parameter {name}: the interval [{low}, {high}] is empty")
        param = Param(
            name, scope, dtype, exact(low, dtype, rounding=True), exact(high, dtype, rounding=True), size, meaning
        )
        for node in self.nodes:
            if node.op == "param" and param_of(node).name == name and param_of(node) != param:
                raise UsageError(f"parameter {name} is declared twice, with different properties")
        return self.make("param", (), dtype, Kind.SCALAR if size is None else Kind.TABLE, {"param": param})

    # Loops

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
            self.own(value)
        if (
            any(v.kind is not Kind.SCALAR for v in init)
            or any(v.kind is not Kind.ROW for v in rows)
            or len(init) != len(invariants)
        ):
            raise UsageError("scan carries scalars along rows, with one invariant per state")
        if not rows:
            raise UsageError("scan goes along rows: at least one is needed")
        outer = set(self.nodes)
        number = sum(node.op == "scan" for node in outer)
        holders = [
            self.make("input", (), v.dtype, Kind.SCALAR, {"name": f"scan{number}.{i}"})
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
            self.own(value)
            if value.kind is not Kind.SCALAR:
                raise UsageError("the scan's step sees one element at a time: its results are scalars")
        inner = list(walk(v.node for v in (*after, *outputs)))
        if any(arg.kind is Kind.ROW for node in inner if node not in outer for arg in node.args):
            raise UsageError("the scan's step sees one element at a time: a row from outside cannot be used in it")
        # A length or a parameter comes from outside even where the step is the first to name it.
        captured = tuple(
            node for node in inner
            if node.op in ("length", "param") or (node in outer and node.op not in ("const", "table"))
        )  # fmt: skip
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
            self.make("scan", args, v.dtype, Kind.SCALAR if i < len(init) else Kind.ROW, {"body": body, "result": i})
            for i, v in enumerate((*after, *outputs))
        ]
        return tuple(results[: len(init)]), tuple(results[len(init) :])
