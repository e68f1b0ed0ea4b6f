"""Golden vectors against kernels of another origin: C written by hand, onnxruntime, and exact arithmetic."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from softq.cli import main
from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Kind, Trace
from softq.vectors import Vectors, vectors
from softq.vectors.tolerance import bounds, loose_outputs
from softq.vectors.writing import _array, to_header
from tests.rowhost import session, whole

ALL = sorted(METHODS.entries())
SMALL = (0, 1, 2, 5)
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
Array = NDArray[np.generic]


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def small(name: str, scores: str = "f32", **more: object) -> Vectors:
    settings = {} if scores == "f32" else {"step": 0.0625}
    return vectors(name, settings, scores=scores, rows=3, **{"lengths": SMALL, **more})  # pyright: ignore[reportArgumentType]


def compiled(folder: Path, source: str, *flags: str) -> subprocess.CompletedProcess[bytes]:
    """Return what a C program prints that was compiled in a folder with all warnings as errors."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "main.c").write_text(source, encoding="utf-8")
    command = [compiler, *STRICT, *flags, "-o", str(folder / "main"), str(folder / "main.c")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return subprocess.run([str(folder / "main")], capture_output=True, check=False)


# The arrays


@pytest.mark.quick_cases(25)
@pytest.mark.parametrize(("name", "masked"), [*((name, True) for name in ALL), ("exact", False), ("i-exp", False)])
def test_every_method_has_vectors_that_another_runtime_keeps(name: str, masked: bool) -> None:
    from softq.rowprog.onnx import to_model

    made = small(name, masked=masked)
    program, arrays = made.program, made.arrays
    # Outputs that depend on whether a product and a sum are fused are those of onnxruntime as well as of a kernel.
    host = session(whole(to_model(program, shape=("r", "N"), outputs=list(program.outputs)), program))
    seen = 0
    for at, (offset, length) in enumerate(zip(arrays["offset"].tolist(), arrays["length"].tolist(), strict=True)):
        if length == 0:
            continue
        span = slice(offset, offset + length)
        feed = {"scores": arrays["scores"][None, span]}
        if masked:
            feed["valid"] = arrays["valid"][None, span].astype(np.bool_)
        for output, found in zip(program.outputs, host.run(None, feed), strict=True):
            if arrays["has_nan"][at] and output != made.decisive:
                continue
            where = span if program.outputs[output].kind is Kind.ROW else slice(at, at + 1)
            low, high = (arrays.get(f"{output}_{end}", arrays[output])[where] for end in ("low", "high"))
            y = np.asarray(found)[0]
            allowed = (low <= y) & (y <= high) | (np.isnan(y) & np.isnan(low.astype(np.float64)))
            assert np.all(allowed), (output, at, feed, low, y, high)
            seen += 1
    assert seen > 60


@pytest.mark.quick_cases(50)
@pytest.mark.parametrize(
    ("name", "scores"),
    [(name, scores) for name in ALL for scores in ("f32", "i8", "u8")[: 3 if METHODS.get(name).integer_scores else 1]],
)
def test_every_row_lies_where_it_is_said_to(name: str, scores: str) -> None:
    made = small(name, scores, masked=True)
    arrays, total = made.arrays, int(made.arrays["length"].sum())
    assert arrays["offset"].tolist() == [int(arrays["length"][:i].sum()) for i in range(arrays["length"].size)]
    assert set(arrays["length"].tolist()) == set(SMALL)
    kinds = made.manifest["kinds"]
    assert isinstance(kinds, list)
    assert set(arrays["kind"].tolist()) == set(range(len(kinds)))
    for output, node in made.program.outputs.items():
        expected = total if node.kind is Kind.ROW else arrays["length"].size
        assert arrays[output].shape == (expected,)
        assert arrays[output].dtype == node.dtype.numpy
    assert arrays["scores"].shape == arrays["valid"].shape == (total,)
    # What is to break kernels is there: a fully masked row, and of floats infinities, a NaN and one under a mask.
    sums = [int(arrays["valid"][o : o + n].sum()) for o, n in zip(arrays["offset"], arrays["length"], strict=True) if n]
    assert 0 in sums
    if scores == "f32":
        nan, on = np.isnan(arrays["scores"].astype(np.float64)), arrays["valid"].astype(np.bool_)
        assert np.any(nan & on)
        assert np.any(nan & ~on)
        assert np.any(np.isposinf(arrays["scores"].astype(np.float64)))
        assert np.any(np.isneginf(arrays["scores"].astype(np.float64)))


def test_integer_scores_have_every_distance_and_float_ones_both_sides_of_each_code() -> None:
    made = vectors("deferred-log", {"step": 0.1, "bits": 3, "r": 1}, scores="u8", lengths=[2], rows=0)
    pairs = made.arrays["scores"].reshape(-1, 2).astype(np.int64)
    assert set((pairs.max(axis=1) - pairs.min(axis=1)).tolist()) == set(range(256))
    floats = vectors("deferred-log", {"bits": 3, "r": 1, "steps": "equal"}, lengths=[2], rows=0)
    kinds = floats.manifest["kinds"]
    assert isinstance(kinds, list)
    rows = floats.arrays["kind"] == kinds.index("telling distances")
    d = -floats.arrays["scores"].reshape(-1, 2)[rows, 1].astype(np.float32)
    codes = floats.arrays["codes"].reshape(-1, 2)[rows, 1]
    log2_e = np.float32(math.log2(math.e))
    for code in range(7):
        # The product rounded to f32, and the tie to even: by rational arithmetic.
        below, above = np.max(d[codes == code]), np.min(d[codes == code + 1])
        assert np.nextafter(below, np.float32(np.inf)) == above
        at = [float(np.float32(float(Fraction(float(v)) * Fraction(float(log2_e))))) for v in (below, above)]
        assert [round(v) for v in at] == [code, code + 1]


def test_fitted_numbers_are_parameters() -> None:
    made = vectors("deferred-log", {"bits": 3, "r": "site", "steps": "equal"}, fitted={"r": 0.61}, lengths=[9])
    plain = vectors("deferred-log", {"bits": 3, "r": 0.61, "steps": "equal"}, lengths=[9])
    assert made.arrays["given_weights"].tolist() == [round(2**14 * 2 ** (-c / 0.61)) for c in range(7)] + [0]
    assert np.array_equal(made.arrays["weights"], plain.arrays["weights"])
    assert np.array_equal(made.arrays["scores"], plain.arrays["scores"], equal_nan=True)
    for settings, fitted, message in [
        ({"r": "site"}, {}, "has fitted numbers: r=X; given is nothing"),
        ({"r": 1}, {"r": 2.0}, "has fitted numbers: nothing; given is r"),
        ({"r": "head"}, {"r": 2.0}, "vectors are of one head: r=site"),
        ({"r": "site"}, {"r": 9999.0}, "fitted r is 9999.0; allowed is"),
    ]:
        with pytest.raises(UsageError, match=message):
            vectors("deferred-log", {"steps": "equal", **settings}, fitted=fitted)


def test_bounds_are_as_wide_as_the_freedom_and_no_wider() -> None:
    t = Trace("toy", structure="", scores=DType.F32, masked=False, contract=False)
    total = t.row_sum(t.scores)
    program = t.program(
        probabilities=t.scores * t.const(0.5, DType.F32), sum=total, code=t.cast(t.rint(total), DType.U32)
    )
    assert loose_outputs(program) == ("sum", "code")
    x = np.array([[1.0, 1.5], [1.0, 1.25]], np.float32)
    found = bounds(program, x, valid=None, params={})
    assert [v[:, 0].tolist() for v in found["code"]] == [[2, 2], [3, 2]]  # 2.5 lies between two codes, 2.25 does not
    low, high = (v[:, 0].astype(np.float64) for v in found["sum"])
    assert np.all((2**-23 < 1 - low / [2.5, 2.25]) & (1 - low / [2.5, 2.25] < 2**-19))
    assert np.all((2**-23 < high / [2.5, 2.25] - 1) & (high / [2.5, 2.25] - 1 < 2**-19))
    contracting = Trace("toy", structure="", scores=DType.F32, masked=False, contract=True)
    x2 = contracting.scores * contracting.scores
    fused = contracting.program(probabilities=x2 - contracting.const(1.0, DType.F32))
    near_one = np.array([[1 + 2**-12]], np.float32)
    low, high = bounds(fused, near_one, valid=None, params={})["probabilities"]
    # Fused, the product keeps its last bit, 2^-24, which the rounded one loses.
    exact = Fraction(float(near_one[0, 0])) ** 2 - 1
    assert Fraction(float(low[0, 0])) <= exact <= Fraction(float(high[0, 0]))
    assert exact != Fraction(float(near_one[0, 0] * near_one[0, 0])) - 1


# The header

KERNEL = r"""
#include <stdio.h>
#include "vectors.h"
#define X(name) softq_deferred_log_b4_r1_s0p1_i8_valid_##name

int main(void)
{
    unsigned bad = 0;
    for (unsigned r = 0; r < SOFTQ_DEFERRED_LOG_B4_R1_S0P1_I8_VALID_ROWS; r++) {
        const int8_t *x = X(scores) + X(offset)[r];
        const uint8_t *on = X(valid) + X(offset)[r];
        uint32_t sum = 0, n = X(length)[r];
        int greatest = -128;
        for (uint32_t j = 0; j < n; j++)
            if (on[j] && x[j] > greatest)
                greatest = x[j];
        for (uint32_t j = 0; j < n; j++) {
            /* round(d * 0.1 * log2(e)), half up, as a fraction of 2^21 */
            int code = ((greatest - x[j]) * 302555 + (1 << 20)) >> 21;
            uint32_t w;
            if (code > CLAMP || !on[j])
                code = 15;
            w = code == 15 ? 0u : 16384u >> code;
            sum += w;
            bad += w != X(weights)[X(offset)[r] + j];
            bad += code != X(codes)[X(offset)[r] + j];
        }
        bad += sum != X(normalizer)[r];
    }
    printf("%u\n", bad);
    return bad != 0;
}
"""


def test_a_kernel_written_by_hand_equals_the_vectors_and_a_broken_one_does_not(tmp_path: Path) -> None:
    options = ["--dtype", "int8", "--set", "step=0.1", "--set", "r=1", "--masked"]
    assert softq("vectors", "deferred-log", str(tmp_path / "vectors"), *options).exit_code == 0
    right = compiled(tmp_path, KERNEL, "-DCLAMP=15")
    assert (right.returncode, right.stdout) == (0, b"0\n")
    for right_text, wrong in [
        ("<< 20)) >> 21", ">> 20)) >> 21"),
        ("302555", "302000"),
        ("if (on[j] && x[j]", "if (x[j]"),
        ("uint32_t sum = 0, n", "uint16_t sum = 0; uint32_t n"),
        ("|| !on[j]", ""),
        ("> greatest)", "< greatest)"),
    ]:
        assert right_text in KERNEL
        broken = KERNEL.replace(right_text, wrong).replace("CLAMP", "15")
        assert compiled(tmp_path, broken).returncode == 1


def test_literals_of_all_methods_give_back_the_same_bits(tmp_path: Path) -> None:
    made: list[Vectors] = []
    source = "#include <stdio.h>\n"
    body = ""
    for number, name in enumerate(ALL):
        integers = METHODS.get(name).integer_scores
        made.append(small(name, "i8" if integers else "f32", masked=True, lengths=(0, 3)))
        text = to_header(made[-1])
        (tmp_path / f"{number}.h").write_text(text, encoding="utf-8")
        # Twice, as headers are.
        source += f'#include "{number}.h"\n#include "{number}.h"\n'
        arrays = [line.split("[")[0].split()[-1] for line in text.splitlines() if line.startswith("static const")]
        body += "".join(f"    fwrite({a}, 1, sizeof {a}, stdout);\n" for a in arrays if not a.endswith("_kinds"))
    printed = compiled(tmp_path, f"{source}int main(void)\n{{\n{body}    return 0;\n}}\n").stdout
    at = 0
    for array in (array for each in made for array in each.arrays.values()):
        values = array.reshape(-1)
        back = np.frombuffer(printed[at : at + values.nbytes], values.dtype)
        at += values.nbytes
        numbers = ~np.isnan(values.astype(np.float64))
        assert np.array_equal(np.isnan(back.astype(np.float64)), ~numbers)
        assert back[numbers].tobytes() == values[numbers].tobytes()
    assert at == len(printed)


def test_the_least_integers_of_each_width_are_literals(tmp_path: Path) -> None:
    extremes = {f"x{d.value}": np.array([d.low, d.high], d.numpy) for d in DType if d.is_integer}
    floats = np.array([-0.0, 1e-45, -3.4028235e38, math.inf, -math.inf, 0.1, 2**-126], np.float32)
    arrays = {"scores": floats, "length": small("deferred-log").arrays["length"], **extremes}
    lines = [line for name, values in arrays.items() for line in _array(name, values, "some values")]
    checks = [f"x{d.value}[0] == {'U' * (not d.is_signed)}INT{d.bits}_{'MIN' if d.is_signed else 'C(0)'}" for d in DType
              if d.is_integer]  # fmt: skip
    checks += [f"x{d.value}[1] == {'U' * (not d.is_signed)}INT{d.bits}_MAX" for d in DType if d.is_integer]
    checks += ["1 / scores[0] == -INFINITY", "scores[1] == 0x1p-149f", "scores[2] == -FLT_MAX", "scores[5] == 0.1f",
               "scores[3] == INFINITY", "scores[4] == -INFINITY", "scores[6] == FLT_MIN", "length[0] == 0"]  # fmt: skip
    body = "\n".join(f'    if (!({check})) {{ puts("{check}"); bad = 1; }}' for check in checks)
    source = "#include <float.h>\n#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n" + "\n".join(lines)
    ran = compiled(tmp_path, f"{source}\nint main(void)\n{{\n    int bad = 0;\n{body}\n    return bad;\n}}\n")
    assert (ran.returncode, ran.stdout) == (0, b"")


# The command


def test_the_files_say_what_they_are_and_are_the_same_again(tmp_path: Path) -> None:
    for out in ("a", "b"):
        ran = softq(
            "vectors", "i-exp", str(tmp_path / out), "--bits", "6", "--length", "7", "--rows", "4", "--seed", "3"
        )
        assert ran.exit_code == 0, ran.output
        assert f"wrote {tmp_path / out}.npz and {tmp_path / out}.h" in ran.stdout
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert (tmp_path / "a.h").read_bytes() == (tmp_path / "b.h").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        manifest = json.loads(str(found["manifest"]))
        assert set(found["length"].tolist()) == {7}
        assert {"scores", "weights", "normalizer"} <= set(found)
    assert manifest["method"] == "i-exp"
    assert manifest["options"]["bits"] == 6
    assert manifest["outputs"]["weights"] == {"type": "u32", "kind": "row", "compare": "bits"}
    assert manifest["program"].startswith("program i-exp b6")
    # A comment's lines are broken where they are full.
    header = " ".join((tmp_path / "a.h").read_text(encoding="utf-8").replace("\n *", " ").split())
    for text in ("bits=6", manifest["softq"], manifest["source"], "How to compare", "row u32 = cast"):
        assert text in header
    shown = json.loads(softq("vectors", "i-exp", str(tmp_path / "c"), "--length", "2", "--json").stdout)
    assert shown["schema"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope", "x"], "unknown method 'nope'; softq methods lists all"),
        (["exact", "x", "--dtype", "int8"], "method exact takes float32 scores only, not int8"),
        (["i-exp", "x", "--dtype", "int8"], "i8 scores with step=0"),
        (["exact", "x", "--dtype", "f16"], "scores are 'f16'; allowed is float32 or int8 or uint8"),
        (["exact", "x", "--bits", "4"], "method exact has no option 'bits'"),
        (["log2", "x", "--bits", "9"], "log2 bits is 9; allowed is a whole number from 2 to 6"),
        (["log2", "x", "--set", "bits"], "--set 'bits'; expected KEY=VALUE"),
        (["deferred-log", "x", "--set", "r=site", "--fitted", "r=far"], "--fitted r=far; expected a number"),
        (["exact", "x", "--length", "-1"], "lengths are [-1]; expected at least one, none below 0"),
        (["exact", "x", "--rows", "-1"], "rows is -1"),
        (["exact", "x", "--seed", "-1"], "seed is -1"),
        (["exact", "x", "--length", "9999999"], "are more than 4,194,304 scores"),
        (["xnn-qu8", "x", "--length", "70000"], "row_sum"),
        (["exact", "x.npz"], "give the name without its ending"),
        (["exact", "absent/x"], "cannot write 'absent/x.npz': No such file or directory"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = softq("vectors", *arguments)
    assert found.exit_code == 2, found.output
    assert found.stderr.startswith("softq: ")
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("old", [False, True])
def test_both_files_are_written_or_neither(old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if old:
        (tmp_path / "x.npz").write_text("old")
    (tmp_path / "x.h").mkdir()  # takes no file
    found = softq("vectors", "exact", str(tmp_path / "x"), "--length", "2")
    assert found.exit_code == 2
    assert "cannot write" in found.stderr
    assert sorted(os.listdir(tmp_path)) == ["x.h", "x.npz"][: 1 + old]
    if old:
        assert (tmp_path / "x.npz").read_text() == "old"
