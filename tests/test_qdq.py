"""`convert --qdq`: attentions on 8-bit integers by standard operators, which onnxruntime fuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import softq
from softq.cli import main
from softq.errors import UsageError
from softq.methods import METHODS
from softq.onnxruntime import quantize_overrides
from softq.passes.smooth_keys import SmoothKeys
from softq.rowprog import run as run_rows
from tests.attention import run, softmax64
from tests.fused import ATTENTIONS, DIMS, Attention

_TWO_PRODUCTS = [name for name in ATTENTIONS if name != "given-scores"]


def _fused_operators(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Return how often onnxruntime runs each operator once it has fused what it can."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(folder / "fused.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "fused.onnx").graph.node)


def _error(found: NDArray[np.generic], wanted: NDArray[np.generic]) -> float:
    wide = wanted.astype(np.float64)
    return float(np.linalg.norm(found.astype(np.float64) - wide) / np.linalg.norm(wide))


@pytest.mark.parametrize("name", _TWO_PRODUCTS)
def test_both_products_are_on_integers(name: str, tmp_path: Path) -> None:
    given = ATTENTIONS[name]
    model, feeds = given.model(), given.feeds(DIMS)
    made = softq.convert(model, bits=7, qdq=True)
    assert made.warnings == ()
    onnx.checker.check_model(made.model, full_check=True)
    fused = _fused_operators(made.model, tmp_path)
    assert (fused["MatMulIntegerToFloat"], fused["MatMul"], fused["DequantizeLinear"]) == (2, 0, 0)
    exact, found = run(model, feeds), run(made.model, feeds)
    # One step of 1/127 of the greatest of three tensors, where 7 bits of the codes alone give .009 at most.
    assert _error(found, exact) < 0.025
    np.testing.assert_array_equal(run(softq.convert(model, bits=7, qdq=True, inline=True).model, feeds), found)


@pytest.mark.parametrize("scaling", ["Mul(scores, scale)", "Mul(scale, scores)", "Div(scores, four)"])
def test_numbers_are_those_of_numpy(scaling: str) -> None:
    """Codes, products and sums by themselves."""
    plain = ATTENTIONS["plain"]
    lines = plain.lines.replace("Mul(scores, scale)", scaling)
    given = Attention(plain.inputs, "four = Constant <value: tensor = float {4.0}> () " + lines, plain.out)
    feeds = given.feeds(DIMS)
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    k = k - k.mean(axis=-2, keepdims=True)

    def codes(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        scale = np.abs(x).max() / 127
        return np.rint(x / scale), scale

    (q8, q_scale), (k8, k_scale), (v8, v_scale) = codes(q), codes(k), codes(v)
    scores = (q8 @ k8.swapaxes(-1, -2)) * (q_scale * k_scale * 0.25)
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({"bits": 4, "weight_bits": 8, "peak": "full"}), False)
    weights = run_rows(method.program(options), scores.astype(np.float32))["weights"].astype(np.float64)
    assert weights.max() == 255
    wanted = (weights @ v8) * v_scale / weights.sum(axis=-1, keepdims=True)
    found = run(softq.convert(given.model(), bits=4, qdq=True).model, feeds)
    assert _error(found, wanted) < 1e-5


@pytest.mark.parametrize(("method", "scale"), [("exact", 1 / 255), ("i-exp", 26752 / 255), ("index-softmax", 1.0)])
def test_weights_of_any_range_are_bytes(method: str, scale: float) -> None:
    given = ATTENTIONS["added-mask"]
    model, feeds = given.model(), given.feeds(DIMS)
    made = softq.convert(model, method=method, qdq=True)
    assert made.warnings == ()
    numbers = {node.output[0]: node.attribute[0].t for node in made.model.graph.node if node.op_type == "Constant"}
    (coded,) = [n for n in made.model.graph.node if n.op_type == "QuantizeLinear" and n.input[0].endswith("weights")]
    assert onnx.numpy_helper.to_array(numbers[coded.input[1]]) == np.float32(scale)
    assert onnx.numpy_helper.to_array(numbers[coded.input[2]]) == 0
    assert _error(run(made.model, feeds), run(softq.convert(model, method=method).model, feeds)) < 0.05


def test_tensors_of_zeros_and_rows_without_a_number() -> None:
    given = ATTENTIONS["added-mask"]
    converted = softq.convert(given.model(), method="exact", qdq=True).model
    feeds = given.feeds(DIMS)
    zeros = {name: np.zeros_like(array) for name, array in feeds.items()}
    assert not run(converted, zeros).any()
    feeds["bias"][1, :, :, 2] = np.nan
    found = run(converted, feeds)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[0]).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("name", "qkv")
def test_what_is_no_number_does_not_get_lost(name: str, wrong: float) -> None:
    """A NaN has no code, and onnxruntime's greatest of all passes it over: everything becomes NaN."""
    given = ATTENTIONS["plain"]
    feeds = {key: array.astype(np.float32) for key, array in given.feeds(DIMS).items()}
    feeds[name][1, 2, 3, 4] = wrong
    assert np.isnan(run(softq.convert(given.model(), qdq=True).model, feeds)).all()


