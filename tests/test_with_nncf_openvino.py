"""The names that NNCF gets, where OpenVINO is installed: `make integrations` runs this."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import softq
from softq.errors import InputError, UsageError
from softq.integrations.nncf import ignored_names, to_openvino

pytestmark = [pytest.mark.slow, pytest.mark.integrations]
MODEL = Path(__file__).parent.parent / "models" / "mnist_vit" / "mnist_vit.onnx"


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("openvino")


def test_what_is_named_and_what_is_not() -> None:
    converted = softq.convert(MODEL, bits=4).model
    model = to_openvino(converted)
    names = set(ignored_names(converted, model))
    operators = {op.get_friendly_name(): op.get_type_name() for op in model.get_ops()}
    assert names <= operators.keys()
    # Two products and a division for each of 4 attentions; of the other 17 products none, nor what makes Q, K and V.
    kinds = [operators[name] for name in names]
    assert (kinds.count("MatMul"), kinds.count("Divide")) == (8, 4)
    assert sum(kind == "MatMul" for kind in operators.values()) == 25
    assert not {"Convolution", "MVN", "Gelu", "Split"} & set(kinds)
    # All that reads Q K is named.
    ops = {op.get_friendly_name(): op for op in model.get_ops()}
    firsts = [name for name in names if name.startswith("node_matmul") and int(name[12:] or 0) % 2 == 0]
    assert len(firsts) == 4
    for name in firsts:
        readers = {port.get_node().get_friendly_name() for port in ops[name].output(0).get_target_inputs()}
        assert readers <= names


def test_scores_that_are_no_product() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        head (float[2, 10] x) => (float[2, 10] y) { scores = Sin(x) p = Softmax(scores) z = Abs(p) y = Neg(z) }""")
    converted = softq.convert(model, all_sites=True).model
    opened = to_openvino(converted)
    kinds = {op.get_friendly_name(): op.get_type_name() for op in opened.get_ops()}
    named = {kinds[name] for name in ignored_names(converted, opened)}
    assert "Divide" in named
    assert not {"Sin", "Abs", "Negative", "Parameter", "Result"} & named


def test_the_same_logits() -> None:
    openvino = pytest.importorskip("openvino")

    converted = softq.convert(MODEL, method="exact").model
    with np.load(MODEL.parent / "data.npz") as arrays:
        images = arrays["images"][:8]
    before, after = (
        openvino.compile_model(model, "CPU")(images)[0]
        for model in (openvino.convert_model(MODEL), to_openvino(converted))
    )
    assert np.linalg.norm(before - after) < 0.02 * np.linalg.norm(before)


def test_errors(tmp_path: Path) -> None:
    converted = softq.convert(MODEL, bits=4).model
    with pytest.raises(UsageError, match="not converted, or was converted with --inline"):
        ignored_names(MODEL, to_openvino(converted))
    openvino = pytest.importorskip("openvino")

    with pytest.raises(InputError, match="it is not of this converted model"):
        ignored_names(converted, openvino.convert_model(MODEL))
    with pytest.raises(UsageError, match="the second model is a PosixPath; expected what to_openvino returns"):
        ignored_names(converted, MODEL)  # pyright: ignore[reportArgumentType]
    body = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[2, 5, 7] s, float[2, 7, 4] v, bool c) => (float[2, 5, 4] out) {
            out = If (c) <
                then_branch = a () => (float[2, 5, 4] x) { p = Softmax (s) x = MatMul (p, v) },
                else_branch = b () => (float[2, 5, 4] y) { y = MatMul (s, v) } > }""")
    nested = softq.convert(body, bits=4).model
    with pytest.raises(UsageError, match="is called in a body or function; names are those of the main graph"):
        ignored_names(nested, to_openvino(nested))
    unknown = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "own": 1]>
        g (float[2, 10] x) => (float[2, 10] y) { scores = own.f(x) y = Softmax(scores) }""")
    with pytest.raises(InputError, match="OpenVINO cannot read the model"):
        to_openvino(unknown)
