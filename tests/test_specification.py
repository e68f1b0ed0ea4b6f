"""What `softq methods` says, against numbers worked out by hand from the definitions of the methods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.errors import UsageError
from softq.methods import METHODS, Options, option
from softq.rowprog import DType, Trace, Value
from softq.specification import describe_method, methods_to_text
from softq.specification.kernels import SCALE, kernel

INTEGER_ONLY = {
    "deferred-log", "e2softmax", "exaq", "i-exp", "index-softmax", "ita", "log-int", "shiftmax", "softermax",
    "tflite-int16", "tflite-int8", "xnn-qu8",
}  # fmt: skip
FLOAT = {"exact", "uniform", "log2", "adalog", "minifloat", "qlinear", "bias-corrected", "log-sqrt2"}


def softq(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def facts(name: str, length: int = 1024) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", describe_method(METHODS.get(name), length))


def test_the_list_has_a_line_a_method_with_what_a_chip_maker_asks() -> None:
    plain = softq("methods").stdout.splitlines()
    assert plain[0].split() == ["method", "use", "bits", "integer-only", "calibration", "what", "it", "is"]
    listed = softq("methods", "--length", "1024").stdout.splitlines()
    assert listed[0].split()[5:8] == ["widest", "longest", "row"]
    lines = {line.split()[0]: line for line in listed[1 : 1 + len(METHODS.entries())]}
    assert set(lines) == set(METHODS.entries())
    assert lines["deferred-log"].split()[1:9] == ["drop-in", "2-8", "yes", "optional", "25", "/", "29", "262,143"]
    assert lines["exact"].split()[1:5] == ["drop-in", "32", "fixed", "no"]
    for name, method in METHODS.entries().items():
        assert lines[name].endswith(method.summary)


def test_json_has_every_method_as_the_library_describes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = json.loads(softq("methods", "ita", "--json", "--length", "77").stdout)
    assert printed == {"schema": 1, "methods": [json.loads(json.dumps(facts("ita", 77)))]}
    # Every method by itself takes seconds in all.
    monkeypatch.setattr("softq.specification.describe_method", lambda method, length: [method.name, length])  # pyright: ignore[reportUnknownLambdaType]
    for arguments, length in (((), 1024), (("--length", "77"), 77)):
        printed = json.loads(softq("methods", "--json", *arguments).stdout)
        assert printed == {"schema": 1, "methods": [[name, length] for name in METHODS.entries()]}


def test_integer_only_is_found_in_the_program() -> None:
    takers = {name: method for name, method in METHODS.entries().items() if method.integer_scores}
    found = {name for name, method in takers.items() if kernel(method, DType.I8, 1).is_integer}
    assert found >= INTEGER_ONLY
    assert not found & FLOAT
    assert facts("i-exp")["integer_only"]
    assert not facts("exact")["integer_only"]
    method = METHODS.get("i-exp")

    def through_floats(t: Trace, options: Options) -> Mapping[str, Value]:
        out = dict(method.trace(t, options))
        return out | {"weights": t.cast(t.cast(out["weights"], DType.F32), DType.U32)}

    assert not describe_method(replace(method, trace=through_floats))["integer_only"]


def test_the_scale_of_integer_scores_is_given_only_where_a_method_asks_for_one() -> None:
    assert kernel(METHODS.get("i-exp"), DType.I8, 1).options.to_json()["step"] == SCALE
    assert kernel(METHODS.get("ita"), DType.I8, 1).options.to_json()["step"] == "auto"
    with pytest.raises(UsageError, match="method exact takes float32 scores only, not int8"):
        kernel(METHODS.get("exact"), DType.I8, 1)


@pytest.mark.parametrize(("name", "expected"), [
    ("deferred-log", {"low": 2, "high": 8, "default": 4}),
    ("ita", {"fixed": 9, "type": "u16"}),  # 2^8 for 1
    ("tflite-int8", {"fixed": 20, "type": "i32"}),  # Q12.19 up to 2^19
    ("exact", {"fixed": 32, "type": "f32"}),
])  # fmt: skip
def test_bits(name: str, expected: dict[str, object]) -> None:
    assert facts(name)["bits"] == expected


@pytest.mark.parametrize("length", [1, 1024, 4096, 100_000])
def test_the_widest_integer_grows_with_the_row(length: int) -> None:
    found = facts("deferred-log", length)
    # Weights of at most 2^14 and their sum; of 8-bit scores d * M + 2^19, too, d = 255 and M = log2(e) 2^20.
    assert found["widest_integer_bits"] == (2**14 * length).bit_length()
    product = 255 * 1_512_775 + 2**19
    assert found["kernels"]["i8"]["widest_integer_bits"] == max((2**14 * length).bit_length(), product.bit_length())
    assert found["widest_integer_for_length"] == length
    assert found["largest_length"] == found["kernels"]["i8"]["largest_length"] == (2**32 - 1) // 2**14


def test_a_row_that_could_overflow_is_refused_by_name() -> None:
    found = softq("methods", "deferred-log", "--length", "262144")
    assert found.exit_code == 2
    assert (
        "method deferred-log: a row of 262,144 elements of type f32 could overflow; proved are rows of up to 262,143"
        in (found.stderr)
    )
    assert softq("methods", "deferred-log", "--length", "262143").exit_code == 0
    line = next(line for line in methods_to_text(262_144).splitlines() if line.startswith("deferred-log "))
    assert "refused / refused" in line
    facts = json.loads(softq("methods", "deferred-log", "--length", "262144", "--json").stdout)["methods"][0]
    assert facts["widest_integer_bits"] is None
    assert facts["largest_length"] == 262_143
    assert softq("methods", "--length", "0").exit_code == 2


def test_the_text_has_the_shapes_of_fitted_numbers() -> None:
    """One number for each head has axes of queries and of elements; one for the whole site has none."""
    lines = [line.split() for line in softq("methods", "bias-corrected").stdout.splitlines()]
    assert ["in", "zero_point", "f32", "[heads,", "1,", "1]"] in [words[:6] for words in lines]
    lines = [line.split() for line in softq("methods", "deferred-log").stdout.splitlines()]
    assert ["in", "weights", "u32", "[16]", "in"] in [words[:5] for words in lines]


def test_what_a_stream_waits_for_is_told() -> None:
    assert facts("deferred-log")["kernels"]["f32"]["stream"] == {"passes": 2, "waits_for_length": None}
    assert "as a stream    f32 scores: 2 passes; i8 scores: 2 passes\n" in softq("methods", "deferred-log").stdout
    told = softq("methods", "sigmoid").stdout
    assert "i8 scores: 2 passes, %9: row i64 = mul %6, %8 waits for the length\n" in told


def test_special_values_are_those_of_the_program() -> None:
    cases = {case["row"]: case for case in facts("deferred-log")["special_values"]}
    assert cases["all equal"]["outputs"] == {"weights": [16384] * 4, "normalizer": [65536], "codes": [0] * 4}
    assert cases["a NaN"]["outputs"] == {"weights": None, "normalizer": ["nan"], "codes": None}
    assert cases["fully masked"]["outputs"] == {"weights": [0, 0], "normalizer": [0], "codes": [15, 15]}
    assert cases["+inf"]["outputs"]["weights"] == [16384, 0, 0, 16384]
    assert cases["empty"]["outputs"] == {"weights": [], "normalizer": [0], "codes": []}
    # Another program, other values.
    assert {c["row"]: c["outputs"] for c in facts("log2")["special_values"]}["fully masked"]["probabilities"] == [
        "nan"
    ] * 2


def test_the_specification_has_interface_special_values_and_both_programs() -> None:
    shown = softq("methods", "deferred-log").stdout
    options = METHODS.get("deferred-log").resolve(METHODS.get("deferred-log").configure({}), False)
    form = options.structure
    of_bytes = replace(options, step=0.0625).structure  # pyright: ignore[reportCallIssue]
    for text in (
        "c = min(rint((max - x) * r * log2 e), 2^b - 1)",
        f"ONNX function softq::DeferredLog_{form}(scores) -> (weights, normalizer), float32",
        "ONNX function softq::DeferredLog_b4_rsite_growing_byte(scores, given_weights, given_codes) -> ",
        f"program deferred-log {form}(scores: row f32)",
        " step=0.0625 (widest integer 29 bits, longest row 262,143):",
        f"program deferred-log {of_bytes}(scores: row i8)",
        "masked, with a NaN and +inf under the mask  0 (nan) 0 (inf)  16384 0 16384 0",
    ):
        assert text in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["out", "weights", "u32", "[...,", "N]", "in", "[0,", "16384]"] in lines
    assert ["out", "normalizer", "f32", "[...,", "1]", "in", "[0.0,", "16777216.0]", "or", "NaN"] in lines


def test_a_method_of_another_package_that_names_its_scale_otherwise_says_what_is_missing() -> None:
    @dataclass(frozen=True)
    class Named(Options):
        unit: object = option("auto", "its scale", low=0.0, high=1.0, words=("auto",))

    def trace(t: Trace, options: Options) -> Mapping[str, Value]:
        raise UsageError("toy: unit is missing")

    toy = replace(
        METHODS.get("ita"), name="toy", options=Named, trace=trace, resolve=lambda options, calibrated: options
    )
    with pytest.raises(UsageError, match="toy: unit is missing"):
        kernel(toy, DType.I8, 1)


@pytest.mark.parametrize("name", sorted(INTEGER_ONLY))
def test_an_integer_only_method_takes_float_scores_and_integer_ones_with_a_scale(name: str) -> None:
    method = METHODS.get(name)
    for scores in (DType.F32, DType.I8, DType.U8):
        program = method.program(method.resolve(method.configure({"step": SCALE}), False), scores=scores)
        assert program.is_pair
        # Floats end at the rounding: weights are integers whatever the scores are.
        assert program.outputs["weights"].dtype.is_integer
        assert program.outputs["normalizer"].dtype.is_integer != scores.is_float
        kernel(method, scores, 4096)
