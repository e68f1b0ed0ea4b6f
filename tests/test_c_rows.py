"""Row kernels in C: words where the program says 64 bits, and four scores at once, to the bit."""

from __future__ import annotations

import ctypes
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from softq.artifact.machine import Cpu
from softq.codegen.c.four_bytes import FOUR_BYTES
from softq.codegen.c.machines import CORTEX_M
from softq.codegen.c.prelude import prelude
from softq.codegen.common.patterns import INTEGERS, with_integers
from softq.codegen.cpu.rows.repeats import Repeat, roll_up
from softq.codegen.cpu.rows.short_forms import shorten
from softq.rowprog import DType, Kind, Program, Trace, run
from softq.rowprog.ranges import intervals_in_parts, prove
from softq.rowprog.tabulate import tabulate_or_keep
from tests.test_native_rows import IN_C, Host, all_outputs, assert_same, needs_host, program_of, rows_of

FORMS = {"plain": (), "four-bytes": ("-DSQ_DSP=1",)}
"""What the text is told: by itself it knows that this processor has no instructions on the bytes of a word."""

METHODS = [
    ("deferred-log", {"bits": 4, "r": 1, "step": 0.1}),
    ("index-softmax", {"step": 0.0625}),
    ("ita", {}),
    ("tflite-int8", {"step": 0.0625, "output": "int8"}),
    ("tflite-int8", {"step": 0.0625, "output": "int16"}),
]


def every_pair(kind: DType) -> np.ndarray[Any, Any]:
    """Return rows of two: every maximum and every score that is not above it."""
    greatest, least = np.triu_indices(256)
    return np.stack([least + kind.low, greatest + kind.low], axis=-1).astype(kind.numpy)


@pytest.mark.quick_cases(8)
@needs_host
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [DType.I8, DType.U8], ids=str)
@pytest.mark.parametrize(("name", "settings"), METHODS, ids=lambda x: x if isinstance(x, str) else str(len(x)))
def test_every_pair_of_a_maximum_and_a_score(name: str, settings: Any, kind: DType, form: str) -> None:
    program = tabulate_or_keep(program_of(name, settings, kind, False))[0]
    host = Host(program, IN_C, outputs=all_outputs(program), max_length=4096, flags=FORMS[form])
    pairs = every_pair(kind)
    assert len(pairs) == 32896
    assert_same(host, pairs)
    # In the middle of a word, and of a row.
    assert_same(host, np.concatenate([np.full((len(pairs), 3), pairs.min(), kind.numpy), pairs], axis=-1)[::7])
    for length in (0, 1, 3, 4, 5, 8, 31, 197, 1024, 4096):
        assert_same(host, rows_of((3, length), kind, length))


@needs_host
def test_codes_that_are_written_as_integers(tmp_path: Path) -> None:
    program = tabulate_or_keep(program_of("tflite-int8", {"step": 0.0625, "output": "int8"}, DType.I8, False))[0]
    program = with_integers(program, DType.U8)
    assert_same(Host(program, IN_C, outputs=[INTEGERS], max_length=1024), every_pair(DType.I8))


@needs_host
def test_what_needs_64_bits_has_them() -> None:
    t = Trace("wide", structure="x", scores=DType.I32)
    x = t.assume(t.scores, -(2**31), 2**31 - 1, "all there is")
    wide = t.cast(x, DType.I64)
    product = wide * wide - 1
    low = t.cast(t.clamp(product >> 20, -5, 1000), DType.I32)
    program = t.program(weights=low, normalizer=t.row_sum(product >> 3))
    x = np.array([[-(2**31), 2**31 - 1, 0, 1, -1, 46341, 1 << 20]], np.int32)
    assert_same(Host(program, IN_C, outputs=all_outputs(program), max_length=7), x)


def nearest_float32(value: int) -> np.float32:
    """Return the float32 nearest to an integer, of two the one with an even last bit."""
    near = np.float32(value)
    around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    return min(around, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(np.int32)) & 1))


