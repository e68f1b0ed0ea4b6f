"""Small attention models for tests, as ONNX text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

Feed = Mapping[str, NDArray[np.generic]]

HEADS, QUERIES, WIDTH = 2, 5, 4


def attention(
    *, opset: int = 18, ir_version: int = 8, dtype: str = "float", mask: str = "", behind: str = "", keys: str = "K"
) -> onnx.ModelProto:
    """Return scores -> (mask) -> Softmax -> (behind) -> MatMul with v.

    Args:
        opset: Version of the default domain.
        ir_version: IR version.
        dtype: Element type of scores and v.
        mask: Nodes that make `masked` from `scores` (and the input `keep`, bool [batch, 1, Q, K]).
        behind: Nodes that make `p` from `raw`, the softmax's output.
        keys: The length of a row: a number or a symbol.
    """
    text = f"""
    <ir_version: {ir_version}, opset_import: ["" : {opset}]>
    attention ({dtype}[batch, {HEADS}, {QUERIES}, {keys}] scores, {dtype}[batch, {HEADS}, {keys}, {WIDTH}] v
               {f", bool[batch, 1, {QUERIES}, {keys}] keep" if "keep" in mask else ""})
        => ({dtype}[batch, {HEADS}, {QUERIES}, {WIDTH}] out)
    {{
        {mask or "masked = Identity(scores)"}
        raw = Softmax <axis = -1> (masked)
        {behind or "p = Identity(raw)"}
        out = MatMul(p, v)
    }}
    """
    return onnx.parser.parse_model(text)


def inputs(
    *, batch: int = 3, keys: int = 7, dtype: str = "float32", keep: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Return random inputs; with `keep`, a mask that hides about a third of the keys, the first query's all."""
    rng = np.random.default_rng(0)
    made: dict[str, NDArray[np.generic]] = {
        "scores": (rng.normal(size=(batch, HEADS, QUERIES, keys)) * 3).astype(dtype),
        "v": rng.normal(size=(batch, HEADS, keys, WIDTH)).astype(dtype),
    }
    if keep:
        mask = rng.random((batch, 1, QUERIES, keys)) < 0.67
        mask[:, :, 0] = False
        mask[:, :, 1, 0] = True
        made["keep"] = mask
    return made


def run(model: onnx.ModelProto, feed: Feed) -> NDArray[np.float32]:
    """Return the model's first output, which is of floats, from onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feed))[0])


def softmax64(x: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the softmax over the last axis in float64; NaN for a row of -inf only."""
    y = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(y - y.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)
