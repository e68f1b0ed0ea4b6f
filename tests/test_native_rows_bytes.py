"""Kernels of 8-bit scores: codes of a byte, and what is tabulated once a row, give the interpreter's bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

from softq.artifact.machine import Cpu
from softq.codegen.cpu.rows import row_tables
from softq.errors import RefusalError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace
from softq.rowprog.codes import coded
from softq.rowprog.phases import phases
from softq.rowprog.tabulate import tabulate_or_keep
from tests.test_codes import INTEGER_ONLY, program_of
from tests.test_native_rows import AVX2, HOST, MACHINES, SSE2, VBMI, Array, Host, assert_same, needs_host, rows_of

LENGTHS = (0, 1, 2, 50, 63, 64, 65, 130, 197, 383, 384, 385, 513, 1000)
PUBLISHED = [n for n in INTEGER_ONLY if "uint8" in getattr(METHODS.get(n).options.specs().get("output"), "words", ())]
LONG = [m for m in MACHINES if m in (VBMI, AVX2, SSE2)]


def _whole(program: Program, names: list[str]) -> Program:
    """Return a program whose outputs keep their types: those of the interface are float32."""
    return replace(program, outputs={f"{name}_": program.outputs[name] for name in names} | dict(program.outputs))


def _compare(program: Program, names: list[str], machine: Cpu, masked: bool) -> None:
    host = Host(_whole(program, names), machine, outputs=[f"{name}_" for name in names])
    for length in LENGTHS:
        rows = rows_of((5, length), DType.I8, length)
        rows[1] //= 3  # a maximum below the greatest score, and few distances
        given: dict[str, Array] = {}
        if masked:
            given["valid"] = np.random.default_rng(length).random(rows.shape) < 0.7
            given["valid"][2] = False
        assert_same(host, rows, shift=length % 3, **given)


@pytest.mark.quick_cases(5)
@needs_host
@pytest.mark.parametrize(("name", "masked"), [*((n, False) for n in INTEGER_ONLY), ("i-exp", True), ("ita", True)])
def test_codes_and_sum_of_every_integer_only_method(name: str, masked: bool) -> None:
    program, _ = tabulate_or_keep(program_of(name, masked, DType.I8))
    try:
        program = coded(program).program
    except RefusalError:
        return  # tests/test_codes.py says which
    names = ["codes"] if program.outputs["normalizer"].dtype.is_float else ["codes", "normalizer"]
    _compare(program, names, HOST, masked)


@pytest.mark.quick_cases(4)
@needs_host
@pytest.mark.parametrize(("name", "masked"), [*((n, False) for n in PUBLISHED), ("i-exp", True)])
def test_probabilities_of_bytes(name: str, masked: bool) -> None:
    program, _ = tabulate_or_keep(program_of(name, masked, DType.I8, output="uint8"))
    if program.outputs["weights"].dtype.is_float or name == "qlinear":
        return
    _compare(program, ["weights"], HOST, masked)


@pytest.mark.quick_cases(3)
@needs_host
@pytest.mark.parametrize("machine", LONG, ids=lambda m: f"{m.cpu}-{m.vector_bytes}")
@pytest.mark.parametrize("name", ["log-int", "i-exp"])
def test_long_rows_on_every_machine(machine: Cpu, name: str) -> None:
    settings = {"output": "uint8"} if name == "i-exp" else {}
    program, _ = tabulate_or_keep(program_of(name, False, DType.I8, **settings))
    _compare(program, ["codes"] if name == "log-int" else ["weights"], machine, False)


def _program(build: str) -> Program:
    """Return a program whose last pass computes much from a byte and a sum, in one form of entries or another."""
    t = Trace("tables", structure=build, scores=DType.I8)
    d = t.row_max(t.cast(t.scores, DType.I32)) - t.cast(t.scores, DType.I32)
    total = t.row_sum(d) + 1
    value = d * 231 + 15
    for k in range(6):
        value = t.max(t.min(value, total + k), total >> (k + 1))
    if build == "wide":
        out = t.cast(value, DType.U32)
    elif build == "word":
        out = t.cast(t.min(value, 65535), DType.U16)
    elif build == "signed":
        out = t.cast(t.min(value, 200) - 100, DType.I8)
    elif build == "condition":
        out = value * 3 + 7 < total
    elif build == "float":
        out = t.divide(t.cast(value, DType.F32) * 0.375, t.cast(total, DType.F32))
    else:
        assert build == "summed"
        out = t.min(value, 255)
        out = out + t.row_sum(out)
    return t.program(weights=out, normalizer=total)


@pytest.mark.quick_cases(8)
@needs_host
@pytest.mark.parametrize("build", ["wide", "word", "signed", "condition", "float", "summed"])
@pytest.mark.parametrize("machine", LONG, ids=lambda m: f"{m.cpu}-{m.vector_bytes}")
def test_every_form_of_entries(machine: Cpu, build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program(build)
    found: list[object] = []
    find = row_tables.find
    monkeypatch.setattr(row_tables, "find", lambda *given: found.append(find(*given)) or found[-1])
    _compare(program, ["weights", "normalizer"], machine, False)
    # SSE2 has no permute that looks tables up, and with AVX2's short one cheap entries are computed sooner.
    expected = {SSE2: (), AVX2: ("signed", "condition", "summed")}.get(machine, (build,))
    assert any(f is not None for f in found) is (build in expected)


def test_nothing_depends_on_entries_that_do_not_occur() -> None:
    t = Trace("positions", scores=DType.I8)
    d = t.row_max(t.cast(t.scores, DType.I32)) - t.cast(t.scores, DType.I32)
    total = t.row_sum(d)
    at = t.min(d * 3 + t.min(total, 5), 7)
    value = t.lut(t.table(list(range(8)), DType.I32), at) * 3 + 4
    found = phases(t.program(weights=t.max(value, 9), normalizer=total))[-1]
    d_node = next(n for n in found.rows if n.op == "sub")
    assert row_tables._inner(found.rows[-1], d_node, found) is None  # pyright: ignore[reportPrivateUsage]
    assert row_tables._inner(at.node, d_node, found) is not None  # pyright: ignore[reportPrivateUsage]


@needs_host
@pytest.mark.parametrize("machine", LONG, ids=lambda m: f"{m.cpu}-{m.vector_bytes}")
def test_sums_of_floats_are_nearer_to_the_exact_ones_than_any_order_is_sure_to_be(machine: Cpu) -> None:
    program, _ = tabulate_or_keep(program_of("qlinear", False, DType.I8))
    found = coded(program)
    host = Host(_whole(found.program, ["codes", "normalizer"]), machine, outputs=["codes_", "normalizer_"])
    table = np.asarray(found.table, np.float64)
    for length in LENGTHS:
        rows = rows_of((9, length), DType.I8, length)
        rows[1], rows[2] = -100, -128
        rows[1:3, :1] = 20  # small weights beside the greatest one
        values = host(rows)
        exact = table[values["codes_"].astype(np.intp)].sum(-1, keepdims=True)
        # A vector of floats adds up its lanes; whole numbers are 2^-33 off for each element.
        error = np.abs(values["normalizer_"].astype(np.float64) - exact)
        lanes = max(1, length // 16)
        assert np.all(error <= exact * 2.0**-24 * (1 if machine is not SSE2 else lanes + 5) + length * 2.0**-32)
