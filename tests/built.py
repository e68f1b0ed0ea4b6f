"""Graphs written as text, built and compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser

import softq

Array = np.ndarray[Any, Any]


def check(
    graph: str | onnx.ModelProto,
    feeds: Sequence[Mapping[str, Array]],
    folder: Path,
    *,
    relative: float = 1e-6,
    absolute: float = 1e-6,
    opset: int = 21,
) -> None:
    """Build a graph once and compare each run, in one context, with onnxruntime: shapes, types, and values."""
    model = graph
    if isinstance(graph, str):
        model = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')
    assert isinstance(model, onnx.ModelProto)
    onnx.checker.check_model(model)
    softq.build(model, folder / "built", target="cpu")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with softq.load(folder / "built") as built:
        for feed in feeds:
            found, wanted = built(dict(feed)), session.run(None, dict(feed))
            for output, value in zip(session.get_outputs(), wanted, strict=True):
                got, want = np.asarray(found[output.name]), np.asarray(value)
                assert (got.shape, got.dtype) == (want.shape, want.dtype), output.name
                if want.dtype.kind in "iub":
                    np.testing.assert_array_equal(got, want)
                else:
                    # As float64: NumPy has no tolerance for some of the narrow types.
                    compared = got.astype(np.float64), want.astype(np.float64)
                    np.testing.assert_allclose(*compared, rtol=relative, atol=absolute)
