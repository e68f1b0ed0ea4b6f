"""`convert --qdq` where masks are written over scores that are cast in front of the softmax, as in half precision."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import softq
from tests.attention import run


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("low", [-np.inf, -65504.0, -10000.0])
@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16], ids=["float", "float16"])
def test_masks_in_front_of_a_cast(low: float, kind: int) -> None:
    name = "float" if kind == onnx.TensorProto.FLOAT else "float16"
    kinds = f"{name}[2,4,5,16] q, {name}[2,4,7,16] k, {name}[2,4,7,16] v, bool[2,1,1,7] keep, {name}[1] low"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({kinds}) => ({name}[2,4,5,16] out) {{
            kt = Transpose <perm: ints = [0, 1, 3, 2]> (k) scores = MatMul(q, kt) masked = Where(keep, scores, low)
            wide = Cast <to: int = 1> (masked) p = Softmax <axis: int = -1> (wide) narrow = Cast <to: int = {kind}> (p)
            out = MatMul(narrow, v) }}""")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([low], dtype), "low"))
    del model.graph.input[-1]
    rng = np.random.default_rng(0)
    feeds = {key: rng.normal(size=(2, 4, 5 if key == "q" else 7, 16)).astype(dtype) for key in "qkv"}
    keep = {"keep": rng.random((2, 1, 1, 7)) < 0.7}
    made = softq.convert(model, bits=7, qdq=True)
    assert made.warnings == ()
    read = {value for node in made.model.graph.node for value in node.input} | {"out"}
    assert all(read.intersection(node.output) for node in made.model.graph.node)
    found, exact = (run(each, feeds | keep).astype(np.float64) for each in (made.model, model))
    assert np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact)
