"""What each operator means in NumPy: the reference values of a program, node by node, vectorised over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from softq.errors import InputError
from softq.rowprog.formats import Floats, format_of
from softq.rowprog.ops import OPS, Rules, names_of
from softq.rowprog.program import (
    Node,
    Number,
    Param,
    ScanBody,
    body_of,
    demands_of,
    number_of,
    result_of,
    size_of,
    table_of,
    walk,
)

Array = NDArray[np.generic]
Rule = Callable[["Environment", Node], Array]


_LOOKUPS = names_of("lookup")


class Environment:
    """The values computed so far, by node."""

    def __init__(self, shape: tuple[int, ...], values: Mapping[Node, Array] | None = None) -> None:
        self.shape = shape
        self.values: dict[Node, Array] = dict(values or {})
        self.scans: dict[tuple[ScanBody, tuple[Node, ...]], list[Array]] = {}

    def __getitem__(self, node: Node) -> Array:
        return self.values[node]

    def __setitem__(self, node: Node, value: Array) -> None:
        self.values[node] = value

    def compute(self, root: Node) -> Array:
        """Return the value of a node, computing what is missing."""
        for node in walk([root], self.values):
            self[node] = self.evaluate(node)
        return self[root]

    def evaluate(self, node: Node) -> Array:
        """Return what an operator makes of its operands, which are there.

        Raises:
            InputError: an operand is none that can be looked up.
        """
        if node.op in _LOOKUPS:
            for demand, (low, high) in demands_of(node):
                x = self[node.args[demand.operand or 0]]
                if x.size and not low <= int(x.min()) <= int(x.max()) <= high:
                    raise InputError(f"{node.op}: {demand.what} is {x.min()} to {x.max()}; allowed is {low} to {high}")
        return RULES[node.op](self, node)

    def dtype(self, node: Node) -> np.dtype[np.generic]:
        """Return the type that a node is computed in."""
        return node.dtype.numpy


def within(x: Array, low: Number, high: Number) -> bool:
    """Say whether every value lies in [low, high]; a NaN does not."""
    return bool(np.all(np.less_equal(low, x) & np.less_equal(x, high)))


def check_values(param: Param, values: Array) -> None:
    """Refuse values of a parameter.

    Raises:
        InputError: they have another type than the parameter, or leave its interval.
    """
    if values.dtype != param.dtype.numpy:
        raise InputError(f"parameter {param.name} is {values.dtype}; expected {param.dtype.numpy}")
    if not within(values, param.low, param.high):
        raise InputError(f"parameter {param.name} holds a value outside its interval [{param.low}, {param.high}]")


def _elementwise(function: Callable[..., Array]) -> Rule:
    return lambda env, node: np.asarray(function(*(env[arg] for arg in node.args)), dtype=env.dtype(node))


def _minimum(a: Array, b: Array) -> Array:
    return np.where(np.less(a, b), a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.where(np.less(b, a), a, b)


def _divide(env: Environment, node: Node) -> Array:
    a, b = (env[arg] for arg in node.args)
    return np.asarray(np.divide(a, b) if node.dtype.is_float else np.floor_divide(a, b), dtype=env.dtype(node))


def _lut(env: Environment, node: Node) -> Array:
    table, at = env[node.args[0]], env[node.args[1]]
    if table.ndim == 1:
        return np.take(table, at.astype(np.int64))
    lead = np.broadcast_shapes(table.shape[:-1], at.shape[:-1])
    every, positions = (np.broadcast_to(x, (*lead, x.shape[-1])) for x in (table, at))
    return np.take_along_axis(every, positions.astype(np.int64), -1)


def _normalize(env: Environment, node: Node) -> Array:
    x = env[node.args[0]].astype(np.uint64)
    _, exponent = np.frexp(x.astype(np.float64))  # exact: a u32 fits the 53 bits of a double
    shift = 32 - exponent
    return (
        (x << shift.astype(np.uint64)).astype(np.uint32) if node.attrs["part"] == "mantissa" else shift.astype(np.int32)
    )


def _extreme(function: Callable[..., Array]) -> Rule:
    def reduce(env: Environment, node: Node) -> Array:
        x = np.broadcast_to(env[node.args[0]], env.shape)
        start = np.asarray(OPS[node.op].of_empty_row(node.dtype), dtype=env.dtype(node))
        return np.asarray(function(x, axis=-1, keepdims=True, initial=start), dtype=env.dtype(node))

    return reduce


def _row_sum(env: Environment, node: Node) -> Array:
    x = np.broadcast_to(env[node.args[0]], env.shape)
    return np.asarray(np.sum(x, axis=-1, keepdims=True, dtype=env.dtype(node)))


def _group_max(env: Environment, node: Node) -> Array:
    x, size = np.broadcast_to(env[node.args[0]], env.shape), size_of(node)
    length = env.shape[-1]
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -length % size)]
    groups = np.pad(x, padding, constant_values=-np.inf).reshape(*env.shape[:-1], -(-length // size), size)
    return np.repeat(np.max(groups, axis=-1), size, axis=-1)[..., :length]


def _scan(env: Environment, node: Node) -> Array:
    # The results of a scan come together, whichever is asked for.
    key = (body_of(node), node.args)
    if key not in env.scans:
        env.scans[key] = _scanned(env, *key)
    return env.scans[key][result_of(node)]


def _scanned(env: Environment, body: ScanBody, args: Sequence[Node]) -> list[Array]:
    scalar = (*env.shape[:-1], 1)
    count = len(body.states)
    states = [np.broadcast_to(env[a], scalar) for a in args[:count]]
    rows = [np.broadcast_to(env[a], env.shape) for a in args[count : count + len(body.elements)]]
    outputs = [np.zeros(env.shape, dtype=env.dtype(n)) for n in body.outputs]
    step = Environment(env.shape, env.values)
    # Each step computes the same nodes in the same order.
    known = {*env.values, *body.states, *body.elements}
    after = list(walk(body.next, known))
    beside = list(walk(body.outputs, known.union(after)))
    for j in range(env.shape[-1]):
        step.values.update(zip(body.states, states, strict=True))
        step.values.update(zip(body.elements, (row[..., j : j + 1] for row in rows), strict=True))
        for node in after:
            step[node] = step.evaluate(node)
        states = [np.broadcast_to(step[n], scalar) for n in body.next]
        for state, (low, high) in zip(states, body.invariants, strict=True):
            if not within(state, low, high):
                raise InputError(f"scan: a state leaves its declared interval [{low}, {high}] at element {j}")
        for node in beside:
            step[node] = step.evaluate(node)
        for out, n in zip(outputs, body.outputs, strict=True):
            out[..., j : j + 1] = step[n]
    return [*states, *outputs]


def _assume(env: Environment, node: Node) -> Array:
    x, low, high = env[node.args[0]], number_of(node, "low"), number_of(node, "high")
    if not within(x, low, high):
        raise InputError(
            f"assume does not hold: a value is outside [{low}, {high}], assumed because {node.attrs['because']}"
        )
    return x


def _unbound(env: Environment, node: Node) -> Array:
    raise AssertionError(f"{node.op} {node.attrs} was not bound before the program ran")


RULES: Rules[Rule] = Rules(
    "the interpreter",
    {
        "input": _unbound,
        "param": _unbound,
        "const": lambda env, node: np.asarray(number_of(node), dtype=env.dtype(node)).reshape(1),
        "table": lambda env, node: np.asarray(table_of(node), dtype=env.dtype(node)),
        "index": lambda env, node: np.arange(env.shape[-1], dtype=np.int32),
        "length": lambda env, node: np.asarray([env.shape[-1]], dtype=np.int32),
        "add": _elementwise(np.add),
        "sub": _elementwise(np.subtract),
        "mul": _elementwise(np.multiply),
        "divide": _divide,
        "min": _elementwise(_minimum),
        "max": _elementwise(_maximum),
        "shl": _elementwise(np.left_shift),
        "shr": _elementwise(np.right_shift),
        "lt": _elementwise(np.less),
        "le": _elementwise(np.less_equal),
        "eq": _elementwise(np.equal),
        "and": _elementwise(np.logical_and),
        "or": _elementwise(np.logical_or),
        "not": _elementwise(np.logical_not),
        "select": _elementwise(np.where),
        "cast": lambda env, node: env[node.args[0]].astype(env.dtype(node)),
        "rint": _elementwise(np.rint),
        "round_to": lambda env, node: format_of(node).round(cast("Floats", env[node.args[0]])),
        "group_max": _group_max,
        "lut": _lut,
        "exp2i": _elementwise(lambda n: np.ldexp(np.float32(1), n)),
        "normalize": _normalize,
        "log2": _elementwise(np.log2),
        "sqrt": _elementwise(np.sqrt),
        "row_max": _extreme(np.max),
        "row_min": _extreme(np.min),
        "row_sum": _row_sum,
        "scan": _scan,
        "exp_minus": lambda env, node: env[node.args[1]],
        "assume": _assume,
    },
)