@needs_host
def test_wide_integers_are_rounded_once_to_floats() -> None:
    """The halves of 64 bits: both signs, ties above 2^53, and a last bit that rounding to float64 first would lose."""
    t = Trace("rounded", structure="x", scores=DType.I64)
    program = t.program(weights=t.cast(t.scores, DType.F32), normalizer=t.length())
    ties = [2**53 + 2**29, 2**53 + 2**29 + 1, 2**62 + 2**38, 2**62 + 2**38 + 1, 2**32, 2**33 - 1, 2**24 + 1, 0]
    rng = np.random.default_rng(0)
    anywhere = rng.integers(-(2**63), 2**63 - 1, 200) >> rng.integers(0, 63, 200)
    x = np.concatenate([ties, np.negative(ties), anywhere, [2**63 - 1, -(2**63)]])
    found = Host(program, IN_C, outputs=all_outputs(program), max_length=len(x))(x[None])["weights"][0]
    np.testing.assert_array_equal(found, [nearest_float32(int(value)) for value in x])


def repeated(turns: int, seen: int | None = None, start: int | None = None) -> Program:
    """Return a program with a formula that is applied to its own result, one of which may be an output."""
    t = Trace("repeated", structure="x", scores=DType.I8)
    factor = t.cast(t.clamp(t.row_max(t.cast(t.scores, DType.I32)), -128, 127), DType.I64) + 200
    x = t.cast(t.row_sum(t.cast(t.scores, DType.I32)), DType.I64) if start is None else t.const(start, DType.I64)
    results = [x]
    for _ in range(turns):
        x = t.clamp(x + ((factor * x * 3 + 64) >> 7) - 1000, -(2**31), 2**33)
        results.append(x)
    outputs = {} if seen is None else {"seen": t.cast(results[seen] >> 3, DType.I32)}
    weights = t.cast(x >> 4, DType.I32) + t.cast(t.scores, DType.I32)
    return t.program(weights=weights, normalizer=t.length(), **outputs)


@needs_host
@pytest.mark.parametrize(
    ("turns", "seen", "start", "loops"),
    [(2, None, None, 1), (5, None, None, 1), (5, 5, None, 1), (5, 0, None, 1), (5, 3, None, 1), (1, None, None, 0),
     (4, None, 7, 1), (2, 1, None, 0)],
)  # fmt: skip
def test_a_formula_that_is_repeated_is_a_loop(turns: int, seen: int | None, start: int | None, loops: int) -> None:
    program = repeated(turns, seen, start)
    host = Host(program, IN_C, outputs=all_outputs(program), max_length=64)
    scores = rows_of((50, 64), DType.I8, turns)
    assert_same(host, scores)
    assert_same(host, np.repeat(np.array([[-128], [127], [0], [-1]], np.int8), 64, axis=-1))
    numbers = [node for node in program.nodes() if node.kind is Kind.SCALAR and node.op != "const"]
    found = [step for step in roll_up(numbers, program) if isinstance(step, Repeat)]
    assert len(found) == loops


@needs_host
def test_a_product_that_is_scaled_has_both_signs() -> None:
    t = Trace("scaled", structure="x", scores=DType.I32)
    x = t.cast(t.assume(t.scores, -(2**31) + 1, 2**31 - 1, "what a product of 62 bits takes"), DType.I64)
    least, most = (t.clamp(found, -(2**31) + 1, 2**31 - 1) for found in (t.row_min(x), t.row_max(x)))
    outputs = {"weights": t.cast((x * most + (1 << 30)) >> 31, DType.I32)}
    outputs["least"] = t.cast((least * most + (1 << 30)) >> 31, DType.I32)
    program = t.program(**outputs, normalizer=t.row_sum((x * x) >> 40))
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**31) + 1, 2**31, (200, 5)).astype(np.int32)
    x[:4, 0] = [2**31 - 1, -(2**31) + 1, 0, -1]
    host = Host(program, IN_C, outputs=all_outputs(program), max_length=5)
    assert_same(host, x)


