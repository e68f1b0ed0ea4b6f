"""The NumPy interpreter: the reference values of a program, vectorised over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.errors import InputError
from softq.rowprog.program import Node, Number, Program, ScanBody, body_of, number_of, param_of, table_of, walk
from softq.rowprog.types import DType, Kind

Array = NDArray[np.generic]


def run(
    program: Program,
    scores: ArrayLike,
    *,
    valid: ArrayLike | None = None,
    params: Mapping[str, ArrayLike] | None = None,
) -> dict[str, Array]:
    """Return the program's outputs: rows [..., N], scalars [..., 1].

    Args:
        program: What to run.
        scores: [..., N], of exactly the program's type.
        valid: bool, broadcastable to the scores; given if and only if the program is masked.
        params: For each run-time parameter a number or an array whose leading axes broadcast to the scores' leading
            axes: [..., 1] for a number, [..., size] for a table.

    Raises:
        InputError: an argument is missing, unknown, of the wrong type or shape, or outside its declared interval; or
            an `assume` does not hold.
    """
    return _run(program.outputs, program, scores, valid, params)


def run_in(
    environment: Callable[[tuple[int, ...]], Environment],
    program: Program,
    scores: ArrayLike,
    *,
    valid: ArrayLike | None = None,
    params: Mapping[str, ArrayLike] | None = None,
) -> dict[str, Array]:
    """Return the program's outputs as `run` does, in an environment of the caller's: from the scores' shape."""
    return _run(program.outputs, program, scores, valid, params, environment)


def prepare(
    program: Program, scores: ArrayLike, *, valid: ArrayLike | None = None
) -> Callable[[Mapping[str, ArrayLike]], dict[str, Array]]:
    """Return what `run` does with these scores, as a function of the parameters: for many of them on the same rows.

    What does not depend on a parameter is computed once, here.

    Raises:
        InputError: as `run` does, of the scores here, of the parameters in each call.
    """
    order = list(walk(program.outputs.values()))
    varies: set[int] = set()
    for node in order:
        if node.op == "param" or any(id(arg) in varies for arg in node.args):
            varies.add(id(node))
    later = [node for node in order if id(node) in varies and node.op != "param"]
    taken = [*(arg for node in later for arg in node.args), *program.outputs.values()]
    env = _given(program, scores, valid)
    with np.errstate(all="ignore"):
        # Only what the rest takes is kept, so that what lies before it goes when this returns.
        kept = {id(node): env.compute(node) for node in taken if id(node) not in varies}
    shape = env.shape

    def outputs(params: Mapping[str, ArrayLike]) -> dict[str, Array]:
        env = Environment(shape, kept)
        _bind(env, order, params)
        with np.errstate(all="ignore"):
            for node in later:
                env[node] = BACKEND[node.op](env, node)
        return {name: _shaped(env[node], node, shape) for name, node in program.outputs.items()}

    return outputs


def run_node(
    program: Program,
    node: Node,
    scores: ArrayLike,
    *,
    valid: ArrayLike | None = None,
    params: Mapping[str, ArrayLike] | None = None,
) -> Array:
    """Return the values of one node of the program: what `run` would have if it were an output."""
    return _run({"node": node}, program, scores, valid, params)["node"]


def _run(
    outputs: Mapping[str, Node],
    program: Program,
    scores: ArrayLike,
    valid: ArrayLike | None,
    params: Mapping[str, ArrayLike] | None,
    environment: Callable[[tuple[int, ...]], Environment] | None = None,
) -> dict[str, Array]:
    env = _given(program, scores, valid, environment)
    _bind(env, walk(program.outputs.values()), params)
    with np.errstate(all="ignore"):
        return {name: _shaped(env.compute(node), node, env.shape) for name, node in outputs.items()}


def _given(
    program: Program,
    scores: ArrayLike,
    valid: ArrayLike | None,
    environment: Callable[[tuple[int, ...]], Environment] | None = None,
) -> Environment:
    x = np.asarray(scores)
    if x.ndim == 0 or x.dtype != program.scores.numpy:
        raise InputError(
            f"scores are {x.dtype} of shape {x.shape}; expected {program.scores.numpy} with at least one axis"
        )
    if program.masked != (valid is not None):
        raise InputError(
            "valid is missing; the program is masked" if program.masked else "valid is given; the program is not masked"
        )
    env = (environment or Environment)(x.shape)
    for node in walk(program.outputs.values()):
        if node.op == "input" and node.attrs["name"] == "scores":
            env[node] = x
        elif node.op == "input" and node.attrs["name"] == "valid":
            mask = np.asarray(valid)
            if mask.dtype != np.bool_:
                raise InputError(f"valid is {mask.dtype}; expected bool")
            env[node] = _broadcast("valid", mask, x.shape)
    return env


