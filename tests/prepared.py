"""What tests of passes that prepare models share: running a pass with all that every pass owes, both runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import parser
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[np.generic]
Arrays = Mapping[str, Array]


def model(text: str, opset: int = 18, **domains: int) -> onnx.ModelProto:
    """Return a model from the text of its graph; domains by name with `_` for `.`."""
    imports = ", ".join([f'"": {opset}', *(f'"{name.replace("_", ".")}": {v}' for name, v in domains.items())])
    return parser.parse_model(f"<ir_version: {8 if opset < 21 else 10}, opset_import: [{imports}]>\n{text}")


def applied(step: ir.passes.InPlacePass, proto: onnx.ModelProto, *, check: bool = True) -> onnx.ModelProto:
    """Return what the pass makes of the model, and check that it tells the truth, ends, and keeps the interface."""
    before = ir.from_proto(proto)
    unchanged = ir.to_proto(before).SerializeToString(deterministic=True)
    result = step(before)
    assert result.model is before
    after = ir.to_proto(before)
    assert result.modified == (after.SerializeToString(deterministic=True) != unchanged)
    again = step(before)
    assert not again.modified
    assert ir.to_proto(before).SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True)
    assert [value.name for value in after.graph.input] == [value.name for value in proto.graph.input]
    assert [value.name for value in after.graph.output] == [value.name for value in proto.graph.output]
    if check:
        onnx.checker.check_model(after, full_check=True)
    return after


def operators(proto: onnx.ModelProto) -> Counter[str]:
    """Return how often each operator stands in the main graph."""
    return Counter(node.op_type for node in proto.graph.node)


def by_onnxruntime(proto: onnx.ModelProto, feed: Arrays) -> list[Array]:
    """Return the outputs, computed without onnxruntime's own rewrites."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feed))]


def by_reference(proto: onnx.ModelProto, feed: Arrays) -> list[Array]:
    """Return the outputs as onnx's reference computes them."""
    return [np.asarray(output) for output in ReferenceEvaluator(proto).run(None, dict(feed))]


def assert_close(ours: list[Array], theirs: list[Array], *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Assert equal types, shapes, and values up to the tolerances; none by default."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(a, b)


def assert_same(before: onnx.ModelProto, after: onnx.ModelProto, feed: Arrays) -> None:
    """Assert that two models compute exactly the same in onnxruntime."""
    assert_close(by_onnxruntime(after, feed), by_onnxruntime(before, feed))


def normal(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Return random numbers around zero."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
