"""Cores with V give the sums of an independent reference, and those of the CPU's kernels, to the bit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from softq.cli import main
from softq.codegen.verilog.weighted_plan import ValueSettings
from softq.methods import METHODS
from softq.rowprog import DType
from softq.rtl import MadeWeightedCore, rtl_with_values, weighted, write_rtl
from softq.rtl.weighted import ValueBeats, averages, sums
from softq.vectors.rows import Row
from tests.amount import amount
from tests.simulators import compile_core, simulate

STALLS = ((100, 100), (70, 60), (30, 100), (100, 20))
STEP = 0.06
EQUAL = {"step": STEP, "steps": "equal"}
BOTH = ("averages", "normalizer")


def check(folder: Path, made: MadeWeightedCore, simulator: str, stalls: tuple[tuple[int, int], ...]) -> None:
    write_rtl(made, folder)
    command = compile_core(folder, made.core.name, simulator)
    for seed, (valid, ready) in enumerate(stalls):
        said = simulate(folder, command, valid=valid, ready=ready, seed=seed + 1)
        expected = f"PASS: {len(made.beats.results)} beats, {len(made.beats.numbers)} numbers, 0 wrong"
        assert said.startswith(expected), said


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("r", "values", "masked"),
    [
        (1, ValueSettings(8, 2, 3, outputs=BOTH), True),
        (2, ValueSettings(3, 3, 0), False),
        (4, ValueSettings(4, 1, 16, multipliers=True, outputs=BOTH), True),
        (1, ValueSettings(5, 5, outputs=("sums", "normalizer")), False),
        (1, ValueSettings(40, 1, 2, outputs=BOTH), False),
    ],
)
def test_gives_what_the_reference_gives(tmp_path: Path, r: int, values: ValueSettings, masked: bool) -> None:
    """Shifts, sums of parts and multipliers, with V in one beat, a few or so many that sums are in blocks of memory, at
    full speed and with waits."""
    made = rtl_with_values("deferred-log", values, {**EQUAL, "r": r}, masked=masked, length=16, rows=1)
    assert (made.core.plan.shifts is not None) == (r == 1)
    check(tmp_path, made, "iverilog", amount(STALLS[1:2], STALLS[:2]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "outputs", "scores", "masked", "multipliers"),
    [(1, BOTH, "i8", False, False), (4, ("sums", "normalizer"), "u8", True, False), (16, BOTH, "i8", True, True)],
)
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *(("deferred-log", {**EQUAL, "r": r}) for r in (1, 2, 4)),
        *((name, {"step": STEP}) for name in ("deferred-log", "e2softmax", "ita", "index-softmax", "tflite-int8")),
    ],
)
def test_gives_what_the_reference_gives_of_more_methods(
    tmp_path: Path,
    method: str,
    settings: Mapping[str, object],
    lanes: int,
    outputs: tuple[str, ...],
    scores: str,
    masked: bool,
    multipliers: bool,
) -> None:
    """Rows of all lengths up to 1,024."""
    values = ValueSettings(16, lanes, 4, multipliers, outputs)
    made = rtl_with_values(method, values, settings, scores=scores, masked=masked, rows=10)
    check(tmp_path, made, "verilator", STALLS)


def test_averages_are_the_nearest() -> None:
    """Within half a unit of the quotient of real numbers, with halves up, and 0 where no weight is above 0."""
    rng = np.random.default_rng(1)
    for fraction in (0, 3, 16):
        for _ in range(200):
            weights = rng.integers(0, 1 << 15, rng.integers(1, 50)) * rng.integers(0, 2)
            v = rng.integers(-128, 128, (weights.size, 4), np.int8)
            found = sums(weights, v)
            total = int(weights.sum())
            exact = found * 2.0**fraction / max(total, 1)
            assert np.all(np.abs(averages(found, total, fraction) - exact) <= 0.5), (weights, v)
    assert averages(np.array([3, -3, 1, -1]), 2, 0).tolist() == [2, -1, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 15])
@pytest.mark.parametrize("r", [1, 2])
def test_equal_to_the_integer_attention_of_the_cpu(tmp_path: Path, bits: int, r: int) -> None:
    """What that kernel gives in float32 follows from the core's sums and normalizers to the bit."""
    pytest.importorskip("tvm")
    from softq.codegen.cpu import machines
    from tests.test_native_attention_integer import Attention

    settings = {**EQUAL, "r": r, "weight_bits": bits}
    values = ValueSettings(8, 4, outputs=("sums", "normalizer"))
    made = rtl_with_values("deferred-log", values, settings, length=20, rows=1, seed=3)
    check(tmp_path, made, "iverilog", ((100, 100),))
    method = METHODS.get("deferred-log")
    program = method.program(method.resolve(method.configure({**settings, "step": 0}), False), scores=DType.F32)
    attention = Attention(program, machines.host("cpu", "native", ""))
    unit, found = np.float32(0.02), 0
    for number, (scores, v, results) in enumerate(rows_of(made.beats, values, made.core.plan.padded)):
        q, k = np.ones((1, 1, 1, 1), np.int8), scores.reshape(1, 1, -1, 1)
        result = attention(q, k, v[None, None], None, (np.float32(STEP), unit))
        normalizer = np.float32(made.beats.numbers[number])
        np.testing.assert_array_equal(result[0, 0, 0], results.astype(np.float32) * unit / normalizer)
        found += 1
    assert found == len(made.beats.numbers)