def _bind(env: Environment, nodes: Iterable[Node], params: Mapping[str, ArrayLike] | None) -> None:
    declared = {param_of(node).name: node for node in nodes if node.op == "param"}
    given = dict(params or {})
    for name, node in declared.items():
        if name not in given:
            raise InputError(f"parameter {name} is missing; the program takes {list(declared)}")
        env[node] = _parameter(node, given.pop(name), env.shape)
    if given:
        raise InputError(f"unknown parameters {sorted(given)}; the program takes {list(declared)}")


class Environment:
    """The values computed so far, by node."""

    def __init__(self, shape: tuple[int, ...], values: Mapping[int, Array] | None = None) -> None:
        self.shape = shape
        self._values: dict[int, Array] = dict(values or {})

    def __getitem__(self, node: Node) -> Array:
        return self._values[id(node)]

    def __setitem__(self, node: Node, value: Array) -> None:
        self._values[id(node)] = value

    def compute(self, root: Node) -> Array:
        """Return the value of a node, computing what is missing."""
        for node in walk([root]):
            if id(node) not in self._values:
                self[node] = BACKEND[node.op](self, node)
        return self[root]

    def child(self) -> Environment:
        """Return an environment that sees these values and keeps its own apart: for one step of a scan."""
        return Environment(self.shape, self._values)


