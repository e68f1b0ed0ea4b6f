"""The NumPy interpreter: the reference values of a program, vectorised over rows, in its types or in real numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.errors import InputError
from softq.rowprog.evaluation import Array, Environment, check_values
from softq.rowprog.library import EXP_LIMIT
from softq.rowprog.program import Node, Program, param_of
from softq.rowprog.types import Kind


def run(
    program: Program,
    scores: ArrayLike,
    *,
    valid: ArrayLike | None = None,
    params: Mapping[str, ArrayLike] | None = None,
    environment: Callable[[tuple[int, ...]], Environment] = Environment,
) -> dict[str, Array]:
    """Return the program's outputs: rows [..., N], scalars [..., 1].

    Args:
        program: What to run.
        scores: [..., N], of exactly the program's type.
        valid: bool, broadcastable to the scores; given if and only if the program is masked.
        params: For each run-time parameter a number or an array whose leading axes broadcast to the scores' leading
            axes: [..., 1] for a number, [..., size] for a table.
        environment: What makes an environment of the scores' shape: of another one, operators may mean other things.

    Raises:
        InputError: an argument is missing, unknown, of the wrong type or shape, or outside its declared interval; or
            an `assume` does not hold.
    """
    env = _start(program, scores, valid, environment)
    _bind(env, program, params)
    return _compute(env, program.outputs)


def prepare(
    program: Program, scores: ArrayLike, *, valid: ArrayLike | None = None
) -> Callable[[Mapping[str, ArrayLike]], dict[str, Array]]:
    """Return what `run` does with these scores, as a function of the parameters: for many of them on the same rows.

    What does not depend on a parameter is computed once, here.

    Raises:
        InputError: as `run` does, of the scores here, of the parameters in each call.
    """
    varies: set[Node] = set()
    for node in program.nodes():
        if node.op == "param" or not varies.isdisjoint(node.args):
            varies.add(node)
    later = [node for node in program.nodes() if node in varies and node.op != "param"]
    env = _start(program, scores, valid)
    # Only what the rest takes is kept, so that what lies before it goes when this returns.
    taken = [*(arg for node in later for arg in node.args), *program.outputs.values()]
    with np.errstate(all="ignore"):
        kept = {node: env.compute(node) for node in taken if node not in varies}
    shape = env.shape

    def outputs(params: Mapping[str, ArrayLike]) -> dict[str, Array]:
        env = Environment(shape, kept)
        _bind(env, program, params)
        with np.errstate(all="ignore"):
            for node in later:
                env[node] = env.evaluate(node)
        return {name: _shaped(env, node) for name, node in program.outputs.items()}

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
    env = _start(program, scores, valid)
    _bind(env, program, params)
    return _compute(env, {"node": node})["node"]


def _start(
    program: Program,
    scores: ArrayLike,
    valid: ArrayLike | None,
    environment: Callable[[tuple[int, ...]], Environment] = Environment,
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
    inputs = {"scores": x}
    if valid is not None:
        mask = np.asarray(valid)
        if mask.dtype != np.bool_:
            raise InputError(f"valid is {mask.dtype}; expected bool")
        inputs["valid"] = _broadcast("valid", mask, x.shape)
    env = environment(x.shape)
    for node in program.nodes():
        if node.op == "input":
            env[node] = inputs[str(node.attrs["name"])]
    return env


def _bind(env: Environment, program: Program, params: Mapping[str, ArrayLike] | None) -> None:
    declared = {param_of(node).name: node for node in program.nodes() if node.op == "param"}
    given = dict(params or {})
    for name, node in declared.items():
        if name not in given:
            raise InputError(f"parameter {name} is missing; the program takes {list(declared)}")
        env[node] = _parameter(node, given.pop(name), env.shape)
    if given:
        raise InputError(f"unknown parameters {sorted(given)}; the program takes {list(declared)}")


def _compute(env: Environment, outputs: Mapping[str, Node]) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        for node in outputs.values():
            env.compute(node)
    return {name: _shaped(env, node) for name, node in outputs.items()}


def _shaped(env: Environment, node: Node) -> Array:
    return np.broadcast_to(env[node], env.shape if node.kind is Kind.ROW else (*env.shape[:-1], 1)).copy()


def _broadcast(name: str, value: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(value, shape)
    except ValueError as error:
        raise InputError(f"{name} has shape {value.shape}, which does not broadcast to {shape}") from error


def _parameter(node: Node, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    param = param_of(node)
    given = np.asarray(value)
    last = 1 if param.size is None else param.size
    if given.ndim == 0 and param.size is None:
        given = given.reshape(1)
    if given.ndim == 0 or given.shape[-1] != last:
        raise InputError(f"parameter {param.name} has shape {given.shape}; expected {last} as its last axis")
    check_values(param, given)
    # Broadcast axes in front only: the result stays as small as it was given.
    _broadcast(f"parameter {param.name}", given[..., :1], (*shape[:-1], 1))
    return given


def run_wide(
    program: Program, scores: ArrayLike, *, params: Mapping[str, ArrayLike] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return what a program of f32 means in real numbers: its operations in float64, with the exponential itself.

    Only the constants of the program are those of f32, so that a formula can be told from another that f32 would hide.
    Scores are rounded to f32 first, as the program's interface has it; there is no mask.
    """
    found = run(program, np.asarray(scores, np.float32), params=params, environment=_Wide)
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


class _Wide(Environment):
    """An environment in which every float is a double."""

    def __getitem__(self, node: Node) -> Array:
        value = super().__getitem__(node)
        return value.astype(np.float64) if value.dtype == np.float32 else value

    def dtype(self, node: Node) -> np.dtype[np.generic]:
        return np.dtype(np.float64) if node.dtype.is_float else node.dtype.numpy

    def evaluate(self, node: Node) -> Array:
        if node.op != "exp_minus":
            return super().evaluate(node)
        d = self[node.args[0]]
        return np.where(np.less_equal(d, EXP_LIMIT), np.exp(-np.maximum(d, 0.0)), 0.0)
