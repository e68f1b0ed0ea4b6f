"""softq before and after other tools, as docs/quantizers.md says: each line of its table is a test here."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import softq
from softq.errors import RefusalError
from softq.modelfile import save
from softq.onnxruntime import quantize_overrides

HOME = Path(__file__).parent.parent / "models" / "mnist_vit"
MODEL = HOME / "mnist_vit.onnx"
SITES = 4
pytestmark = pytest.mark.slow
BYTES = {"weight_bits": 8, "peak": "full"}
TOLERANCE = 0.06
"""Relative error of the logits: 4 bits alone have .024, quantize_static alone .032."""

Tool = Callable[[Path, Path], object]


@pytest.fixture(scope="module")
def images() -> NDArray[np.float32]:
    with np.load(HOME / "calibration.npz") as arrays:
        return arrays["images"][:16]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class Images(CalibrationDataReader):
    def __init__(self, images: NDArray[np.float32]) -> None:
        self._left = [{"images": images}]

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._left.pop() if self._left else None


def static(source: Path, out: Path, images: NDArray[np.float32], **options: Any) -> None:
    quantize_static(source, out, Images(images), **options)


def dynamic(source: Path, out: Path) -> None:
    model = onnx.load(source)
    # onnxruntime 1.31 turns the weights of Gemm and leaves their old shapes there, which ONNX then refuses.
    del model.graph.value_info[:]
    quantize_dynamic(model, out)


def slim(source: Path, out: Path) -> None:
    onnxslim = pytest.importorskip("onnxslim")
    onnx.save(onnxslim.slim(onnx.load(source)), out)


def optimize(source: Path, out: Path) -> None:
    from onnxruntime.transformers import optimizer

    optimizer.optimize_model(str(source), model_type="vit", opt_level=0).save_model_to_file(str(out))


def halve(source: Path, out: Path, *, blocked: bool = False) -> None:
    from onnxruntime.transformers import float16

    model = onnx.load(source)
    names = [*float16.DEFAULT_OP_BLOCK_LIST, *(function.name for function in model.functions)]
    block: dict[str, Any] = {"op_block_list": names} if blocked else {}
    onnx.save(float16.convert_float_to_float16(model, keep_io_types=True, **block), out)


def convert(source: Path, out: Path, **options: Any) -> tuple[str, ...]:
    """Convert a model as a user does, and return what was said."""
    made = softq.convert(source, **options)
    save(made.model, out, source=source)
    return made.warnings


@dataclass(frozen=True)
class Ran:
    """What a model gave.

    Attributes:
        error: Of the logits against the float model, relative.
        calls: Functions of softq that are called.
        operators: How often each operator stands in the graph that onnxruntime runs.
    """

    error: float
    calls: int
    operators: Mapping[str, int]


@pytest.fixture(scope="module")
def exact(images: NDArray[np.float32]) -> NDArray[np.float32]:
    return _logits(MODEL, images)[0]


def _logits(model: Path, images: NDArray[np.float32]) -> tuple[NDArray[np.float32], Mapping[str, int]]:
    options = onnxruntime.SessionOptions()
    with tempfile.TemporaryDirectory() as folder:
        options.log_severity_level, options.optimized_model_filepath = 4, f"{folder}/fused.onnx"
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        fused = onnx.load(options.optimized_model_filepath)
    return np.asarray(session.run(None, {"images": images})[0]), Counter(node.op_type for node in fused.graph.node)


def run(model: Path, images: NDArray[np.float32], exact: NDArray[np.float32]) -> Ran:
    found, operators = _logits(model, images)
    calls = sum(node.domain == "softq" for node in onnx.load(model).graph.node)
    return Ran(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)), calls, operators)


SECOND: dict[str, Tool] = {
    "quantize_dynamic": dynamic, "onnxslim": slim, "optimizer": optimize, "float16": partial(halve, blocked=True),
}  # fmt: skip


@pytest.mark.parametrize("qdq", [False, True], ids=["functions", "qdq"])
@pytest.mark.parametrize("name", SECOND)
def test_softq_first(
    name: str, qdq: bool, images: NDArray[np.float32], exact: NDArray[np.float32], tmp_path: Path
) -> None:
    assert convert(MODEL, tmp_path / "softq.onnx", qdq=qdq) == ()
    SECOND[name](tmp_path / "softq.onnx", tmp_path / "out.onnx")
    ran = run(tmp_path / "out.onnx", images, exact)
    assert (ran.calls, ran.operators["Softmax"]) == (SITES, 0)
    assert ran.error < TOLERANCE
    assert not qdq or ran.operators["MatMulIntegerToFloat"] >= 2 * SITES


FIRST: dict[str, Tool] = {
    "quantize_dynamic": dynamic, "onnxslim": slim, "optimizer": optimize, "float16": halve,
}  # fmt: skip


@pytest.mark.parametrize("qdq", [False, True], ids=["functions", "qdq"])
@pytest.mark.parametrize("name", FIRST)
def test_softq_second(
    name: str, qdq: bool, images: NDArray[np.float32], exact: NDArray[np.float32], tmp_path: Path
) -> None:
    FIRST[name](MODEL, tmp_path / "tool.onnx")
    assert convert(tmp_path / "tool.onnx", tmp_path / "out.onnx", qdq=qdq) == ()
    ran = run(tmp_path / "out.onnx", images, exact)
    assert (ran.calls, ran.operators["Softmax"]) == (SITES, 0)
    assert ran.error < TOLERANCE
    assert not qdq or ran.operators["MatMulIntegerToFloat"] >= 2 * SITES


def test_float16_behind_softq_needs_the_names_of_the_functions(tmp_path: Path, images: NDArray[np.float32]) -> None:
    convert(MODEL, tmp_path / "softq.onnx")
    halve(tmp_path / "softq.onnx", tmp_path / "out.onnx")
    with pytest.raises(Exception, match="does not match expected type"):
        _logits(tmp_path / "out.onnx", images)


@pytest.mark.parametrize("options", [{"qdq": True}, {"settings": BYTES}], ids=["qdq", "functions"])
@pytest.mark.parametrize(
    "more",
    [{}, {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8}],
    ids=["QDQ", "QOperator"],
)
def test_quantize_static_behind_softq(
    options: dict[str, Any], more: dict[str, Any], images: NDArray[np.float32], exact: NDArray[np.float32],
    tmp_path: Path,
) -> None:  # fmt: skip
    assert convert(MODEL, tmp_path / "softq.onnx", **options) == ()
    chosen = quantize_overrides(tmp_path / "softq.onnx")
    static(tmp_path / "softq.onnx", tmp_path / "out.onnx", images, **chosen, **more)
    ran = run(tmp_path / "out.onnx", images, exact)
    assert (ran.calls, ran.operators["Softmax"], ran.operators["MatMul"]) == (SITES, 0, 0)
    assert ran.error < TOLERANCE


def test_signed_activations_of_the_operator_format_are_onnxruntimes_limit(
    images: NDArray[np.float32], tmp_path: Path
) -> None:
    convert(MODEL, tmp_path / "softq.onnx", settings=BYTES)
    chosen = quantize_overrides(tmp_path / "softq.onnx")
    static(tmp_path / "softq.onnx", tmp_path / "out.onnx", images, quant_format=QuantFormat.QOperator, **chosen)
    with pytest.raises(Exception, match="Could not find an implementation for QLinearMatMul"):
        _logits(tmp_path / "out.onnx", images)


def test_quantize_static_in_front_of_softq(
    images: NDArray[np.float32], exact: NDArray[np.float32], tmp_path: Path
) -> None:
    """Softmaxes are replaced; attentions between QuantizeLinear stay as the tool made them, and are named."""
    static(MODEL, tmp_path / "tool.onnx", images)
    assert convert(tmp_path / "tool.onnx", tmp_path / "functions.onnx") == ()
    warnings = convert(tmp_path / "tool.onnx", tmp_path / "qdq.onnx", qdq=True)
    assert len(warnings) == SITES
    assert all("stays in floats: its weights are read by QuantizeLinear" in warning for warning in warnings)
    for name in ("functions", "qdq"):
        ran = run(tmp_path / f"{name}.onnx", images, exact)
        assert (ran.calls, ran.operators["Softmax"]) == (SITES, 0)
        assert ran.error < TOLERANCE


def test_the_operator_format_in_front_of_softq(
    images: NDArray[np.float32], exact: NDArray[np.float32], tmp_path: Path
) -> None:
    """QLinearSoftmax stays; a Softmax that was left out is not known for an attention's: it is replaced if named."""
    operators = {"quant_format": QuantFormat.QOperator}
    static(MODEL, tmp_path / "tool.onnx", images, **operators)
    with pytest.raises(RefusalError, match="QLinearSoftmax, which is not opened"):
        softq.convert(tmp_path / "tool.onnx", require=True)
    static(MODEL, tmp_path / "left.onnx", images, **operators, op_types_to_quantize=["MatMul", "Gemm", "Conv"])
    (warning,) = convert(tmp_path / "left.onnx", tmp_path / "kept.onnx")
    assert "not recognised as attention (QLinearMatMul of node " in warning
    convert(tmp_path / "left.onnx", tmp_path / "out.onnx", sites=["softmax*"])
    ran = run(tmp_path / "out.onnx", images, exact)
    assert (ran.calls, ran.operators["Softmax"]) == (SITES, 0)
    assert ran.error < TOLERANCE


def test_a_fused_attention_is_opened(tmp_path: Path) -> None:
    """What the optimizer makes of an attention is one operator, which convert opens; behind softq it stays open."""
    text = """<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
        g (float[2,5,64] q, float[2,5,64] k, float[2,5,64] v) => (float[2,5,64] out) {
            out = com.microsoft.MultiHeadAttention <num_heads: int = 4> (q, k, v) }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=(2, 5, 64)).astype(np.float32) for name in "qkv"}
    made = softq.convert(model, qdq=True)
    assert made.warnings == ()
    onnx.save(model, tmp_path / "model.onnx")
    onnx.save(made.model, tmp_path / "out.onnx")
    results = [
        np.asarray(onnxruntime.InferenceSession(tmp_path / name).run(None, feeds)[0])
        for name in ("model.onnx", "out.onnx")
    ]
    assert np.linalg.norm(results[1] - results[0]) < 0.05 * np.linalg.norm(results[0])
