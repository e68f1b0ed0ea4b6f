"""What a model in C is called with: names of inputs and outputs, types, values that make no sense."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser

pytest.importorskip("tvm")

import softq
from softq.errors import InputError, RefusalError, UsageError
from tests.test_firmware import COMPILERS, STRICT

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")
HEAD = '<ir_version: 10, opset_import: ["": 21]>'
NAMES = (
    "return", "and", "m", "arena", "bytes", "NULL", "x", "X", "in/put:0", "in_put_0", "1st", "a */ b", "//", "", "\n",
    "uint32_t", "odd_run_in", "SQ_ALIGNED", "return_1",
)  # fmt: skip


def test_any_name_has_a_form_in_c_and_cpp(tmp_path: Path) -> None:
    names = [name or "empty" for name in NAMES]
    nodes = [
        helper.make_node(
            "Add", [f"sum {at}" if at else names[0], name], ["class" if name == names[-1] else f"sum {at + 1}"]
        )
        for at, name in enumerate(names[1:])
    ]
    given = [helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [3]) for name in names]
    taken = [helper.make_tensor_value_info("class", onnx.TensorProto.INT32, [3])]
    graph = helper.make_graph(nodes, "g", given, taken)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    softq.build(model, tmp_path / "odd", target="c")
    for command in ([COMPILERS[0], *STRICT, "-c", "odd.c"], ["g++", *STRICT[1:], "-fsyntax-only", "-xc++", "odd.h"]):
        subprocess.run(command, check=True, cwd=tmp_path / "odd")
    arrays = {name: np.array([at, -(10**at % 997), 7], np.int32) for at, name in enumerate(names)}
    with softq.load(tmp_path / "odd") as built:
        np.testing.assert_array_equal(built(arrays)["class"], np.sum(list(arrays.values()), 0, dtype=np.int32))


def test_a_header_of_booleans_stands_alone(tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (bool[4] a, bool[4] b) => (bool[4] y) { y = And(a, b) }")
    softq.build(model, tmp_path / "both", target="c")
    for command in ([COMPILERS[0], *STRICT, "-c", "both.c"], ["g++", *STRICT[1:], "-fsyntax-only", "-xc++", "both.h"]):
        subprocess.run(command, check=True, cwd=tmp_path / "both")
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    with softq.load(tmp_path / "both") as built:
        np.testing.assert_array_equal(built({"a": a, "b": b})["y"], a & b)


def test_an_index_outside_its_axis_is_bad_data(tmp_path: Path) -> None:
    text = "g (float[5, 3] x, int64[2] i) => (float[2, 3] y) { z = Neg(x) w = Gather(z, i) y = Neg(w) }"
    softq.build(parser.parse_model(HEAD + text), tmp_path / "rows", target="c")
    subprocess.run([COMPILERS[0], *STRICT, "-c", "rows.c"], check=True, cwd=tmp_path / "rows")
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    with softq.load(tmp_path / "rows") as built:
        for good in ([0, 4], [-5, -1]):
            np.testing.assert_array_equal(built({"x": x, "i": np.array(good)})["y"], x[good])
        for bad in ([0, 5], [-6, 0], [1 << 32, 0]):
            with pytest.raises(InputError, match="the run ends with BAD_DATA"):
                built({"x": x, "i": np.array(bad)})
        np.testing.assert_array_equal(built({"x": x, "i": np.array([2, 3])})["y"], x[2:4])


@pytest.mark.parametrize("name", ["math", "string"])
def test_no_model_takes_the_place_of_a_header(name: str, tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (float[4] x) => (float[4] y) { y = Neg(x) }")
    with pytest.raises(UsageError, match=rf"^name is '{name}'; {name}\.h is a header of C's"):
        softq.build(model, tmp_path / "model", target=f"c,name={name}")
    assert not (tmp_path / "model").exists()


def test_a_length_that_data_decide_is_no_matter_of_input_shapes(tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (float[4] x) => (int64[1, N] y) { y = NonZero(x) }")
    with pytest.raises(RefusalError, match=r"^lengths in the model depend on data; a model in C has fixed shapes$"):
        softq.build(model, tmp_path / "model", target="c")
