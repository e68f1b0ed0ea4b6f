"""LSTM, GRU and RNN beside onnxruntime: all gates, directions, lengths, states and activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import softq
from softq.errors import RefusalError, SoftqError
from tests.built import Array, check

pytest.importorskip("tvm")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RNG = np.random.default_rng(18)


def layer(
    kind: str,
    sizes: tuple[int, int, int, int],
    given: str = "",
    free: str = "",
    symbolic: bool = False,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one layer and its inputs.

    Args:
        kind: The operator.
        sizes: Steps, batch, inputs, hidden units.
        given: Letters of the optional inputs: Bias, Lengths, Hidden, Cell, Peepholes.
        free: Names of the weights that are inputs of the model.
        symbolic: Whether steps and batch are open.
        **attributes: Of the node.
    """
    steps, batch, inputs, hidden = sizes
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * hidden
    arrays: dict[str, Array] = {
        "X": RNG.standard_normal((steps, batch, inputs), np.float32),
        "W": RNG.standard_normal((directions, rows, inputs), np.float32) * np.float32(0.5),
        "R": RNG.standard_normal((directions, rows, hidden), np.float32) * np.float32(hidden**-0.5),
        "B": RNG.standard_normal((directions, 2 * rows), np.float32),
        "L": RNG.permutation(np.resize(np.arange(steps, 0, -1), batch)).astype(np.int32),
        "H": RNG.standard_normal((directions, batch, hidden), np.float32),
        "C": RNG.standard_normal((directions, batch, hidden), np.float32),
        "P": RNG.standard_normal((directions, 3 * hidden), np.float32),
    }
    names = [name if name in "XWR" + given else "" for name in (arrays if kind == "LSTM" else "XWRBLH")]
    values, weights, feeds = [], [], {}
    for name in filter(None, names):
        if name in "XLHC" + free:
            shape: list[int | str] = list(arrays[name].shape)
            if symbolic and name in "XLHC":
                open_shapes: dict[str, list[int | str]] = {"X": ["T", "N", inputs], "L": ["N"]}
                shape = open_shapes.get(name, [directions, "N", hidden])
            values.append(helper.make_tensor_value_info(name, TensorProto.INT32 if name == "L" else 1, shape))
            feeds[name] = arrays[name]
        else:
            weights.append(numpy_helper.from_array(arrays[name], name))
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, names, outputs, hidden_size=hidden, **attributes)
    results = [helper.make_tensor_value_info(o, 1, [None] * (4 if o == "Y" else 3)) for o in outputs]
    graph = helper.make_graph([node], "g", values, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), feeds


