"""The committed models through TVM, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import softq
from tests.native import Executor, build_program

pytest.importorskip("tvm")

MODELS = Path(__file__).parent.parent / "models"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("method", ["exact", "deferred-log"])
@pytest.mark.parametrize("name", ["mnist_vit", "wikipedia_lm"])
def test_models_equal_onnxruntime(name: str, method: str) -> None:
    path = MODELS / name / f"{name}.onnx"
    model = softq.convert(path, method=method).model
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    program = build_program(model)
    assert {s.site for s in program.steps if s.site} == {s.id for s in softq.inspect(path)}
    run, rng = Executor(program), np.random.default_rng(0)
    for batch, length in ((1, 1), (2, 7), (1, 256), (3, 33)):
        inputs: dict[str, np.ndarray] = {}
        for given in session.get_inputs():
            shape = [d if isinstance(d, int) else {"batch": batch, "seq": length}[str(d)] for d in given.shape]
            dtype = {"tensor(int64)": np.int64, "tensor(uint8)": np.uint8}[given.type]
            inputs[given.name] = rng.integers(0, 255, shape).astype(dtype)
        expected = session.run(None, inputs)
        found = run(inputs)
        for output, reference in zip(session.get_outputs(), expected, strict=True):
            # Sums of a few hundred float32 products in another order, over values of about 20; where such a difference
            # moves a score over the boundary of a code, that weight changes, and with it the row's result.
            error = np.abs(found[output.name].astype(np.float64) - np.asarray(reference, np.float64))
            assert np.quantile(error, 0.99) < 1e-4
            assert error.max() < (1e-4 if method == "exact" else 1e-2)