def rows_of(
    beats: ValueBeats, values: ValueSettings, bits: int
) -> Iterator[tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int64]]]:
    """Yield scores, V and sums, of so many bits, of the rows."""
    begin, sign = 0, 1 << (bits - 1)
    for number, end in enumerate(at + 1 for at, word in enumerate(beats.scores) if word >> 8):
        scores = np.array([word & 0xFF for word in beats.scores[begin:end]], np.uint8).view(np.int8)
        words = beats.values[values.chunks * begin : values.chunks * end]
        v = np.frombuffer(b"".join(word.to_bytes(values.lanes, "little") for word in words), np.int8)
        results = beats.results[number * values.width : (number + 1) * values.width]
        signed = [((word ^ sign) & (2 * sign - 1)) - sign for word in results]
        yield scores, v.reshape(-1, values.width), np.array(signed, np.int64)
        begin = end


def test_says_how_many_clocks_a_row_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stated latency and the stated distance of rows are those of the simulation."""
    rng = np.random.default_rng(1)
    for number, (values, method) in enumerate(
        (
            (ValueSettings(4, 4), "deferred-log"),
            (ValueSettings(8, 2, 3), "ita"),
            (ValueSettings(2, 1, outputs=("sums",)), "deferred-log"),
        )
    ):
        for length in (1, 32):
            row = Row("random", rng.integers(-128, 128, length, np.int8), np.ones(length, np.bool_))
            found: list[int] = []
            for count in (1, 5, 9):
                monkeypatch.setattr(weighted, "choose", lambda *_, rows=[row] * count: rows)
                made = rtl_with_values(method, values, {"step": STEP}, length=32)
                folder = tmp_path / f"{number}_{length}_{count}"
                write_rtl(made, folder)
                said = simulate(folder, compile_core(folder, made.core.name, "iverilog"))
                assert said.startswith("PASS"), said
                found.append(int(said.split()[-2]))
            assert found[0] == made.core.latency(length), (values, length)
            assert found[2] - found[1] == 4 * made.core.interval(length), (values, length)


def test_a_wrong_weight_is_found(tmp_path: Path) -> None:
    """The testbench fails where one shift is another."""
    made = rtl_with_values("deferred-log", ValueSettings(2, 2), {**EQUAL, "r": 1}, length=16, rows=2)
    write_rtl(made, tmp_path)
    file = tmp_path / "deferred_log_values.v"
    changed = re.sub(r"(4'h3: table_\d+ = 5'h)1b", r"\g<1>1a", file.read_text())
    assert changed != file.read_text()
    file.write_text(changed)
    assert "FAIL" in simulate(tmp_path, compile_core(tmp_path, "deferred_log_values", "iverilog"))


def test_the_command_writes_the_same_bytes(tmp_path: Path) -> None:
    """Two runs of the command write the same files, and the description names what the module has."""
    for name in ("a", "b"):
        arguments = ["rtl", "deferred-log", "--set", f"step={STEP}", "--length", "16", "--rows", "1", "--values", "6"]
        arguments += ["--value-lanes", "2", "--fraction", "4", "--outputs", "averages,normalizer", "--out"]
        done = CliRunner().invoke(main, [*arguments, str(tmp_path / name)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    facts = json.loads((tmp_path / "a" / "deferred_log_values.json").read_text())
    assert facts["outputs"]["averages"] == {"bits": 12, "signed": True, "field": 16, "fraction": 4}
    text = (tmp_path / "a" / "deferred_log_values.v").read_text().split("\nmodule ")[-1]
    for port in facts["ports"]:
        assert re.search(rf"(input|output) wire (\[{port['width'] - 1}:0\] )?{port['name']}\b", text), port


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["deferred-log", "--values", "0"], "values is 0"),
        (["deferred-log", "--values", "6", "--value-lanes", "4"], "divides 6"),
        (["deferred-log", "--values", "6", "--fraction", "17"], "fraction is 17"),
        (["deferred-log", "--values", "6", "--lanes", "2"], "one score in a beat"),
        (["deferred-log", "--values", "6", "--no-constants"], "cut or left out"),
        (["deferred-log", "--values", "6", "--outputs", "codes"], "outputs with V are codes"),
        (["deferred-log", "--values", "6", "--outputs", "sums,averages"], "outputs with V are sums, averages"),
        (["deferred-log", "--fraction", "3"], "--values is missing"),
        (["qlinear", "--values", "6"], "is a float"),
        (["sigmoid", "--values", "6"], "sum of the weights"),
    ],
)
def test_refuses(tmp_path: Path, arguments: list[str], said: str) -> None:
    """What a core with V cannot be is one line that names it."""
    steps = [] if arguments[0] == "qlinear" else ["--set", f"step={STEP}"]
    done = CliRunner().invoke(main, ["rtl", *arguments, *steps, "--out", str(tmp_path / "core")])
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "core").exists()
