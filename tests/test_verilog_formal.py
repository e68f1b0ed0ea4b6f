"""Proofs about cores: their streams, in every run; and what they compute, for all scores of short rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from softq.methods import METHODS
from softq.rowprog import DType
from softq.rtl import rtl
from softq.vectors.making import configured
from tests.equivalence import ROWS, with_reference
from tests.formal import with_properties
from tests.proofs import prove_by_induction, prove_to_depth
from tests.rtl_rows import settings_of

LONGEST = 4
STEPS = 25
"""Of the proof that a core moves: any run so long does."""


def _made(method: str, lanes: int = 1, *, products: str = "parallel", **settings: object) -> str:
    given = {**settings_of(method), **settings}
    made = rtl(method, given, length=LONGEST, lanes=lanes, products=products, rows=0, name="core")
    return with_properties(made.core, patience=2 * STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "lanes", "settings", "products"),
    [
        ("deferred-log", 1, {}, "parallel"),
        ("deferred-log", 2, {}, "parallel"),
        ("index-softmax", 1, {}, "parallel"),
        ("ita", 1, {"output": "uint8"}, "parallel"),
        ("relu", 1, {}, "parallel"),
        ("i-exp", 1, {"output": "uint8"}, "serial"),
    ],
)
def test_streams_lose_and_double_nothing(
    tmp_path: Path, method: str, lanes: int, settings: Mapping[str, object], products: str
) -> None:
    """Beats keep their order, the ends of their rows, and their lanes; memories never overflow; offers stay.

    By induction, for any number of clocks, whatever is offered, taken and reset when.
    """
    assert (
        prove_by_induction(tmp_path, _made(method, lanes, products=products, **settings), steps=2, apart=["live"]) == ""
    )


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_core_moves(tmp_path: Path, lanes: int) -> None:
    """While all that is offered is taken, scores are taken, and what is complete leaves: there is no deadlock."""
    assert prove_by_induction(tmp_path, _made("deferred-log", lanes), steps=STEPS, goals=["live"]) == ""


@pytest.mark.slow
def test_gives_what_its_program_says(tmp_path: Path) -> None:
    """Two rows of 1 to 4 elements with any scores: codes and normalizers of the program before it is tabulated."""
    method = METHODS.get("deferred-log")
    options, _, _ = configured(method, settings_of(method.name), {}, DType.I8)
    made = rtl(method.name, settings_of(method.name), length=LONGEST, rows=0, name="core")
    text = with_reference(made.core, method.program(options, scores=DType.I8, masked=False))
    assert prove_to_depth(tmp_path, text, made.core.latency(LONGEST) + ROWS * LONGEST + 5) == ""
