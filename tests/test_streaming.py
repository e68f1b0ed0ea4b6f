"""Rows taken element by element, their length unknown until the first pass is over, give what the interpreter gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import DType, Node, Program, Trace, run
from softq.rowprog.evaluation import Environment
from softq.rowprog.phases import Phase, phases
from softq.rowprog.program import ScanBody, body_of, result_of
from softq.rowprog.streaming import streaming
from tests.test_phases import carry_on, random_program, scalar_outputs

Array = NDArray[np.generic]
_FOLDS = {"row_max": np.maximum, "row_min": np.minimum, "row_sum": np.add}


def carry_out(program: Program, scores: Array, valid: Array | None) -> dict[str, Array]:
    """Execute the streaming form: the first pass by elements and without a length, the others by rows."""
    inputs = {"scores": scores} | ({} if valid is None else {"valid": np.broadcast_to(valid, scores.shape)})
    memory = {node: inputs[str(node.attrs["name"])] for node in program.nodes() if node.op == "input"}
    first, *others = streaming(program).phases
    scalars = Environment(scores.shape)
    for node in program.nodes():
        if node.op in ("const", "table"):
            scalars[node] = scalars.evaluate(node)
    for node in first.setup:
        scalars[node] = scalars.evaluate(node)
    kept = _take_elements(program, first, scalars, memory)
    for node in program.nodes():
        if node.op in ("index", "length"):
            scalars[node] = scalars.evaluate(node)
    outputs = {name: kept[program.outputs[name]] for name in first.outputs}
    memory |= {node: kept[node] for node in first.stored}
    for node in first.scalars:
        scalars[node] = scalars.evaluate(node)
    for phase in others:
        assert not phase.setup
        outputs |= carry_on(program, phase, scalars, memory)
    return outputs | scalar_outputs(program, scalars)


def _take_elements(
    program: Program, phase: Phase, scalars: Environment, memory: Mapping[Node, Array]
) -> dict[Node, Array]:
    """Carry out the first pass, one element of each row after another; return the rows that are kept of it.

    There is no length yet: what reads it raises KeyError. Sums of f32 may be taken in any order, and so are taken as
    the interpreter does, over all elements at the end.
    """
    single = (*scalars.shape[:-1], 1)
    late = [node for node in phase.reductions if node.op == "row_sum" and node.dtype.is_float]
    kept = {*phase.stored, *(program.outputs[name] for name in phase.outputs), *(node.args[0] for node in late)}
    columns: dict[Node, list[Array]] = {node: [] for node in kept}
    held: dict[Node, Array] = {}
    states: dict[ScanBody, list[Array]] = {}
    for position in range(scalars.shape[-1]):
        element = Environment(single, scalars.values)
        results: dict[ScanBody, list[Array]] = {}
        for node in program.nodes():
            if node.op == "index":
                element[node] = np.asarray([position], np.int32)
            elif node.op == "input":
                element[node] = memory[node][..., position : position + 1]
        for node in (*phase.rows, *phase.reductions):
            if node.op == "scan":
                body = body_of(node)
                if body not in results:
                    count = len(body.states)
                    before = states.get(body, [element[arg] for arg in node.args[:count]])
                    given = [*before, *(element[arg] for arg in node.args[count : count + len(body.elements)])]
                    step = Environment(single, element.values)
                    step.values |= dict(zip((*body.states, *body.elements), given, strict=True))
                    results[body] = [step.compute(value) for value in (*body.next, *body.outputs)]
                    states[body] = results[body][:count]
                element[node] = held[node] = results[body][result_of(node)]
            elif node.op in _FOLDS:
                value = np.broadcast_to(element[node.args[0]], single)
                held[node] = np.asarray(_FOLDS[node.op](held[node], value), value.dtype) if node in held else value
            else:
                element[node] = element.evaluate(node)
        for node, values in columns.items():
            values.append(np.broadcast_to(element[node], single))
    found = {node: np.concatenate(values, axis=-1) for node, values in columns.items()}
    whole = Environment(scalars.shape, found)
    for node in phase.reductions:
        scalars[node] = whole.evaluate(node) if node in late else held[node]
    return found


def _holds(program: Program, scores: Array, valid: Array | None) -> None:
    with np.errstate(all="ignore"):
        found = carry_out(program, scores, valid)
    for name, expected in run(program, scores, valid=valid).items():
        np.testing.assert_array_equal(found[name].view(np.uint8), expected.view(np.uint8), err_msg=name)


def _program(name: str, masked: bool, dtype: DType, **settings: Any) -> Program:
    method = METHODS.get(name)
    if not dtype.is_float and "step" in method.options.specs():
        settings |= {"step": 0.1}
    return method.program(method.resolve(method.configure(settings), False), scores=dtype, masked=masked)


def _rows(dtype: DType) -> Array:
    rng = np.random.default_rng(3)
    if dtype.is_float:
        scores = rng.normal(0, 4, (6, 9)).astype(np.float32)
        scores[1, 4], scores[2, 3], scores[3, 5:7], scores[4] = np.nan, -np.inf, np.inf, -np.inf
        return scores
    return rng.integers(dtype.low, dtype.high + 1, (6, 9), dtype=dtype.numpy)


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("name", METHODS.entries())
def test_every_method_takes_a_stream(name: str, masked: bool) -> None:
    for dtype in (DType.F32, DType.I8) if METHODS.get(name).integer_scores else (DType.F32,):
        program, scores = _program(name, masked, dtype), _rows(dtype)
        valid = np.random.default_rng(4).random(scores.shape) < 0.6 if masked else None
        _holds(program, scores, valid)
        # Without a length in the program, a stream is taken as a row is.
        if all(node.op != "length" for node in program.nodes()):
            assert streaming(program).phases == phases(program)
            assert streaming(program).streams


@pytest.mark.parametrize(
    ("name", "dtype", "settings", "waits", "passes"),
    [
        ("relu", DType.F32, {"divisor": "row"}, "", 3),
        ("relu", DType.I8, {}, "", 1),
        ("ita", DType.I8, {"bias": "query", "output": "uint8"}, "", 4),
        ("sigmoid", DType.F32, {"bias": "row"}, "row f32 = sub scores, ", 3),
        ("sigmoid", DType.I8, {}, "row i64 = mul ", 2),
    ],
)
def test_what_takes_the_length_is_named(
    name: str, dtype: DType, settings: Mapping[str, object], waits: str, passes: int
) -> None:
    program = _program(name, False, dtype, **settings)
    found = streaming(program)
    assert found.takers
    assert len(found.phases) == passes
    assert found.streams == (not waits)
    assert waits in (found.obstacle or "")
    _holds(program, _rows(dtype), None)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_take_streams(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-1000, 1000, (3, 5), dtype=np.int32)
    _holds(random_program(seed), scores, rng.random((3, 5)) < 0.6)


def test_what_waits_is_counted_in_passes() -> None:
    t = Trace("late", scores=DType.I32)
    scaled = t.scores * t.length()
    least, greatest = t.row_min(t.scores), t.row_max(scaled)
    program = t.program(weights=greatest - scaled, normalizer=t.length() + least)
    found = streaming(program)
    assert [len(phases(program)), len(found.phases)] == [2, 3]
    assert found.waiting == (scaled.node, greatest.node, program.outputs["weights"])
    assert found.takers == (scaled.node, program.outputs["normalizer"])
    assert found.obstacle == "%0: row i32 = mul scores, length"
    first, second, third = found.phases
    assert first.reductions == (least.node,)
    assert first.scalars == (program.outputs["normalizer"],)
    assert second.reductions == (greatest.node,)
    assert third.outputs == ("weights",)


def test_a_stream_whose_every_value_is_at_hand_has_one_pass() -> None:
    t = Trace("copy", scores=DType.I32)
    found = streaming(t.program(weights=t.scores, normalizer=t.length()))
    assert len(found.phases) == 1
    assert found.streams
    assert found.takers == ()


@pytest.mark.parametrize("named_before", [False, True])
def test_a_step_that_takes_the_length_waits_for_it(named_before: bool) -> None:
    t = Trace("step", scores=DType.I32)
    if named_before:
        t.length()
    (last,), (row,) = t.scan(
        [t.const(0, DType.I32)], [t.scores], lambda s, e: ([t.min(e, t.length())], [s]), [(-(2**31), 2**31 - 1)]
    )
    program = t.program(weights=row, normalizer=last)
    found = streaming(program)
    assert len(found.phases) == 2
    assert set(found.takers) == set(found.waiting) == {last.node, row.node}
    _holds(program, _rows(DType.I32), None)
