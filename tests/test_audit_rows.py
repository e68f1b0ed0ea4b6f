"""Rows that an audit asks for reach every sum that matters, and its texts are sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.audit import audit
from softq.audit.checks import checks_in_order
from softq.audit.records import IDENTIFICATION, Audit, Step
from softq.audit.rows import long_rows, sum_rows
from softq.audit.subject import Subject
from softq.audit.task import UNIT_RESULTS, Encoding
from softq.audit.writing import summary
from softq.errors import InputError
from softq.wording import in_units

BROKEN = Path(__file__).with_name("broken_softmax.py")


def subject(dtype: str, scale: float) -> Subject:
    return Subject(None, dtype, Encoding(dtype, scale, 0), UNIT_RESULTS[dtype], 2.0, any_axis=False)


def distances(dtype: str, x: NDArray[np.generic]) -> NDArray[np.int64]:
    return int(np.iinfo(dtype).max) - x.astype(np.int64)


@pytest.mark.parametrize(("dtype", "scale", "length"), [("int8", 0.05, 197), ("uint8", 0.0625, 40), ("int8", 1.0, 64)])
def test_rows_reach_every_code_that_an_element_at_each_distance_can_have(dtype: str, scale: float, length: int) -> None:
    rows, left_out = sum_rows(subject(dtype, scale), length)
    assert rows.shape[1] == length
    assert left_out < 0.02 * len(rows)
    d = distances(dtype, rows)
    assert np.all(d.min(-1) == 0)
    weights = np.exp(-scale * d.astype(np.float64))
    sums = weights.sum(-1)
    # Between the least sum with such an element, the others at the bottom, and the greatest, the others at the top.
    bottom = np.exp(-scale * 255)
    for distance in range(256):
        there = np.any(d == distance, -1)
        w = float(np.exp(-scale * distance))
        least, most = 1 + w + (length - 2) * bottom, length - 1 + w
        for rounded in (np.rint, np.floor):
            codes = set(np.minimum(rounded(256 * w / sums[there]), 255).astype(int).tolist())
            possible = range(int(rounded(256 * w / most)) + 1, int(rounded(256 * w / least * 0.998)) + 1)
            assert codes.issuperset(min(code, 255) for code in possible), distance


def test_rows_reach_each_of_256_mantissas_between_powers_of_two() -> None:
    rows, _ = sum_rows(subject("int8", 0.05), 197)
    sums = np.sort(np.exp(-0.05 * distances("int8", rows)).sum(-1))
    wanted = np.outer(2.0 ** np.arange(8), 1 + np.arange(256) / 256).ravel()
    wanted = wanted[(wanted > 1.001) & (wanted <= 197)]
    nearest = np.minimum(np.searchsorted(sums, wanted), sums.size - 1)
    off = np.minimum(np.abs(sums[nearest] - wanted), np.abs(sums[nearest - 1] - wanted)) / wanted
    assert off.max() <= 2**-11
    # Without them there are holes of several percent.
    few = np.sort(
        np.exp(-0.05 * distances("int8", long_rows(subject("int8", 0.05), 197, np.random.default_rng(0))[1])).sum(-1)
    )
    assert np.diff(few[few > 4]).max() / 4 > 0.01


def test_sums_that_no_row_has_are_counted() -> None:
    # With a scale of 0.01 an element at the bottom weighs 0.078: 195 of them 15.
    rows, left_out = sum_rows(subject("int8", 0.01), 197)
    assert np.exp(-0.01 * distances("int8", rows)).sum(-1).min() > 16
    assert left_out > len(rows)


def test_one_wrong_reciprocal_of_256_is_found(tmp_path: Path) -> None:
    given = {"of": f"{BROKEN}:one_reciprocal"}
    made = audit("function", tmp_path, options=given, dtype="int8", only=("values",))
    values = made.step("values")
    assert values is not None
    assert [fault.kind for fault in values.faults] == ["value"]
    assert "of 197" in values.faults[0].text
    # Neither pairs nor the other rows show it.
    assert [values.facts[part]["beyond_tolerance"] for part in ("pairs", "rows")] == [0, 0]
    assert values.facts["sums"]["beyond_tolerance"] > 0
    assert values.facts["sums_left_out"] < 50


def test_one_unit_is_no_units(tmp_path: Path) -> None:
    assert [in_units(number) for number in (0.0, 0.5, 1.0, 2.0)] == ["0 units", "0.5 units", "1 unit", "2 units"]
    # All but the search for the method, whose words have no numbers of one.
    only = [check.name for check in checks_in_order()]
    audit("function", tmp_path, options={"of": f"{BROKEN}:wraps"}, dtype="int8", length=40, longest=64, only=only)
    text = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert " 1 element " in text
    assert " 1 units" not in text
    assert " 1 elements" not in text
    assert " 1 rows" not in text


def test_what_a_runtime_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    own = tmp_path / "refusing.py"
    for body, words in (
        ("raise ValueError('rows are too long for me')", "softmax of float32: rows are too long for me"),
        ("return {}['kernel']", "softmax of float32: KeyError: 'kernel'"),
    ):
        own.write_text(f"def softmax(x, axis):\n    {body}\n", encoding="utf-8")
        with pytest.raises(InputError, match=words):
            audit("function", tmp_path / "out", options={"of": f"{own}:softmax"})


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("scale", "length"), [(0.0001, 40), (0.05, 3000), (0.05, 3)])
def test_odd_scales_and_lengths_have_rows_that_are_possible(scale: float, length: int, tmp_path: Path) -> None:
    given = {"of": f"{BROKEN}:right"}
    scores = Encoding("int8", scale, 0)
    made = audit("function", tmp_path, options=given, dtype="int8", scores=scores, length=length, only=("values",))
    values = made.step("values")
    assert values is not None
    sums = values.facts["sums"]
    assert sums["elements"] == sums["rows"] * min(length, 512)
    assert (sums["rows"] < values.facts["sums_left_out"]) == (scale < 0.001 or length < 4)


def test_methods_that_give_the_same_bits_are_all_named() -> None:
    def candidate(name: str, equal: bool) -> dict[str, object]:
        return {"method": name, "options": {"bits": 4}, "rounding": "", "is_equal": equal, "equal": 0.5, "greatest": 2}

    def sentence(*candidates: dict[str, object]) -> str:
        steps = (Step(IDENTIFICATION, "Method", 1.0, {"candidates": list(candidates)}, ()),)
        ((title, text),) = summary(Audit({}, steps, ()))
        assert title == "Method"
        return text

    one, two, three = (candidate(name, True) for name in ("a", "b", "c"))
    other = candidate("d", False)
    assert sentence(one, other) == "a(bits=4), equal to the bit"
    assert sentence(one, two, other) == "a(bits=4), equal to the bit; b(bits=4) cannot be told from it"
    assert sentence(one, two, three).endswith("; b(bits=4), c(bits=4) cannot be told from it")
    assert sentence(other) == "none to the bit; nearest: d(bits=4) (50.0000% equal, up to 2 units apart)"
    assert sentence() == "no method takes such scores"