def test_a_shift_that_rounds_is_the_same_in_fewer_bits() -> None:
    t = Trace("rounding", structure="x", scores=DType.I8)
    x = t.cast(t.scores, DType.I64)
    right = t.cast(t.cast(t.row_max(t.scores), DType.I32), DType.I64)
    right = t.clamp(right, 1, 50)
    rounded = ((x << 20) + (t.const(1, DType.I64) << (right - 1))) >> right
    program = t.program(weights=t.cast(t.clamp(rounded, -1000, 1000), DType.I32), normalizer=t.length())
    short = shorten(program, 256)
    assert [n.op for n in short.nodes()].count("shl") == 1 < [n.op for n in program.nodes()].count("shl")
    scores = np.stack([np.arange(-128, 128), np.roll(np.arange(-128, 128), 1)]).astype(np.int8)
    scores = np.minimum(scores[:, :, None], np.arange(60, dtype=np.int8)[:, None, None].reshape(1, 1, -1)).swapaxes(
        1, 2
    )
    np.testing.assert_array_equal(run(short, scores)["weights"], run(program, scores)["weights"])
    assert shorten(short, 256).nodes() == short.nodes()


def reciprocal(least: int = 1) -> Program:
    """Return a program that divides 2^61 by a mantissa, in steps of Newton that are clamped to [least, 2^32)."""
    t = Trace("reciprocal", structure="x", scores=DType.I8)
    total = t.row_sum(t.cast(t.scores, DType.I32) + 129)
    mantissa, _ = t.normalize(t.cast(t.max(total, 1), DType.U32))
    half = t.cast(mantissa, DType.I64) >> 2
    x = t.const(3 << 29, DType.I64) - half
    for _ in range(4):
        x = t.clamp((x * ((1 << 31) - ((half * x) >> 30))) >> 30, least, 2**32 - 1)
    above = t.select(t.cast(total, DType.I64) >= 1 << 20, total >> 3, total)
    return t.program(weights=t.cast(t.scores, DType.I32), normalizer=t.clamp(above, 1, 1 << 20), x=x)


def test_what_intervals_decide_is_not_computed() -> None:
    program = reciprocal()
    short = shorten(program, 64)
    ops = [node.op for node in short.nodes()]
    # The sum of 64 scores is below 2^20. No step leaves [1, 2^32); what is left is that an empty sum is 1.
    assert "select" not in ops
    assert "min" not in ops
    assert ops.count("max") == 2
    longer = shorten(program, 1 << 20)
    assert "select" in [node.op for node in longer.nodes()]
    acting = shorten(reciprocal(1 << 30), 64)
    assert [node.op for node in acting.nodes()].count("max") > 2
    rng = np.random.default_rng(0)
    for length in (0, 1, 2, 7, 64):
        scores = rng.integers(-128, 128, (200, length)).astype(np.int8)
        for found, whole in ((short, program), (acting, reciprocal(1 << 30))):
            for name, wanted in run(whole, scores).items():
                np.testing.assert_array_equal(run(found, scores)[name], wanted)


@needs_host
def test_steps_of_scans_keep_the_numbers_that_they_name() -> None:
    t = Trace("captured", structure="x", scores=DType.I8)
    x = t.cast(t.scores, DType.I32)
    total = t.clamp(t.row_sum(x), -(1 << 16), 1 << 16)  # which never acts
    most = t.row_max(t.clamp(x + total, -1000, 1000))
    (last,), (sums,) = t.scan(
        [t.const(0, DType.I32)], [x],
        lambda s, x: ([t.clamp(s + t.max(t.clamp(most, -9, 99) - x, 0), 0, 1 << 20)], [s]), [(0, 1 << 20)],
    )  # fmt: skip
    program = t.program(weights=sums, normalizer=last)
    assert_same(Host(program, IN_C, outputs=all_outputs(program), max_length=64), rows_of((5, 64), DType.I8, 3))


