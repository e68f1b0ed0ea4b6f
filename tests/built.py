"""Graphs written as text, built and compared with onnxruntime or with ONNX's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser
from onnx.reference import ReferenceEvaluator

import softq

Array = np.ndarray[Any, Any]


def causes(error: BaseException) -> list[BaseException]:
    """Return what an error was raised from, and what that was."""
    return [] if error.__cause__ is None else [error.__cause__, *causes(error.__cause__)]


def check(
    graph: str | onnx.ModelProto,
    feeds: Sequence[Mapping[str, Array]],
    folder: Path,
    *,
    relative: float = 1e-6,
    absolute: float = 1e-6,
    opset: int = 21,
    reference: bool = False,
) -> None:
    """Build a graph once and compare each run, in one context: shapes, types, and values.

    Args:
        graph: The model, or the text of its graph.
        feeds: The inputs of each run.
        folder: Where to build.
        relative: Tolerance of floats.
        absolute: Tolerance of floats.
        opset: Operator set of a text.
        reference: Whether to compare with ONNX's reference, where onnxruntime has no kernel, and not with onnxruntime.
    """
    model = graph
    if isinstance(graph, str):
        model = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')
    assert isinstance(model, onnx.ModelProto)
    onnx.checker.check_model(model)
    softq.build(model, folder / "built", target="cpu")
    if reference:
        run = ReferenceEvaluator(model).run
    else:
        run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run
    with softq.load(folder / "built") as built:
        for feed in feeds:
            found, wanted = built(dict(feed)), run(None, dict(feed))
            for output, value in zip(model.graph.output, wanted, strict=True):
                got, want = np.asarray(found[output.name]), np.asarray(value)
                assert (got.shape, got.dtype) == (want.shape, want.dtype), output.name
                if want.dtype.kind in "iub":
                    np.testing.assert_array_equal(got, want)
                else:
                    # As float64: NumPy has no tolerance for some of the narrow types.
                    compared = got.astype(np.float64), want.astype(np.float64)
                    np.testing.assert_allclose(*compared, rtol=relative, atol=absolute)
