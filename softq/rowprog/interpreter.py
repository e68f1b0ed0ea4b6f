"""The NumPy interpreter: the reference values of a program, vectorised over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from softq.errors import InputError
from softq.rowprog.evaluation import Array, Environment, within
from softq.rowprog.program import Node, Program, param_of, walk
from softq.rowprog.types import Kind


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
                env[node] = env.evaluate(node)
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
    if not within(given, param.low, param.high):
        raise InputError(f"parameter {param.name} holds a value outside its interval [{param.low}, {param.high}]")
    # Broadcast axes in front only: the result stays as small as it was given.
    _broadcast(f"parameter {param.name}", given[..., :1], (*shape[:-1], 1))
    return given
