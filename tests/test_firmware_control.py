"""If and Loop in models in C: what runs depends on data, the shapes do not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

pytest.importorskip("tvm")

import softq
from softq.errors import RefusalError
from tests.test_firmware import COMPILERS, STRICT

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")
CHOICE = """<ir_version: 10, opset_import: ["": 21]> f (bool go, float[3, 8] x) => (float[3, 8] y)
{
    s = Softmax<axis = -1>(x)
    z = If (go) <
        then_branch = then () => (float[3, 8] a) { b = Mul(s, x)  a = Softmax<axis = -1>(b) },
        else_branch = other () => (float[3, 8] c) { d = Exp(s)  c = Sub(d, x) }
    >
    y = Add(z, s)
}"""
# The body takes the number of the round, and ends the loop when a sum is above 14.
TURNS = """<ir_version: 10, opset_import: ["": 21]> f (int64 n, float[3, 8] x) => (float[3, 8] y)
<float limit = {14.0}>
{
    y = Loop (n, , x) <
        body = turn (int64 i, bool before, float[3, 8] h) => (bool after, float[3, 8] k)
        {
            w = Softmax<axis = -1>(h)
            round = Cast<to = 1>(i)
            v = Mul(w, round)
            k = Add(h, v)
            total = ReduceMax<keepdims = 0>(k)
            after = Less(total, limit)
        }
    >
}"""


def check(text: str, name: str, values: list[Any], folder: Path) -> None:
    """Compare a model in C with onnxruntime, for each value of the first input, in one arena after another."""
    model = parser.parse_model(text)
    softq.build(model, folder / "m", target="c,name=m")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    distinct: set[bytes] = set()
    with softq.load(folder / "m") as built:
        for value in values:
            given = {name: value, "x": rng.normal(size=(3, 8)).astype(np.float32)}
            wanted: Any = session.run(None, given)[0]
            found: Any = next(iter(built(given).values()))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * float(np.abs(wanted).max()))
            distinct.add(wanted.tobytes())
    assert len(distinct) > 1
    assert "goto step_" in (folder / "m" / "m.c").read_text()


def test_a_branch_is_chosen_by_data(tmp_path: Path) -> None:
    check(CHOICE, "go", [np.array(go) for go in (True, False, True)], tmp_path)


def test_a_loop_turns_as_often_as_data_say(tmp_path: Path) -> None:
    check(TURNS, "n", [np.array(n, np.int64) for n in (3, 0, 1, 200)], tmp_path)


@pytest.mark.parametrize("text", [CHOICE, TURNS], ids=["If", "Loop"])
def test_compilers_take_the_jumps_without_a_warning(text: str, tmp_path: Path) -> None:

    softq.build(parser.parse_model(text), tmp_path / "m", target="c,name=m")
    for compiler in COMPILERS:
        sources = sorted(map(str, (tmp_path / "m").glob("*.c")))
        out = str(tmp_path / f"{compiler}.so")
        subprocess.run([compiler, *STRICT, "-O2", "-shared", "-fPIC", *sources, "-lm", "-o", out], check=True)


def test_a_length_that_rounds_decide_is_refused(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> f (int64 n, float[3] x) => (float[rounds, 3] y) <bool yes = {1}>
        {
            y = Loop (n, yes) <body = turn (int64 i, bool before) => (bool after, float[3] k) {
                k = Softmax(x)  after = Identity(before) }>
        }"""
    )
    with pytest.raises(RefusalError, match=r"depend|not known"):
        softq.build(model, tmp_path / "m", target="c")
    assert not (tmp_path / "m").exists()
