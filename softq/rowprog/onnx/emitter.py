"""The walk that turns a program into an ONNX function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from softq.errors import RefusalError, UsageError
from softq.rowprog.onnx.carriers import Carrier, carrier
from softq.rowprog.onnx.interface import DOMAIN, HEADS, INTERFACE, function_name, parameter_input, signature
from softq.rowprog.onnx.lookups import Exponential, Shift, closed_form
from softq.rowprog.program import Node, Program, body_of, number_of, param_of, table_of, walk
from softq.rowprog.ranges import Proof, prove
from softq.rowprog.types import DType, Kind

OLDEST_OPSET = 18
"""The first opset whose reductions all take axes as an input."""


def emit(program: Program, *, opset: int, max_length: int = 65536, outputs: Sequence[str] | None = None) -> ir.Function:
    """Return the program as a function of the domain `softq` that imports exactly this opset.

    Args:
        program: What to emit.
        opset: Version of the default domain, at least 18.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface. All are float32, rows [..., N] and scalars
            [..., 1].

    Raises:
        ProofError: the program has no complete proof.
        RefusalError: a value does not fit any type that ONNX runtimes compute in.
        UsageError: the opset is too old, or an output unknown.
    """
    if opset < OLDEST_OPSET:
        raise UsageError(f"opset is {opset}; functions need {OLDEST_OPSET} or newer")
    names = [name for name in INTERFACE if name in program.outputs] if outputs is None else list(outputs)
    for name in names:
        if name not in program.outputs:
            raise UsageError(f"program {program.name} has no output {name!r}; it has {', '.join(program.outputs)}")
    inputs = {name: ir.Value(name=name) for name in signature(program)}
    walker = _Walker(prove(program, max_length=max_length), inputs)
    results = [walker.output(program.outputs[name], name) for name in names]
    graph = ir.Graph(
        list(inputs.values()),
        results,
        nodes=_read(walker.nodes, results),
        opset_imports={"": opset},
        name=function_name(program),
    )
    return ir.Function(DOMAIN, function_name(program), graph=graph, attributes=[])


def _read(nodes: Sequence[ir.Node], results: Sequence[ir.Value]) -> list[ir.Node]:
    """Return the nodes that something reads: a closed form leaves its table, a peephole its constants behind."""
    kept: list[ir.Node] = []
    wanted = set(results)
    for node in reversed(nodes):
        bodies = [
            attribute.as_graph() for attribute in node.attributes.values() if attribute.type == ir.AttributeType.GRAPH
        ]
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(value for value in node.inputs if value is not None)
            for body in bodies:
                wanted.update(value for inner in body for value in inner.inputs if value is not None)
    return kept[::-1]


class _Walker:
    """The nodes written so far, and the ONNX value and carrier of each value of the program."""

    def __init__(self, proof: Proof, inputs: Mapping[str, ir.Value], prefix: str = "v") -> None:
        self.proof = proof
        self.inputs = inputs
        self.nodes: list[ir.Node] = []
        self.values: dict[int, tuple[ir.Value, Carrier]] = {}
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], ir.Value] = {}
        self._prefix = prefix
        self._on_scores: dict[int, bool] = {}

    # Writing nodes

    def add(
        self, op: str, *args: ir.Value, **attributes: int | str | ir.TensorProtocol | ir.Graph | Sequence[int]
    ) -> ir.Value:
        """Append a node of the default domain with one output."""
        return self.add_many(op, args, 1, **attributes)[0]

    def add_many(
        self,
        op: str,
        args: Sequence[ir.Value],
        count: int,
        **attributes: int | str | ir.TensorProtocol | ir.Graph | Sequence[int],
    ) -> Sequence[ir.Value]:
        node = ir.node(op, args, attributes, num_outputs=count, name=f"{self._prefix}n{len(self.nodes)}")
        for i, out in enumerate(node.outputs):
            out.name = f"{self._prefix}{len(self.nodes)}" + (f"_{i}" if count > 1 else "")
        self.nodes.append(node)
        return node.outputs

    def constant(self, value: ArrayLike, dtype: np.dtype[np.generic]) -> ir.Value:
        """Return a constant; equal ones are one node."""
        array = np.asarray(value, dtype=dtype)
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._constants:
            self._constants[key] = self.add("Constant", value=ir.tensor(array))
        return self._constants[key]

    def like(self, value: float, kind: Carrier) -> ir.Value:
        """Return a constant number in a carrier."""
        return self.constant(value, kind.numpy)

    def cast(self, value: ir.Value, to: ir.DataType) -> ir.Value:
        """Append a cast."""
        return self.add("Cast", value, to=int(to))

    # Walking

    def carrier_of(self, node: Node) -> Carrier:
        """Return what carries a value: decided by its type and proven interval."""
        interval = self.proof.interval(node)
        return carrier(node.dtype, interval.low, interval.high)

    def compute(self, root: Node) -> tuple[ir.Value, Carrier]:
        """Return the ONNX value and carrier of a value of the program, writing what is missing."""
        for node in walk([root]):
            if id(node) not in self.values:
                self.values[id(node)] = BACKEND[node.op](self, node)
        return self.values[id(root)]

    def arg(self, node: Node, position: int, kind: Carrier | None = None) -> ir.Value:
        """Return an argument, cast to a carrier if it is carried by another."""
        value, carried = self.compute(node.args[position])
        return value if kind is None or carried is kind else self.cast(value, kind.value)

    def common(self, node: Node, *positions: int) -> Carrier:
        """Return the narrowest carrier that holds these arguments and, if it is a number, the result."""
        kinds = [self.compute(node.args[i])[1] for i in positions]
        if node.dtype is not DType.BOOL:
            kinds.append(self.carrier_of(node))
        return Carrier.INT64 if Carrier.INT64 in kinds else kinds[0]

    def maybe_nan(self, node: Node) -> bool:
        """Say whether a value may be NaN."""
        return node.dtype.is_float and self.proof.interval(node).nan

    def on_scores(self, node: Node) -> bool:
        """Say whether a row is computed from the scores and so has their full shape."""
        if id(node) not in self._on_scores:
            own = node.op == "input" and node.attrs["name"] != "valid"
            self._on_scores[id(node)] = own or (
                node.kind is Kind.ROW and any(self.on_scores(arg) for arg in node.args if arg.kind is Kind.ROW)
            )
        return self._on_scores[id(node)]

    def full_row(self, node: Node) -> tuple[ir.Value, Carrier]:
        """Return a row in the shape of the scores: rows of positions or masks alone may still be smaller."""
        value, kind = self.compute(node)
        if self.on_scores(node):
            return value, kind
        return self.add("Expand", value, self.add("Shape", self.inputs["scores"])), kind

    def scalar_shape(self) -> ir.Value:
        """Return the shape of one number a row."""
        lead = self.add("Shape", self.inputs["scores"], end=-1)
        return self.add("Concat", lead, self.constant([1], np.dtype(np.int64)), axis=0)

    def output(self, node: Node, name: str) -> ir.Value:
        """Return an output of the function: float32, of full shape, under its own name."""
        if node.kind is Kind.ROW:
            value, _ = self.full_row(node)
        else:
            value, _ = self.compute(node)
            if node.op in ("const", "length", "param"):
                value = self.add("Expand", value, self.scalar_shape())
        # A node of its own, so that two outputs of one value, or an input given back, have names of their own.
        result = self.cast(value, ir.DataType.FLOAT)
        result.name = name
        return result


Emitted = tuple[ir.Value, Carrier]
Rule = Callable[[_Walker, Node], Emitted]


def _input(w: _Walker, node: Node) -> Emitted:
    name = str(node.attrs["name"])
    if name == "valid":
        return w.inputs[name], Carrier.BOOL
    kind = w.carrier_of(node)
    return w.cast(w.inputs[name], kind.value), kind  # float16 and bfloat16 scores become float32 here


def _param(w: _Walker, node: Node) -> Emitted:
    param = param_of(node)
    return w.inputs[parameter_input(param)], carrier(param.dtype, param.low, param.high)


def _const(w: _Walker, node: Node) -> Emitted:
    kind = w.carrier_of(node)
    return w.like(number_of(node), kind), kind


def _table(w: _Walker, node: Node) -> Emitted:
    values = table_of(node)
    kind = carrier(node.dtype, min(values), max(values))
    return w.constant(values, kind.numpy), kind


def _index(w: _Walker, node: Node) -> Emitted:
    axis = w.constant(0, np.dtype(np.int64))
    length = w.add("Squeeze", w.add("Shape", w.inputs["scores"], start=-1), w.constant([0], np.dtype(np.int64)))
    return w.cast(w.add("Range", axis, length, w.constant(1, np.dtype(np.int64))), ir.DataType.INT32), Carrier.INT32


def _length(w: _Walker, node: Node) -> Emitted:
    return w.cast(w.add("Shape", w.inputs["scores"], start=-1), ir.DataType.INT32), Carrier.INT32


def _binary(op: str) -> Rule:
    def rule(w: _Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        return w.add(op, w.arg(node, 0, kind), w.arg(node, 1, kind)), kind

    return rule


def _compare(op: str) -> Rule:
    def rule(w: _Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        return w.add(op, w.arg(node, 0, kind), w.arg(node, 1, kind)), Carrier.BOOL

    return rule


def _logic(op: str) -> Rule:
    return lambda w, node: (w.add(op, *(w.arg(node, i) for i in range(len(node.args)))), Carrier.BOOL)


def _extreme(op: str) -> Rule:
    def rule(w: _Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        a, b = w.arg(node, 0, kind), w.arg(node, 1, kind)
        if kind is Carrier.INT64 or any(w.maybe_nan(arg) for arg in node.args):
            # The select form: runtimes disagree on which operand a NaN makes of Min and Max, and onnxruntime 1.31.1
            # compares no more than 32 bits of an int64 (Max of 2^31 and 0 gives 0).
            pair = (a, b) if op == "Min" else (b, a)
            return w.add("Where", w.add("Less", *pair), a, b), kind
        return w.add(op, a, b), kind

    return rule


def _equal(w: _Walker, node: Node) -> Emitted:
    if node.args[0] is node.args[1] and node.args[0].dtype.is_float:
        return w.add("Not", w.add("IsNaN", w.arg(node, 0))), Carrier.BOOL
    return _compare("Equal")(w, node)


def _not(w: _Walker, node: Node) -> Emitted:
    inner = node.args[0]
    if inner.op == "eq" and inner.args[0] is inner.args[1] and inner.args[0].dtype.is_float:
        return w.add("IsNaN", w.compute(inner.args[0])[0]), Carrier.BOOL
    return w.add("Not", w.arg(node, 0)), Carrier.BOOL


def _select(w: _Walker, node: Node) -> Emitted:
    _, yes, no = node.args
    if node.dtype is DType.BOOL:
        return w.add("Where", *(w.arg(node, i) for i in range(3))), Carrier.BOOL
    kind = w.common(node, 1, 2)
    if yes.op == no.op == "const" and (number_of(yes), number_of(no)) == (1, 0) and not node.dtype.is_float:
        return w.cast(w.arg(node, 0), kind.value), kind
    return w.add("Where", w.arg(node, 0), w.arg(node, 1, kind), w.arg(node, 2, kind)), kind


def _cast(w: _Walker, node: Node) -> Emitted:
    kind = w.carrier_of(node)
    return w.arg(node, 0, kind), kind


def _rint(w: _Walker, node: Node) -> Emitted:
    return w.add("Round", w.arg(node, 0)), Carrier.FLOAT


def _float_function(op: str) -> Rule:
    return lambda w, node: (w.add(op, w.arg(node, 0)), Carrier.FLOAT)


def _log2(w: _Walker, node: Node) -> Emitted:
    return w.add("Mul", w.add("Log", w.arg(node, 0)), w.like(1 / math.log(2), Carrier.FLOAT)), Carrier.FLOAT


def _unsigned_shift(w: _Walker, value: ir.Value, by: ir.Value, kind: Carrier, direction: str) -> ir.Value:
    """Shift a value that is not negative: ONNX shifts unsigned numbers only."""
    shifted = w.add("BitShift", w.cast(value, kind.unsigned), w.cast(by, kind.unsigned), direction=direction)
    return w.cast(shifted, kind.value)


def _power(w: _Walker, exponent: ir.Value, greatest: float) -> ir.Value:
    """Return 2^exponent as int64."""
    if greatest > 62:
        raise RefusalError(
            f"a shift to the left by up to {greatest} cannot be computed in ONNX, where int64 is the widest"
        )
    return _unsigned_shift(w, w.constant(1, np.dtype(np.int64)), exponent, Carrier.INT64, "LEFT")


def _shl(w: _Walker, node: Node) -> Emitted:
    kind = w.common(node, 0)
    by = node.args[1]
    if by.op == "const" and int(number_of(by)) < (31 if kind is Carrier.INT32 else 63):
        return w.add("Mul", w.arg(node, 0, kind), w.like(2 ** int(number_of(by)), kind)), kind
    power = _power(w, w.arg(node, 1), w.proof.interval(by).high)
    product = w.add("Mul", w.arg(node, 0, Carrier.INT64), power)
    return product if kind is Carrier.INT64 else w.cast(product, kind.value), kind


def _shr(w: _Walker, node: Node) -> Emitted:
    kind = w.common(node, 0)
    a, by = w.arg(node, 0, kind), w.arg(node, 1)
    if w.proof.interval(node.args[0]).low >= 0:
        return _unsigned_shift(w, a, by, kind, "RIGHT"), kind
    # The floor of a negative a / 2^s is -1 - ((-1 - a) >> s).
    minus, negative = w.like(-1, kind), w.add("Less", a, w.like(0, kind))
    shifted = _unsigned_shift(w, w.add("Where", negative, w.add("Sub", minus, a), a), by, kind, "RIGHT")
    return w.add("Where", negative, w.add("Sub", minus, shifted), shifted), kind


def _lut(w: _Walker, node: Node) -> Emitted:
    table = node.args[0]
    if table.op == "table":
        form = closed_form(table_of(table))
        if isinstance(form, Shift):
            return _lut_shift(w, node, form)
        if isinstance(form, Exponential):
            return _lut_exponential(w, node, form)
    at = w.arg(node, 1)
    if table.op == "param" and param_of(table).scope == "head":
        at = w.add("Add", w.arg(node, 1, Carrier.INT64), w.inputs[HEADS])
    values, kind = w.compute(table)
    return w.add("Gather", values, at), kind


def _lut_shift(w: _Walker, node: Node, form: Shift) -> Emitted:
    unsigned = ir.DataType.UINT32 if form.bits == 32 else ir.DataType.UINT64
    first = w.constant(form.first, np.dtype(unsigned.numpy()))
    kind = w.carrier_of(node)
    shifted = w.cast(w.add("BitShift", first, w.cast(w.arg(node, 1), unsigned), direction="RIGHT"), kind.value)
    return shifted if form.scale == 1 else w.add("Mul", shifted, w.like(form.scale, kind)), kind


def _lut_exponential(w: _Walker, node: Node, form: Exponential) -> Emitted:
    at, kind = w.arg(node, 1, Carrier.FLOAT), w.carrier_of(node)
    power = w.add("Exp", w.add("Mul", at, w.like(-form.rate, Carrier.FLOAT)))
    rounded = w.add("Round", w.add("Mul", power, w.like(form.first, Carrier.FLOAT)))
    if form.end < len(table_of(node.args[0])):
        inside = w.add("Less", at, w.like(form.end, Carrier.FLOAT))
        rounded = w.add("Where", inside, rounded, w.like(0, Carrier.FLOAT))
    return w.cast(rounded, kind.value), kind


def _exp2i(w: _Walker, node: Node) -> Emitted:
    n, interval = w.arg(node, 0, Carrier.INT32), w.proof.interval(node.args[0])
    low, high = int(interval.low), int(interval.high)
    if -62 <= low and high <= 0:
        # A shifted power of two is exact as a float, and so is its product with a power of two.
        by = w.add("Sub", w.like(0, Carrier.INT32), n)
        shifted = _unsigned_shift(w, w.constant(1 << -low, np.dtype(np.int64)), by, Carrier.INT64, "RIGHT")
        return w.add("Mul", w.cast(shifted, ir.DataType.FLOAT), w.like(2.0**low, Carrier.FLOAT)), Carrier.FLOAT
    powers = w.constant(2.0 ** np.arange(low, high + 1, dtype=np.float64), np.dtype(np.float32))
    return w.add("Gather", powers, w.add("Sub", n, w.like(low, Carrier.INT32))), Carrier.FLOAT


def _normalize(w: _Walker, node: Node) -> Emitted:
    x = w.arg(node, 0, Carrier.INT64)
    # The shift is the number of powers of two above x among 2^0 to 2^31.
    above = w.add("Less", x, w.constant(2 ** np.arange(32, dtype=np.int64), np.dtype(np.int64)))
    axes = w.constant([-1], np.dtype(np.int64))
    shift = w.add("ReduceSum", w.cast(above, ir.DataType.INT32), axes, keepdims=1)
    if node.attrs["part"] == "shift":
        return shift, Carrier.INT32
    return w.add("Mul", x, _power(w, shift, 31)), Carrier.INT64


def _reduction(op: str) -> Rule:
    def rule(w: _Walker, node: Node) -> Emitted:
        value, carried = w.full_row(node.args[0])
        kind = w.common(node, 0) if op == "ReduceSum" else w.carrier_of(node.args[0])
        if kind is Carrier.INT64 and op != "ReduceSum":
            raise RefusalError(
                f"{node.op} of values beyond 32 bits cannot be computed in ONNX: "
                "onnxruntime 1.31.1 compares 32 bits only"
            )
        if carried is not kind:
            value = w.cast(value, kind.value)
        return w.add(op, value, w.constant([-1], np.dtype(np.int64)), keepdims=1), kind

    return rule


def _scan(w: _Walker, node: Node) -> Emitted:
    """Write the loop once; its other results find theirs.

    ONNX scans along one axis and drops it, so elements get it back inside. The shape of a state must not change: the
    first states are expanded to one number a row.
    """
    body = body_of(node)
    count = len(body.states)
    kinds = [carrier(n.dtype, low, high) for n, (low, high) in zip(body.states, body.invariants, strict=True)]
    shape = w.scalar_shape()
    args: list[ir.Value] = []
    for i, kind in enumerate(kinds):
        args.append(w.add("Expand", w.arg(node, i, kind), shape))
    rows = [w.full_row(arg) for arg in node.args[count : count + len(body.elements)]]
    args += [value for value, _ in rows]

    names = [f"state{i}" for i in range(count)] + [f"element{i}" for i in range(len(rows))]
    holders = [ir.Value(name=f"{w.nodes[-1].name}.{name}") for name in names]
    carried = [*kinds, *(kind for _, kind in rows)]
    for holder, kind in zip(holders, carried, strict=True):
        holder.type = ir.TensorType(kind.value)
    inner = _Walker(w.proof, w.inputs, prefix=f"{w.nodes[-1].name}.")
    inner.values = dict(w.values)
    for place, holder, kind in zip((*body.states, *body.elements), holders, carried, strict=True):
        value = (
            holder if place in body.states else inner.add("Unsqueeze", holder, inner.constant([-1], np.dtype(np.int64)))
        )
        inner.values[id(place)] = (value, kind)
    results: list[ir.Value] = []
    result_kinds: list[Carrier] = []
    for i, n in enumerate((*body.next, *body.outputs)):
        value, kind = inner.compute(n)
        wanted = kinds[i] if i < count else kind
        value = inner.cast(value, wanted.value)  # a node of its own: a placeholder may be given back as it is
        if i < count:
            value = inner.add("Expand", value, inner.scalar_shape())
        else:
            value = inner.add(
                "Squeeze", inner.add("Expand", value, inner.scalar_shape()), inner.constant([-1], np.dtype(np.int64))
            )
        value.type = ir.TensorType(wanted.value)
        results.append(value)
        result_kinds.append(wanted)
    step = ir.Graph(holders, results, nodes=inner.nodes, name=f"{w.nodes[-1].name}.step")
    outputs = w.add_many(
        "Scan", args, len(results), body=step, num_scan_inputs=len(rows),
        scan_input_axes=[-1] * len(rows), scan_output_axes=[-1] * len(body.outputs),
    )  # fmt: skip
    _share(w, node, list(zip(outputs, result_kinds, strict=True)))
    return w.values[id(node)]


def _share(w: _Walker, node: Node, results: Sequence[Emitted]) -> None:
    """Give every result of a scan that the program reads its value, so that the loop runs once."""
    body = body_of(node)
    for other in w.proof.intervals:
        if other.op == "scan" and other.attrs["body"] is body:
            position = other.attrs["result"]
            assert isinstance(position, int)
            w.values[id(other)] = results[position]


BACKEND: Mapping[str, Rule] = {
    "input": _input,
    "param": _param,
    "const": _const,
    "table": _table,
    "index": _index,
    "length": _length,
    "add": _binary("Add"),
    "sub": _binary("Sub"),
    "mul": _binary("Mul"),
    "divide": _binary("Div"),
    "min": _extreme("Min"),
    "max": _extreme("Max"),
    "shl": _shl,
    "shr": _shr,
    "lt": _compare("Less"),
    "le": _compare("LessOrEqual"),
    "eq": _equal,
    "and": _logic("And"),
    "or": _logic("Or"),
    "not": _not,
    "select": _select,
    "cast": _cast,
    "rint": _rint,
    "lut": _lut,
    "exp2i": _exp2i,
    "normalize": _normalize,
    "log2": _log2,
    "sqrt": _float_function("Sqrt"),
    "row_max": _reduction("ReduceMax"),
    "row_min": _reduction("ReduceMin"),
    "row_sum": _reduction("ReduceSum"),
    "scan": _scan,
    "assume": lambda w, node: w.compute(node.args[0]),
}
