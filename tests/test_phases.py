"""Phases, carried out to the letter of their contract, give what the interpreter gives."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.errors import RefusalError
from softq.methods import METHODS
from softq.rowprog import DType, Kind, Node, Program, Trace, Value, run
from softq.rowprog.evaluation import Environment
from softq.rowprog.phases import CHEAP_OPS, Phase, phases

Array = NDArray[np.generic]
_AT_HAND = ("const", "table", "index", "length")


def carry_out(program: Program, scores: Array, valid: Array | None) -> dict[str, Array]:
    """Execute the phases; a value that a pass has neither loaded nor computed is missing and raises KeyError."""
    scalars = Environment(scores.shape)
    for node in program.nodes():
        if node.op in _AT_HAND:
            scalars[node] = scalars.evaluate(node)
    memory: dict[Node, Array] = {}
    for node in program.nodes():
        if node.op == "input":
            found = scores if node.attrs["name"] == "scores" else valid
            assert found is not None
            memory[node] = np.broadcast_to(found, scores.shape)
    outputs: dict[str, Array] = {}
    for position, phase in enumerate(phases(program)):
        assert phase.number == position
        for node in phase.setup:
            scalars[node] = scalars.evaluate(node)
        outputs |= carry_on(program, phase, scalars, memory)
    return outputs | scalar_outputs(program, scalars)


def carry_on(program: Program, phase: Phase, scalars: Environment, memory: dict[Node, Array]) -> dict[str, Array]:
    """Execute a pass behind its setup; return the outputs that it writes."""
    row = Environment(scalars.shape, scalars.values)
    for node in phase.loads:
        row[node] = memory[node]
    for node in (*phase.rows, *phase.reductions):
        row[node] = row.evaluate(node)
    for node in phase.reductions:
        scalars[node] = row[node]
    for node in phase.stored:
        assert node in phase.rows
        memory[node] = row[node]
    for node in phase.groups:
        # By their operands in memory, and no others.
        found = Environment(scalars.shape, {arg: memory[arg] for arg in node.args})
        memory[node] = found.evaluate(node)
    for node in phase.scalars:
        scalars[node] = scalars.evaluate(node)
    return {name: np.broadcast_to(row[program.outputs[name]], scalars.shape) for name in phase.outputs}


def scalar_outputs(program: Program, scalars: Environment) -> dict[str, Array]:
    found = {name: node for name, node in program.outputs.items() if node.kind is Kind.SCALAR}
    return {name: np.broadcast_to(scalars[node], (*scalars.shape[:-1], 1)) for name, node in found.items()}


def _holds(program: Program, scores: Array, valid: Array | None = None) -> None:
    with np.errstate(all="ignore"):
        found = carry_out(program, scores, valid)
    for name, expected in run(program, scores, valid=valid).items():
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["exact", "deferred-log", "uniform", "log2"])
def test_phases_of_the_methods(name: str, masked: bool) -> None:
    method = METHODS.get(name)
    program = method.program(method.resolve(method.configure({}), False), masked=masked)
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 4, (7, 33)).astype(np.float32)
    _holds(program, scores, rng.random((7, 33)) < 0.7 if masked else None)


def random_program(seed: int) -> Program:
    rng = random.Random(seed)
    t = Trace("random", scores=DType.I32, masked=True)
    assert t.valid is not None
    values: list[Value] = [t.scores, t.index(), t.length(), t.select(t.valid, t.scores, 0)]
    for _ in range(40):
        a, b = rng.choice(values[-9:]), rng.choice(values)
        rows = [v for v in values if v.kind is Kind.ROW]
        choice = rng.random()
        if choice < 0.15:
            values.append(rng.choice([t.row_max, t.row_min, t.row_sum])(rng.choice(rows[-4:])))
        elif choice < 0.2:
            values.append(t.lut(t.table(list(range(8)), DType.I32), t.clamp(a, 0, 7)))
        elif choice < 0.24:
            states, outputs = t.scan(
                [t.const(0, DType.I32)],
                [rng.choice(rows)],
                lambda s, x: ([t.max(s, x)], [x - s]),
                [(-(2**31), 2**31 - 1)],
            )
            values += [*states, *outputs]
        else:
            values.append(t.apply(rng.choice(["add", "sub", "min", "max", "mul"]), a, b))
    rows = [v for v in values if v.kind is Kind.ROW]
    scalars = [v for v in values if v.kind is Kind.SCALAR]
    return t.program(weights=rows[-1], normalizer=scalars[-1], early=rows[len(rows) // 2])


@pytest.mark.parametrize("seed", range(60))
def test_phases_ofrandom_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-1000, 1000, (3, 5), dtype=np.int32)
    _holds(random_program(seed), scores, rng.random((3, 5)) < 0.6)


def test_the_same_program_has_the_same_phases() -> None:
    def described(found: tuple[Phase, ...]) -> list[tuple[str, ...]]:
        return [tuple(n.op for n in (*p.loads, *p.rows, *p.reductions, *p.scalars, *p.stored)) for p in found]

    assert described(phases(random_program(3))) == described(phases(random_program(3)))


def _softmax_of(steps: int) -> Program:
    """Return max, then `steps` cheap operations from the scores (the difference is one), then sum, then a product."""
    t = Trace("steps", scores=DType.I32)
    value = t.row_max(t.scores) - t.scores
    for i in range(steps - 1):
        value = t.max(value, i + 1)
    return t.program(probabilities=value * t.row_sum(value))


def test_cheap_values_are_recomputed_and_others_stored() -> None:
    cheap = phases(_softmax_of(CHEAP_OPS))
    assert [len(p.stored) for p in cheap] == [0, 0, 0]
    assert [n.op for n in cheap[2].loads] == ["input"]
    assert len(cheap[2].rows) == CHEAP_OPS + 1
    dear = phases(_softmax_of(CHEAP_OPS + 1))
    assert [len(p.stored) for p in dear] == [0, 1, 0]
    assert dear[2].loads == dear[1].stored
    assert [n.op for n in dear[2].rows] == ["mul"]


@pytest.mark.parametrize("entries", [256, 257])
def test_a_look_up_is_recomputed_at_bytes_only(entries: int) -> None:
    t = Trace("table", scores=DType.U8)
    weight = t.lut(t.table(list(range(entries)), DType.U32), t.scores)
    found = phases(t.program(probabilities=weight - t.row_sum(weight)))
    assert found[0].stored == ((weight.node,) if entries > 256 else ())


def test_the_output_of_a_loop_is_never_recomputed() -> None:
    t = Trace("scan", scores=DType.I32)
    least = (-(2**31), 2**31 - 1)
    _, (before,) = t.scan([t.const(0, DType.I32)], [t.scores], lambda s, x: ([t.max(s, x)], [s]), [least])
    program = t.program(probabilities=t.row_max(before) - before)
    assert phases(program)[0].stored == (before.node,)
    _holds(program, np.arange(6, dtype=np.int32).reshape(2, 3))


def test_each_thing_stands_where_it_is_known_first() -> None:
    t = Trace("three", scores=DType.I32)
    base = t.length() + 1
    greatest = t.row_max(t.scores)
    shifted = greatest + base
    d = shifted - t.scores
    total = t.row_sum(d)
    program = t.program(weights=d, normalizer=total, least=t.row_min(t.scores))
    first, second = phases(program)
    assert first.setup == (base.node,)
    assert {n.op for n in first.reductions} == {"row_max", "row_min"}
    assert first.scalars == (shifted.node,)
    assert (second.setup, second.rows, second.reductions) == ((), (d.node,), (total.node,))
    assert second.outputs == ("weights",)


def test_parameters_are_at_hand() -> None:
    t = Trace("param", scores=DType.I32)
    p = t.param("bias", "site", DType.I32, 0, 9, "added to each score")
    found = phases(t.program(weights=t.scores + p, normalizer=t.row_sum(t.scores)))
    assert len(found) == 1
    assert found[0].setup == ()
    assert [n.op for n in found[0].rows] == ["add"]


def test_an_output_that_is_an_input() -> None:
    t = Trace("copy", scores=DType.I32)
    _holds(t.program(weights=t.scores, normalizer=t.length()), np.arange(6, dtype=np.int32).reshape(2, 3))


def test_maxima_over_groups_are_there_for_the_next_pass() -> None:
    t = Trace("groups")
    once = t.group_max(t.scores * 2.0, 4)
    twice = t.group_max(t.scores - once, 16)
    program = t.program(weights=twice, normalizer=t.row_sum(once), first=once, last=t.scores * twice)
    x = np.random.default_rng(0).normal(size=(3, 37)).astype(np.float32)
    found, wanted = carry_out(program, x, None), run(program, x)
    assert [len(phase.groups) for phase in phases(program)] == [1, 1, 0]
    assert [phase.outputs for phase in phases(program)] == [(), ("first",), ("weights", "last")]
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)
    with pytest.raises(RefusalError, match="groups takes maxima over groups of elements, which are stored"):
        phases(program, stores=False)