def _shaped(value: Array, node: Node, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(value, shape if node.kind is Kind.ROW else (*shape[:-1], 1)).copy()


def _broadcast(name: str, value: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(value, shape)
    except ValueError as error:
        raise InputError(f"{name} has shape {value.shape}, which does not broadcast to {shape}") from error


def _parameter(node: Node, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    param = param_of(node)
    given = np.asarray(value)
    if given.dtype != param.dtype.numpy:
        raise InputError(f"parameter {param.name} is {given.dtype}; expected {param.dtype.numpy}")
    last = 1 if param.size is None else param.size
    if given.ndim == 0 and param.size is None:
        given = given.reshape(1)
    if given.ndim == 0 or given.shape[-1] != last:
        raise InputError(f"parameter {param.name} has shape {given.shape}; expected {last} as its last axis")
    if not _within(given, param.low, param.high):
        raise InputError(f"parameter {param.name} holds a value outside its interval [{param.low}, {param.high}]")
    # Broadcast axes in front only: the result stays as small as it was given.
    _broadcast(f"parameter {param.name}", given[..., :1], (*shape[:-1], 1))
    return given


def _within(x: Array, low: Number, high: Number) -> bool:
    """Say whether every value lies in [low, high]; a NaN does not."""
    return bool(np.all(np.less_equal(low, x) & np.less_equal(x, high)))


def _const(env: Environment, node: Node) -> Array:
    return np.asarray(number_of(node), dtype=node.dtype.numpy).reshape(1)


def _elementwise(function: Callable[..., Array]) -> Callable[[Environment, Node], Array]:
    return lambda env, node: np.asarray(function(*(env[arg] for arg in node.args)), dtype=node.dtype.numpy)


def _minimum(a: Array, b: Array) -> Array:
    return np.where(np.less(a, b), a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.where(np.less(b, a), a, b)


def _divide(env: Environment, node: Node) -> Array:
    a, b = (env[arg] for arg in node.args)
    return np.asarray(np.divide(a, b) if node.dtype.is_float else np.floor_divide(a, b), dtype=node.dtype.numpy)


def _lut(env: Environment, node: Node) -> Array:
    table, at = env[node.args[0]], env[node.args[1]]
    size = table.shape[-1]
    if at.size and not (0 <= int(at.min()) and int(at.max()) < size):
        raise InputError(f"lut: position {at.min()} to {at.max()} is outside a table of {size}")
    if table.ndim == 1:
        return np.take(table, at.astype(np.int64))
    lead = np.broadcast_shapes(table.shape[:-1], at.shape[:-1])
    return np.take_along_axis(
        np.broadcast_to(table, (*lead, size)), np.broadcast_to(at, (*lead, at.shape[-1])).astype(np.int64), -1
    )


def _exp2i(env: Environment, node: Node) -> Array:
    n = env[node.args[0]]
    if n.size and not (-126 <= int(n.min()) and int(n.max()) <= 127):
        raise InputError(f"exp2i: exponent {n.min()} to {n.max()} is outside -126 to 127")
    return np.ldexp(np.float32(1), n).astype(np.float32)


def _normalize(env: Environment, node: Node) -> Array:
    x = env[node.args[0]].astype(np.uint64)
    if x.size and int(x.min()) == 0:
        raise InputError("normalize of 0")
    _, exponent = np.frexp(x.astype(np.float64))  # exact: a u32 fits the 53 bits of a double
    shift = 32 - exponent
    return (
        (x << shift.astype(np.uint64)).astype(np.uint32) if node.attrs["part"] == "mantissa" else shift.astype(np.int32)
    )


def _reduction(
    function: Callable[..., Array], identity: Callable[[DType], float | int]
) -> Callable[[Environment, Node], Array]:
    def reduce(env: Environment, node: Node) -> Array:
        x = np.broadcast_to(env[node.args[0]], env.shape)
        start = np.asarray(identity(node.dtype), dtype=node.dtype.numpy)
        return np.asarray(function(x, axis=-1, keepdims=True, initial=start), dtype=node.dtype.numpy)

    return reduce


def _sum(env: Environment, node: Node) -> Array:
    x = np.broadcast_to(env[node.args[0]], env.shape)
    return np.asarray(np.sum(x, axis=-1, keepdims=True, dtype=node.dtype.numpy))


def _scan(env: Environment, node: Node) -> Array:
    position = node.attrs["result"]
    assert isinstance(position, int)
    return _scan_all(env, node, body_of(node))[position]


def _scan_all(env: Environment, node: Node, body: ScanBody) -> list[Array]:
    scalar = (*env.shape[:-1], 1)
    states = [np.broadcast_to(env[a], scalar) for a in node.args[: len(body.states)]]
    rows = [
        np.broadcast_to(env[a], env.shape) for a in node.args[len(body.states) : len(body.states) + len(body.elements)]
    ]
    outputs = [np.zeros(env.shape, dtype=n.dtype.numpy) for n in body.outputs]
    for j in range(env.shape[-1]):
        step = env.child()
        for holder, value in zip(
            (*body.states, *body.elements), (*states, *(r[..., j : j + 1] for r in rows)), strict=True
        ):
            step[holder] = value
        states = [np.broadcast_to(step.compute(n), scalar) for n in body.next]
        for state, (low, high) in zip(states, body.invariants, strict=True):
            if not _within(state, low, high):
                raise InputError(f"scan: a state leaves its declared interval [{low}, {high}] at element {j}")
        for out, n in zip(outputs, body.outputs, strict=True):
            out[..., j : j + 1] = step.compute(n)
    return [*states, *outputs]


def _assume(env: Environment, node: Node) -> Array:
    x, low, high = env[node.args[0]], number_of(node, "low"), number_of(node, "high")
    if not _within(x, low, high):
        raise InputError(
            f"assume does not hold: a value is outside [{low}, {high}], assumed because {node.attrs['because']}"
        )
    return x


def _cast(env: Environment, node: Node) -> Array:
    return env[node.args[0]].astype(node.dtype.numpy)


def _unbound(env: Environment, node: Node) -> Array:
    raise AssertionError(f"{node.op} {node.attrs} was not bound before the program ran")


def _lowest(dtype: DType) -> float | int:
    return -np.inf if dtype.is_float else dtype.low


def _highest(dtype: DType) -> float | int:
    return np.inf if dtype.is_float else dtype.high


BACKEND: Mapping[str, Callable[[Environment, Node], Array]] = {
    "input": _unbound,
    "param": _unbound,
    "const": _const,
    "table": lambda env, node: np.asarray(table_of(node), dtype=node.dtype.numpy),
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
    "cast": _cast,
    "rint": _elementwise(np.rint),
    "lut": _lut,
    "exp2i": _exp2i,
    "normalize": _normalize,
    "log2": _elementwise(np.log2),
    "sqrt": _elementwise(np.sqrt),
    "row_max": _reduction(np.max, _lowest),
    "row_min": _reduction(np.min, _highest),
    "row_sum": _sum,
    "scan": _scan,
    "exp_minus": lambda env, node: env[node.args[1]],
    "assume": _assume,
}
