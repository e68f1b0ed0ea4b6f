"""IndexSoftmax against Python integers and the paper's table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest

from softq.errors import UsageError
from softq.methods.index_softmax import weight_table
from softq.rowprog import DType
from softq.rowprog.ranges import prove
from tests.conformance import assert_conforms, program_of

# 255 exp(-6.6 i / 31), the last entry forced to 0: computed for the dossier of the paper, not by softq.
TABLE = [
    255, 206, 167, 135, 109, 88, 71, 57, 46, 38, 30, 25, 20, 16, 13, 10,
    8, 7, 6, 4, 4, 3, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0,
]  # fmt: skip


def test_the_table_is_the_published_one() -> None:
    assert weight_table(5, 6.6) == TABLE


def derivation(step: float, rounded: bool, published: bool, integers: bool = True):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        # With floats the distance itself is divided by clip / 31; with integers the clip is a whole number first.
        whole = Fraction("6.6") / Fraction(str(step))
        clip = Fraction(math.floor(whole + Fraction(1, 2)) if rounded else math.floor(whole)) if integers else whole
        half = Fraction(1, 2) if rounded else 0
        index = [min(Fraction(d), clip) * 31 / clip for d in row]
        if not integers and not rounded:
            index = [Fraction(round(256 * i), 256) for i in index]
        e = [TABLE[math.floor(i + half)] for i in index]
        if not published:
            return e, sum(e)
        return [math.floor(Fraction(255 * v, sum(e)) + Fraction(1, 2)) for v in e], 255

    return derive


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("output", ["pair", "uint8"])
@pytest.mark.parametrize("index", ["rounded", "truncated"])
@pytest.mark.parametrize("step", [0.01, 0.0625, 1.0])
def test_integer_scores(index: str, output: str, step: float) -> None:
    derive = derivation(step, index == "rounded", output == "uint8")
    settings = {"index": index, "output": output, "step": step}
    assert_conforms("index-softmax", settings, derive, unit=step, kinds=(DType.I8, DType.U8), native=step == 1.0)


@pytest.mark.parametrize("output", ["pair", "uint8"])
@pytest.mark.parametrize("index", ["rounded", "truncated"])
def test_float_scores(index: str, output: str) -> None:
    derive = derivation(0.0625, index == "rounded", output == "uint8", integers=False)
    settings = {"index": index, "output": output}
    assert_conforms("index-softmax", settings, derive, unit=0.0625, largest=120, kinds=(DType.F32,))


def test_what_is_proved_and_what_is_refused() -> None:
    for settings in ({"step": 0.05}, {"step": 0.05, "output": "uint8"}, {"step": 2.0**-14}):
        assert prove(program_of("index-softmax", settings, DType.I8, masked=True)).widest_bits <= 32
    with pytest.raises(UsageError, match="step is 14; integer scores need one above 0 and below the clip"):
        program_of("index-softmax", {"step": 14}, DType.I8)
