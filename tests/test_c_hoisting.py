"""Loops of kernels in C: what is summed up in a variable, what is computed before them, and what must not be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from tvm import tirx
from tvm.script.ir_builder import tirx as script

from softq.compiler.tir.kernel_function import kernel_function
from tests.test_c_passes import called, text_of

ONE = tirx.FloatImm("float32", 1.0)
TURNS = 6


def sum_of_row(x: Any, y: Any, s: Any, i: Any) -> None:
    """Add up in one place."""
    script.buffer_store(s, s[0] + x[i], [0])


def prefixes(x: Any, y: Any, s: Any, i: Any) -> None:
    """Read what the turn before wrote."""
    script.buffer_store(y, x[i] + y[i], [i + 1])


def scaled(x: Any, y: Any, s: Any, i: Any) -> None:
    """Divide by what no turn changes."""
    script.buffer_store(y, x[i] * (ONE / (s[0] + s[1])), [i])


def scaled_by_what_grows(x: Any, y: Any, s: Any, i: Any) -> None:
    """Divide by what each turn changes, in the same place."""
    script.buffer_store(y, x[i] / s[0], [i])
    script.buffer_store(s, s[0] + ONE, [0])


def scaled_by_its_own(x: Any, y: Any, s: Any, i: Any) -> None:
    """Divide by an element of what is written."""
    script.buffer_store(y, x[i] + y[3], [i])


def summed_in_two_places(x: Any, y: Any, s: Any, i: Any) -> None:
    """Add up where another sum is read."""
    script.buffer_store(s, s[0] + x[i], [0])
    script.buffer_store(s, s[1] + s[0], [1])


def in_numpy(turn: Callable[..., None], x: Any, y: Any, s: Any) -> None:
    one = np.float32(1)
    for i in range(TURNS):
        if turn is sum_of_row:
            s[0] = s[0] + x[i]
        elif turn is prefixes:
            y[i + 1] = x[i] + y[i]
        elif turn is scaled:
            y[i] = x[i] * (one / (s[0] + s[1]))
        elif turn is scaled_by_what_grows:
            y[i] = x[i] / s[0]
            s[0] = s[0] + one
        elif turn is scaled_by_its_own:
            y[i] = x[i] + y[3]
        else:
            s[0] = s[0] + x[i]
            s[1] = s[1] + s[0]


@pytest.mark.parametrize(
    ("turn", "outside"),
    [
        (sum_of_row, ["s[0]", "s[0]"]),
        (prefixes, []),
        (scaled, ["s[0]", "s[1]"]),
        (scaled_by_what_grows, ["s[0]", "s[0]"]),
        (scaled_by_its_own, []),
        (summed_in_two_places, []),
    ],
)
def test_loops_give_what_they_gave(turn: Callable[..., None], outside: list[str], tmp_path: Path) -> None:
    turns = [tirx.IntImm("int64", n) for n in (0, TURNS)]
    with kernel_function("kernel", dict.fromkeys("xys", "float32"), ()) as made, script.serial(*turns) as i:
        turn(*made.memory.values(), i)
    text = text_of(made.function)
    body = text[text.rindex("void kernel") :]
    loop = body[body.index("for (") : body.index("    }\n")]
    assert sorted(re.findall(r"\bs\[\d\]", body.replace(loop, ""))) == outside
    rng = np.random.default_rng(0)
    given = [rng.normal(size=TURNS + 1).astype(np.float32) for _ in range(3)]
    wanted = [array.copy() for array in given]
    in_numpy(turn, *wanted)
    called(text, tmp_path, *given, 0, 1)
    for found, expected in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_another_view_of_the_same_memory_is_the_same_memory(tmp_path: Path) -> None:
    with kernel_function("kernel", {"x": "float32"}, ()) as made:
        x, view = made.memory["x"], script.decl_buffer((TURNS,), "float32", data=made.pointers["x"])
        with script.serial(tirx.IntImm("int64", 0), tirx.IntImm("int64", TURNS)) as i:
            script.buffer_store(x, view[2] + ONE, [i])
    given = np.array([1, 2, 3, 4, 5, 6], np.float32)
    called(text_of(made.function), tmp_path, given, 0, 1)
    assert given.tolist() == [4, 4, 4, 5, 5, 5]