@pytest.mark.parametrize("left", [0, 1])
def test_scores_of_a_product_that_onnxruntime_fused(left: int, tmp_path: Path) -> None:
    """As in models that onnxruntime saved: the transposition of keys and the scale are part of the product."""
    inputs = {"q": "float[B,4,16,S]" if left else "float[B,4,S,16]", "k": "float[B,4,N,16]", "v": "float[B,4,N,16]"}
    lines = f"""s = com.microsoft.FusedMatMul <transA: int = {left}, transB: int = 1, alpha: float = 0.25> (q, k)
        p = Softmax <axis: int = -1> (s) out = MatMul(p, v)"""
    given = Attention(inputs, lines, "float[B,4,S,16]")
    model, feeds = given.model(), given.feeds(DIMS)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    made = softq.convert(model, bits=7, qdq=True)
    assert made.warnings == ()
    fused = _fused_operators(made.model, tmp_path)
    assert (fused["MatMulIntegerToFloat"], fused["FusedMatMul"], fused["MatMul"]) == (2, 0, 0)
    assert _error(run(made.model, feeds), run(model, feeds)) < 0.025


_PLAIN = ATTENTIONS["plain"]
_BETWEEN = _PLAIN.lines.replace("p =", "three = Constant <value: tensor = float {3.0}> () w =").replace(
    "out =", "p = Mul(w, three) out ="
)


@pytest.mark.parametrize(
    ("model", "method", "reason"),
    [
        (ATTENTIONS["given-scores"], "deferred-log", "its scores are no product of queries and keys"),
        (_PLAIN, "consmax", "its method gives no weights that are known to lie in a range from 0 on"),
        (
            Attention(_PLAIN.inputs, _BETWEEN, _PLAIN.out), "deferred-log",
            "its division stands in front of the product with values",
        ),
    ],
    ids=["scores", "method", "between"],
)  # fmt: skip
def test_what_stays_in_floats_is_named_and_is_as_without(model: Attention, method: str, reason: str) -> None:
    proto, feeds = model.model(), model.feeds(DIMS)
    options = {"deferred-log": {"weight_bits": 8, "peak": "full"}}.get(method, {})
    plain = softq.convert(proto, method=method, settings=options, allow_substitute=True)
    made = softq.convert(proto, method=method, qdq=True, allow_substitute=True)
    (warning,) = made.warnings
    assert warning.startswith(f"the attention of site {made.sites[0].id} stays in floats: {reason}")
    np.testing.assert_array_equal(run(made.model, feeds), run(plain.model, feeds))


@pytest.mark.parametrize("opset", [13, 17, 21, 23])
def test_opsets(opset: int) -> None:
    given = ATTENTIONS["added-mask"]
    model, feeds = given.model(), given.feeds(DIMS)
    model.opset_import[0].version = opset
    found = run(softq.convert(model, bits=7, qdq=True).model, feeds)
    assert _error(found, run(given.model(), feeds)) < 0.025


