"""Input shapes that a user gives: what they fix, what contradicts the model, and who says that they are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

import softq
from softq.cli import main
from softq.input_shapes import InputShapes, fix_input_shapes, parse_input_shapes, resolve
from softq.modelfile import as_model

GRAPH = """<ir_version: 10, opset_import: ["": 21]>
g (float[N, 3, H, W] x, float[N, 2] s) => (float[N, 3, A, B] y, float[N, 2] z)
<float[3, 1, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
    y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2], group = 3> (x, w)
    z = Softmax (s)
}"""


def graph(unknown: bool = False) -> onnx.ModelProto:
    model = parser.parse_model(GRAPH)
    if unknown:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    return model


def test_texts_become_lengths() -> None:
    texts = ["x:1,?,48,320", "a:b:batch=2", "a:b:rows=3,columns=4"]
    expected = {"x": [1, None, 48, 320], "a:b": {"batch": 2, "rows": 3, "columns": 4}}
    assert parse_input_shapes(texts) == expected


@pytest.mark.parametrize(
    "texts",
    [["x"], ["x:"], [":1,2"], ["x:1,,2"], ["x:1,-1"], ["x:1.5"], ["x:n=1,2"], ["x:n=?"], ["x:1", "x:2"], ["x:n=1,n=2"],
     ["x:n=1", "x:n=1"], ["x:n=1", "x:1"], ["x:1", "x:n=1"], ["x:²"], ["x:99999999999999999999"]],
)  # fmt: skip
def test_a_text_of_another_form_is_refused(texts: list[str]) -> None:
    with pytest.raises(softq.UsageError, match="--input-shape"):
        parse_input_shapes(texts)


@pytest.mark.parametrize(
    ("shapes", "first", "second"),
    [
        ({"x": [2, 3, None, 5]}, (2, 3, "H", 5), (2, 2)),  # N is the other input's, too.
        ({"x": {"H": 4}}, ("N", 3, 4, "W"), ("N", 2)),
        ({"s": {"N": 1}, "x": {"W": 7}}, (1, 3, "H", 7), (1, 2)),
    ],
)
def test_an_axis_is_fixed_wherever_its_name_stands(
    shapes: InputShapes, first: tuple[object, ...], second: tuple[object, ...]
) -> None:
    model = as_model(graph())
    fix_input_shapes(model, shapes)
    x, s = model.graph.inputs
    assert x.shape == first
    assert s.shape == second


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"q": [1]}, "the model has no input 'q'; there are: 'x', 's'"),
        ({"x": [1, 3, 4]}, "input 'x' has 4 axes, 3 lengths are given; it is [N, 3, H, W]"),
        ({"x": [1, 4, 8, 8]}, "input 'x' has 3 on axis 1, 4 is given"),
        ({"x": [-1, 3, 8, 8]}, "input 'x', axis 0, cannot be -1; the least length is 1"),
        ({"x": [0, 3, 8, 8]}, "input 'x', axis 0, cannot be 0; the least length is 1"),
        ({"x": {"batch": 1}}, "input 'x' has no axis named 'batch'; there are: 'H', 'N', 'W'"),
        ({"x": {"N": 1}, "s": {"N": 2}}, "dimension 'N' is given as 1 and as 2"),
        ({"x": {"N": -3}}, "dimension 'N' cannot be -3; the least length is 1"),
        ({"x": {"N": 0}}, "dimension 'N' cannot be 0; the least length is 1"),
    ],
)
def test_what_contradicts_the_model_is_refused(shapes: InputShapes, message: str) -> None:
    with pytest.raises(softq.InputError) as caught:
        fix_input_shapes(as_model(graph()), shapes)
    assert message in str(caught.value)


def test_an_axis_of_a_negative_length_is_unknown() -> None:
    model = as_model(graph(unknown=True))
    assert resolve(model, {"x": [None, 3, 8, 8]}) == {"x": [None, 3, 8, 8]}
    assert resolve(model, {"x": [2, 3, 8, 8]}) == {"x": [2, 3, 8, 8]}
    assert model.graph.inputs[1].shape == ("N", 2)


def test_commands_take_shapes(tmp_path: Path) -> None:
    model, out, data = (str(tmp_path / name) for name in ("model.onnx", "out.onnx", "data.npz"))
    onnx.save(graph(), model)
    np.savez(data, x=np.ones((4, 3, 8, 9), np.float32), s=np.ones((4, 2), np.float32))
    option = ["--input-shape", "x:2,3,8,9"]
    run = CliRunner().invoke
    assert "2×2" in run(main, ["inspect", model, *option]).stdout.replace("x", "×").replace(", ", "×")
    assert run(main, ["convert", model, out, "--all", *option]).exit_code == 0
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[3].dim_value == 9
    # The candidate has its numbers already, and the reference names its axes.
    checked = run(main, ["check", model, out, "--data", data, "--input-shape", "x:N=2,H=8,W=9"])
    assert checked.exit_code == 0, checked.output
    # Both are read to be given their shapes, and have the names of their files.
    assert (model in checked.stdout, out in checked.stdout) == (True, True)
    junit = tmp_path / "check.xml"
    gate = ["--metric", "max-error", "--limit", "1e9", "--json", "--junit", str(junit)]
    checked = run(main, ["check", model, out, "--data", data, "--input-shape", "x:N=2,H=8,W=9", *gate])
    assert (json.loads(checked.stdout)["reference"], json.loads(checked.stdout)["candidate"]) == (model, out)
    assert f"{out} against {model}" in junit.read_text()
    nothing = ["--input-shape", "x:N=0"]
    other, built = str(tmp_path / "other.onnx"), str(tmp_path / "built")
    for words in (["check", model, out, "--data", data], ["convert", model, other], ["inspect", model],
                  ["build", model, built, "--target", "verilog"]):  # fmt: skip
        found = run(main, [*words, *nothing])
        assert (found.exit_code, found.stderr) == (2, "softq: dimension 'N' cannot be 0; the least length is 1\n")
    wrong = run(main, ["inspect", model, "--input-shape", "x:1"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)


def test_a_model_that_needs_fixed_axes_says_so_and_builds_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tvm")
    from softq.compiler.frontend.importer import Importer
    from softq.compiler.tir.symbolic import plain

    results = Importer._results

    def needing_lengths(self: Importer, proto: onnx.NodeProto, node: Any) -> Any:
        if not all(isinstance(plain(dim), int) for dim in node.shape(0)):
            raise softq.RefusalError("the lengths have to be known")
        return results(self, proto, node)

    monkeypatch.setattr(Importer, "_results", needing_lengths)
    text = (
        '<ir_version: 10, opset_import: ["": 21]> g (float[N, 3] x, float[1, M] s) => (float[K, 3] y) {y = Add (x, s)}'
    )
    model = parser.parse_model(text)
    with pytest.raises(softq.RefusalError) as caught:
        softq.build(model, tmp_path / "built", target="cpu")
    options = "--input-shape 'x:?,3' --input-shape 's:1,?'"
    assert str(caught.value) == f"the lengths have to be known; fixed axes of the inputs may do: {options}"
    softq.build(model, tmp_path / "built", target="cpu", input_shapes={"x": [2, 3], "s": {"M": 3}})
    with softq.load(tmp_path / "built") as built:
        found = built({"x": np.ones((2, 3), np.float32), "s": np.full((1, 3), 2, np.float32)})
        np.testing.assert_array_equal(found["y"], np.full((2, 3), 3))
