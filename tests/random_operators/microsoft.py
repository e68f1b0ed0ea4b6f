"""onnxruntime's own operators that join others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_graph import FLOAT, I32, U8, Draw, Graph
from tests.random_operators.pointwise import unary
from tests.random_operators.quantized import codes


def _matmul(g: Graph) -> None:
    turned = [g.rng.randint(0, 1) for _ in range(2)]
    shapes = [(2, *pair[:: -1 if t else 1]) for pair, t in zip(((3, 5), (5, 4)), turned, strict=True)]
    fixed = g.rng.random() < 0.5
    a, b = (g.input(FLOAT, shape, fixed) for shape in shapes)
    g.add("com.microsoft::FusedMatMul", [a, b], transA=turned[0], transB=turned[1], alpha=0.5)


def _gemm(g: Graph) -> None:
    a = g.pick((FLOAT,), rank=2)
    inputs = [a, g.input(FLOAT, (a.shape[1], 4)), g.input(FLOAT, (4,))]
    g.add("com.microsoft::FusedGemm", inputs, activation=g.rng.choice(("Relu", "Tanh")))


def _conv(g: Graph) -> None:
    x = g.input(FLOAT, (1, 3, 6, 6), g.fix(1))
    options: dict[str, Any] = {"activation": "Relu"}
    if g.rng.random() < 0.5:
        options = {"activation": "Clip", "activation_params": [-0.5, 0.7]}
    g.add("com.microsoft::FusedConv", [x, g.weight(4, 3, 3, 3), g.weight(4)], pads=[1, 1, 1, 1], **options)


def _bias_gelu(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT,), least=1)
        g.add(f"com.microsoft::{operator}", [x, g.input(FLOAT, x.shape[-1:])])

    return draw


def _skip(operator: str, biases: int) -> Draw:
    def draw(g: Graph) -> None:
        fixed = g.fix(2)
        x, skip = (g.input(FLOAT, (2, 3, 8), fixed) for _ in range(2))
        g.add(f"com.microsoft::{operator}", [x, skip, *(g.weight(8) for _ in range(1 + biases))], epsilon=1e-5)

    return draw


def _simplified(g: Graph) -> None:
    # onnxruntime keeps it in ONNX's domain.
    x = g.pick((FLOAT,), least=2)
    g.add("SimplifiedLayerNormalization", [x, g.input(FLOAT, x.shape[-1:])], axis=-1, epsilon=1e-5)


def _embedding(g: Graph) -> None:
    ids, segments = (g.given(g.data(I32, (2, 5)) % n) for n in (9, 2))
    tables = [g.constant(g.data(FLOAT, (n, 8))) for n in (9, 7, 2)]
    mask = [g.given(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32))] if g.rng.random() < 0.5 else []
    ends = [g.weight(8) for _ in range(2)]
    g.add("com.microsoft::EmbedLayerNormalization", [ids, segments, *tables, *ends, *mask], results=2, epsilon=1e-5)


def _pool(g: Graph) -> None:
    x = g.given(codes(g, U8, (1, 6, 7, 3)), fixed=g.rng.random() < 0.5)
    g.add("com.microsoft::NhwcMaxPool", [x], kernel_shape=[2, 3], strides=[2, 1])


def _bits(g: Graph) -> None:
    bits, rows, inner, block = g.rng.choice((4, 8)), 6, 32, 16
    x = g.input(FLOAT, (2, 3, inner), g.fix(2))
    packed = g.constant(codes(g, U8, (rows, inner // block, block * bits // 8)))
    scales = g.constant(np.abs(g.data(FLOAT, (rows * inner // block,))) * np.float32(0.1))
    g.add("com.microsoft::MatMulNBits", [x, packed, scales], N=rows, K=inner, bits=bits, block_size=block)


OPERATORS: dict[str, Draw] = {
    "com.microsoft::FusedMatMul": _matmul,
    "com.microsoft::FusedGemm": _gemm,
    "com.microsoft::FusedConv": _conv,
    "com.microsoft::BiasGelu": _bias_gelu("BiasGelu"),
    "com.microsoft::FastGelu": _bias_gelu("FastGelu"),
    "com.microsoft::Gelu": unary("com.microsoft::Gelu"),
    "com.microsoft::QuickGelu": unary("com.microsoft::QuickGelu"),
    "com.microsoft::SkipLayerNormalization": _skip("SkipLayerNormalization", 2),
    "com.microsoft::SkipSimplifiedLayerNormalization": _skip("SkipSimplifiedLayerNormalization", 0),
    "SimplifiedLayerNormalization": _simplified,
    "com.microsoft::EmbedLayerNormalization": _embedding,
    "com.microsoft::NhwcMaxPool": _pool,
    "com.microsoft::MatMulNBits": _bits,
}