def test_command_line(tmp_path: Path) -> None:
    onnx.save(ATTENTIONS["given-scores"].model(), tmp_path / "model.onnx")
    command = ["convert", str(tmp_path / "model.onnx"), str(tmp_path / "out.onnx"), "--qdq"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "stays in floats" in done.stderr
    both = CliRunner().invoke(main, [*command, "--fuse-attention"])
    assert both.exit_code == 2
    assert "qdq and fuse_attention exclude each other" in both.stderr


def test_plans_of_before_have_the_usual_peak() -> None:
    options = METHODS.get("deferred-log").configure({"weight_bits": 8})
    assert "peak" not in options.to_json()
    assert METHODS.get("deferred-log").configure({"peak": "full"}).to_json()["peak"] == "full"


_LOW = "low = Constant <value: tensor = double {%s}> ()"
_CASES: dict[str, tuple[str, bool]] = {
    "scaled": ("masked = Mul(two, scores)", True),
    "added": ("masked = Add(scores, each)", True),
    "written low": (f"{_LOW % -3e38} masked = Where(keep, scores, low)", True),
    "for each query": ("masked = Div(scores, query)", True),
    "written not low enough": (f"{_LOW % -10000.0} masked = Where(keep, scores, low)", False),
    "for each key": ("masked = Mul(scores, each)", False),
    "capped": ("masked = Tanh(scores)", False),
    "read elsewhere": ("masked = Identity(scores) other = Neg(scores)", False),
}


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("opset", [17, 18])
def test_smoothed_keys_change_no_softmax(case: str, opset: int) -> None:
    """In float64, beside NumPy; what would change another function than a softmax stays."""
    lines, smooth = _CASES[case]
    out = "other" if "other" in lines else "p"
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (double[2,3,5,4] q, double[2,3,4,7] k, double[2,3,7,4] v, bool[5,7] keep, double[7] each, double[5,1] query)
            => (double[2,3,5,4] out {", double[2,3,5,7] other" if out == "other" else ""}) {{
            two = Constant <value: tensor = double {{2.0}}> () scores = MatMul(q, k) {lines}
            p = Softmax <axis: int = -1> (masked) out = MatMul(p, v) }}"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    rng = np.random.default_rng(0)
    feeds = {
        "q": rng.normal(size=(2, 3, 5, 4)), "k": 5 + rng.normal(size=(2, 3, 4, 7)), "v": rng.normal(size=(2, 3, 7, 4)),
        "keep": rng.random((5, 7)) < 0.7, "each": rng.normal(size=7), "query": rng.uniform(1, 2, (5, 1)),
    }  # fmt: skip
    scores = feeds["q"] @ feeds["k"]
    known = {
        "scaled": 2 * scores, "added": scores + feeds["each"], "for each query": scores / feeds["query"],
        "written low": np.where(feeds["keep"], scores, -3e38), "for each key": scores * feeds["each"],
        "written not low enough": np.where(feeds["keep"], scores, -1e4), "capped": np.tanh(scores),
        "read elsewhere": scores,
    }  # fmt: skip
    assert SmoothKeys()(model).modified == smooth
    assert not SmoothKeys()(model).modified
    proto = ir.to_proto(model)
    assert any(node.op_type == "ReduceMean" for node in proto.graph.node) == smooth
    found = _reference(model, feeds)[0]
    np.testing.assert_allclose(found, softmax64(known[case]) @ feeds["v"], rtol=1e-12, atol=1e-12)


def _reference(model: ir.Model, feeds: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.float64]]:
    results = ReferenceEvaluator(ir.to_proto(model)).run(None, dict(feeds))
    return [np.asarray(result, dtype=np.float64) for result in results]


def test_keys_of_a_past_and_of_groups_are_smoothed_and_given_on_as_they_were() -> None:
    past = ATTENTIONS["past"]
    model = ir.from_proto(Attention(past.inputs, past.lines + " present = Identity(all_k)", past.out).model())
    model.graph.outputs.append(next(v for node in model.graph for v in node.outputs if v.name == "present"))
    grouped = ir.from_proto(ATTENTIONS["computed-groups"].model())
    for each, feeds in ((model, past.feeds(DIMS)), (grouped, ATTENTIONS["computed-groups"].feeds(DIMS))):
        wanted = _reference(each, feeds)
        assert SmoothKeys()(each).modified
        found = _reference(each, feeds)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
        for a, b in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_array_equal(a, b)


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: Mapping[str, NDArray[np.generic]]) -> None:
        self._left = [dict(feeds)]

    def get_next(self) -> dict[str, NDArray[np.generic]] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._left.pop() if self._left else None


@pytest.mark.parametrize(
    ("name", "method", "qdq", "scale"),
    [
        ("added-mask", "deferred-log", False, 1.0),
        ("grouped", "exact", False, 1 / 255),
        ("chosen-mask", "deferred-log", True, None),
        ("side-by-side", "consmax", False, None),
    ],
)
def test_static_quantization_takes_what_softq_says(
    name: str, method: str, qdq: bool, scale: float | None, tmp_path: Path
) -> None:
    """Products are on integers, the rows of the method in floats, also where the attention is quantized already."""
    given = ATTENTIONS[name]
    lines = given.lines.replace("out =", "result =") + " out = Sigmoid(result)"
    model, feeds = Attention(given.inputs, lines, given.out).model(), given.feeds(DIMS)
    settings = dict(METHODS.get(method).byte_weights)
    converted = softq.convert(model, method=method, settings=settings, qdq=qdq, allow_substitute=True).model
    onnx.save(converted, tmp_path / "converted.onnx")
    chosen = quantize_overrides(tmp_path / "converted.onnx")
    found = [entry["scale"].item() for (entry,) in chosen["extra_options"]["TensorQuantOverrides"].values()]
    assert found == ([] if scale is None else [pytest.approx(scale)])
    quantize_static(tmp_path / "converted.onnx", tmp_path / "quantized.onnx", _Reader(feeds), **chosen)
    quantized = onnx.load(tmp_path / "quantized.onnx")
    fused = _fused_operators(quantized, tmp_path)
    assert fused["MatMul"] == (1 if method == "consmax" else 0)
    assert fused["QLinearSigmoid"] == 1
    # The output has a byte for its range, too.
    assert (
        _error(run(quantized, feeds), run(softq.convert(model, method=method, allow_substitute=True).model, feeds))
        < 0.05
    )


def test_a_model_without_functions_has_no_overrides() -> None:
    model = ATTENTIONS["plain"].model()
    for each in (model, softq.convert(model, inline=True).model):
        with pytest.raises(UsageError, match="has no functions of softq"):
            quantize_overrides(each)
