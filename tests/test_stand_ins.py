"""Shapes behind onnxruntime's own operators are those that its kernels give."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser

from softq.graph.facts import Facts
from softq.graph.view import ModelView

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 8)).astype(np.float32)
W = RNG.normal(size=(8, 24)).astype(np.float32)
LINE = RNG.normal(size=8).astype(np.float32)
IDS = np.array([[1, 2, 0], [3, 1, 1]], np.int32)
CASES = {
    "Gelu (x)": {},
    "QuickGelu (x)": {},
    "FastGelu (x, line)": {"line": LINE},
    "BiasGelu (x, line)": {"line": LINE},
    "SkipLayerNormalization (x, skip, line)": {"skip": X, "line": LINE},
    "SkipSimplifiedLayerNormalization (x, skip, line)": {"skip": X, "line": LINE},
    "Attention <num_heads: int = 2> (x, w, b)": {"w": W, "b": np.tile(LINE, 3)},
    "Attention <num_heads: int = 2, qkv_hidden_sizes: ints = [8, 8, 12]> (x, w, b)": {
        "w": RNG.normal(size=(8, 28)).astype(np.float32),
        "b": RNG.normal(size=28).astype(np.float32),
    },
    "MultiHeadAttention <num_heads: int = 2> (x, k, v)": {"k": X[:, :2], "v": RNG.normal(size=(2, 2, 12)).astype("f4")},
}
TYPES = {"float32": "float", "int32": "int32"}


@pytest.mark.parametrize("call", CASES)
def test_the_shape_is_that_of_the_kernel(call: str) -> None:
    given = {"x": X, **CASES[call]}
    # Weights are initializers; the others are inputs without a shape that could be copied.
    weights = [name for name in ("w", "b", "line") if name in given]
    inputs = [f"float[b, {'s' if name == 'x' else 't'}, {a.shape[-1]}] {name}" for name, a in given.items()
              if name not in weights]  # fmt: skip
    consts = "".join(
        f"{name} = Constant <value: tensor = float[{','.join(map(str, given[name].shape))}] "
        f"{{{','.join(map(repr, given[name].ravel().tolist()))}}}> ()\n"
        for name in weights
    )
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    model = parser.parse_model(
        f"{head} g ({', '.join(inputs)}) => (y) {{ {consts} h = com.microsoft.{call}\n y = Relu (h) }}"
    )
    model.graph.output[0].type.tensor_type.elem_type = 1
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {name: a for name, a in given.items() if name not in weights})

    work = ir.from_proto(model)
    facts = Facts(ModelView(work))
    value = next(node for node in work.graph if node.op_type == "Relu").inputs[0]
    shape = facts.shape(value)
    assert shape is not None
    assert len(shape) == np.asarray(y).ndim
    assert shape[-1] == np.asarray(y).shape[-1]
    assert facts.dtype(value) == ir.DataType.FLOAT


def test_types_go_through_an_embedding_and_its_mask() -> None:
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    body = "".join(
        f"{name} = Constant <value: tensor = float[4, 2] {{1,2,3,4,5,6,7,8}}> ()\n" for name in ("words", "places")
    )
    body += "".join(f"{name} = Constant <value: tensor = float[2] {{1, 0.5}}> ()\n" for name in ("gamma", "beta"))
    text = f"""{head} g (int32[b, s] ids, int32[b, s] kept) => (y, m) {{ {body}
        y, m = com.microsoft.EmbedLayerNormalization (ids, , words, places, , gamma, beta, kept) }}"""
    model = parser.parse_model(text)
    for output, kind in zip(model.graph.output, (1, 6), strict=True):
        output.type.tensor_type.elem_type = kind
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y, m = (np.asarray(a) for a in session.run(None, {"ids": IDS, "kept": np.ones_like(IDS)}))
    work = ir.from_proto(model)
    for output in work.graph.outputs:
        output.type = output.shape = None
    facts = Facts(ModelView(work))
    first, second = (facts.shape(value) for value in work.graph.outputs)
    assert (len(first or ()), (first or (None,))[-1]) == (y.ndim, y.shape[-1])
    assert len(second or ()) == m.ndim
    assert [facts.dtype(value) for value in work.graph.outputs] == [ir.DataType.FLOAT, ir.DataType.INT32]