CASES: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "LSTM", "sizes": (5, 1, 3, 5)},
    "lstm both ways": {"kind": "LSTM", "sizes": (6, 7, 9, 40), "given": "BHC", "direction": "bidirectional"},
    "lstm lengths": {"kind": "LSTM", "sizes": (4, 6, 3, 70), "given": "BLHCP", "direction": "bidirectional"},
    "lstm backwards": {"kind": "LSTM", "sizes": (5, 13, 3, 16), "given": "BLP", "direction": "reverse"},
    "lstm coupled": {"kind": "LSTM", "sizes": (5, 2, 3, 7), "given": "BP", "input_forget": 1, "clip": 0.3},
    "lstm functions": {
        "kind": "LSTM", "sizes": (5, 2, 3, 7), "given": "B", "direction": "bidirectional",
        "activations": ["HardSigmoid", "ScaledTanh", "Softsign", "Sigmoid", "Elu", "LeakyRelu"],
        "activation_alpha": [0.3, 0.9, 0.7, 0.2], "activation_beta": [0.4, 0.8],
    },
    "lstm of other weights": {"kind": "LSTM", "sizes": (3, 2, 3, 37), "given": "B", "free": "WRB"},
    "gru": {"kind": "GRU", "sizes": (5, 1, 3, 5), "given": "B"},
    "gru both ways": {"kind": "GRU", "sizes": (6, 7, 9, 40), "given": "BLH", "direction": "bidirectional"},
    "gru other form": {
        "kind": "GRU", "sizes": (6, 7, 9, 40), "given": "BLH", "direction": "bidirectional", "linear_before_reset": 1,
    },
    "gru other form of other weights": {
        "kind": "GRU", "sizes": (4, 2, 3, 21), "given": "B", "free": "WRB", "linear_before_reset": 1, "clip": 0.4,
    },
    "gru functions": {
        "kind": "GRU", "sizes": (4, 2, 3, 21), "direction": "reverse", "activations": ["HardSigmoid", "Softplus"],
        "activation_alpha": [0.2], "activation_beta": [0.5],
    },
    "rnn": {"kind": "RNN", "sizes": (7, 1, 3, 33), "given": "B"},
    "rnn both ways": {
        "kind": "RNN", "sizes": (7, 8, 3, 20), "given": "BLH", "direction": "bidirectional",
        "activations": ["ThresholdedRelu", "Affine"], "activation_alpha": [0.1, 0.5], "activation_beta": [0.2],
    },
}  # fmt: skip


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("case", CASES)
def test_a_layer_gives_what_onnxruntime_gives(case: str, tmp_path: Path) -> None:
    model, feeds = layer(**CASES[case])
    # Sums of up to 70 products in another order, through a few steps.
    check(model, [feeds], tmp_path, relative=1e-5, absolute=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_steps_and_batch_may_change(kind: str, tmp_path: Path) -> None:
    feeds = []
    for sizes in ((5, 3, 4, 18), (1, 1, 4, 18), (3, 9, 4, 18)):
        model, feed = layer(kind, sizes, "BL", "WRB", symbolic=True, direction="bidirectional")
        feeds.append(feed)
    check(model, feeds, tmp_path, relative=1e-5, absolute=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_batches_first(kind: str, tmp_path: Path) -> None:
    model, feeds = layer(kind, (4, 3, 5, 6), "BH", direction="bidirectional")
    softq.build(model, tmp_path / "steps", target="cpu")
    turned = {"X": feeds["X"].swapaxes(0, 1), "H": feeds["H"].swapaxes(0, 1)}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_value, dims[1].dim_value = dims[1].dim_value, dims[0].dim_value
    model.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    softq.build(model, tmp_path / "batches", target="cpu")
    with softq.load(tmp_path / "steps") as first, softq.load(tmp_path / "batches") as second:
        a, b = first(feeds), second({name: np.ascontiguousarray(x) for name, x in turned.items()})
    np.testing.assert_array_equal(b["Y"], a["Y"].transpose(2, 0, 1, 3))
    for name in set(a) - {"Y"}:
        np.testing.assert_array_equal(b[name], a[name].swapaxes(0, 1))


def test_a_sequence_without_steps_and_one_with_too_many(tmp_path: Path) -> None:
    model, feeds = layer("GRU", (4, 3, 5, 6), "BL")
    check(model, [feeds | {"L": np.array([0, 4, 1], np.int32)}], tmp_path, relative=1e-5, absolute=1e-5)
    with softq.load(tmp_path / "built") as built:
        for lengths in ([1, 5, 2], [-1, 4, 4]):
            with pytest.raises(SoftqError, match="a sequence has less than 0 steps, or more than there are"):
                built(feeds | {"L": np.array(lengths, np.int32)})


def test_what_has_no_kernel_is_refused_by_name(tmp_path: Path) -> None:
    model, _ = layer("RNN", (2, 1, 3, 4), activations=["Softmax"])
    with pytest.raises(RefusalError, match=r"RNN 'Y' has the activations \['Softmax'\]"):
        softq.build(model, tmp_path / "x", target="cpu")
    model, _ = layer("LSTM", (2, 1, 3, 4))
    with pytest.raises(RefusalError, match="LSTM 'Y' of float32 has no kernel for this target"):
        softq.build(model, tmp_path / "x", target="cuda")