def test_parts_of_a_mantissa_hold_what_it_gives() -> None:
    program = reciprocal()
    proof = prove(program, max_length=1 << 16)
    found = intervals_in_parts(program, proof)
    steps = [node for node in program.nodes() if node.op == "min" and node.dtype is DType.I64]
    # One product of Newton's takes x and the mantissa for independent, and each step twice of them.
    assert [proof.intervals[node].high for node in steps[-2:]] == [2**32 - 1] * 2
    assert all(found[node].high < 2**31 + 2**28 for node in steps)
    rng = np.random.default_rng(0)
    lengths = [1, 2, 3, 100, 1 << 12, 1 << 16]
    for length in lengths:
        scores = rng.integers(-128, 128, (3, length)).astype(np.int8)
        last = steps[-1]
        assert all(found[last].low <= x <= found[last].high for x in run(program, scores)["x"].ravel().tolist())


SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0, -0.0, 1e-45, -1e-45, 1, -1, 3.4e38, -3.4028235e38, 87, -86.5,
                    -86.50001], np.float32)  # fmt: skip


@needs_host
@pytest.mark.parametrize("machine", [CORTEX_M.machine("m3", ""), CORTEX_M.machine("m7", "")], ids=lambda m: m.float_abi)
@pytest.mark.parametrize("name", ["exact", "relu"])
def test_floats_are_compared_as_numbers(name: str, machine: Cpu) -> None:
    """Without a unit for floats their bits are compared."""
    program = program_of(name, {}, DType.F32, False)
    host = Host(program, machine, outputs=all_outputs(program), max_length=64)
    pairs = np.stack(np.meshgrid(SPECIAL, SPECIAL), axis=-1).reshape(-1, 2)
    longer = np.concatenate([pairs, np.tile(SPECIAL[3:5], (len(pairs), 1))], axis=-1)
    for scores in (pairs, SPECIAL[:, None], longer, np.empty((3, 0), np.float32)):
        found, wanted = ({k: x.astype(np.float64) for k, x in y.items()} for y in (host(scores), run(program, scores)))
        np.testing.assert_allclose(found["normalizer"], wanted["normalizer"], rtol=1e-6)
        # What weighs how much beside a NaN is left open.
        numbers = ~np.isnan(wanted["normalizer"][:, 0])
        np.testing.assert_allclose(found["weights"][numbers], wanted["weights"][numbers], rtol=1e-6, atol=0)


@needs_host
def test_functions_on_four_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 1 << 32, (2, 4000), np.uint32)
    a[:256] = np.arange(256, dtype=np.uint32) * 0x01010101
    b[:256] = a[:256][::-1]
    names = [name for name in FOUR_BYTES if name != "load_four"]
    text = (
        prelude(FOUR_BYTES)
        + "uint32_t load(const uint8_t *x);\nuint32_t load(const uint8_t *x)\n{\n    return sq_load_four(x);\n}\n"
    )
    for name in names:
        head = f"uint32_t {name}(uint32_t a, uint32_t b)"
        text += f"{head};\n{head}\n{{\n    return sq_{name}(a, b);\n}}\n"
    (tmp_path / "x.c").write_text(text)
    strict = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
    subprocess.run(["gcc", *strict, "-shared", "-fPIC", "x.c", "-o", "x.so"], check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "x.so"))
    wanted = {"sub_four": (a.view(np.uint8) - b.view(np.uint8)).view(np.uint32)}
    for kind in (np.int8, np.uint8):
        for which, take in (("max", np.maximum), ("min", np.minimum)):
            wanted[f"{which}_four_{kind.__name__}"] = take(a.view(kind), b.view(kind)).view(np.uint32)
    assert set(wanted) == set(names)
    for name in names:
        function = getattr(library, name)
        function.restype = ctypes.c_uint32
        found = [function(ctypes.c_uint32(x), ctypes.c_uint32(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        np.testing.assert_array_equal(np.array(found, np.uint32), wanted[name], name)
    library.load.restype = ctypes.c_uint32
    assert library.load(b"\x01\x82\x03\xff") == 0xFF038201
