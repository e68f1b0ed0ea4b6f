"""Operators on quantized tensors, ONNX's and onnxruntime's.

Codes that were rounded may be one off where another order of operations gives a number near the middle of two; none of
them is taken by another node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.built import Array
from tests.random_graph import BOOL, FLOAT, I8, I32, NUMPY, U8, Draw, Drawn, Fixed, Graph


def codes(g: Graph, dtype: int, shape: tuple[int, ...]) -> Array:
    """Return elements from the whole range of an integer type."""
    info = np.iinfo(NUMPY[dtype])
    return np.random.default_rng(g.rng.getrandbits(32)).integers(info.min, info.max, shape, NUMPY[dtype], endpoint=True)


def _scale(g: Graph, value: float = 0.05) -> Drawn:
    return g.constant(value, FLOAT)


def _zero(g: Graph, dtype: int) -> Drawn:
    return g.constant(g.rng.choice((0, 3, 100)), dtype)


def _quantized(g: Graph, dtype: int, shape: tuple[int, ...], known: bool = False, fixed: Fixed = False) -> list[Drawn]:
    """Return a tensor of codes, its scale and its zero point."""
    array = codes(g, dtype, shape)
    return [g.constant(array) if known else g.given(array, fixed), _scale(g), _zero(g, dtype)]


def _result(g: Graph, dtype: int, scale: float = 0.1) -> list[Drawn]:
    return [_scale(g, scale), _zero(g, dtype)]


def _type(g: Graph) -> int:
    return g.rng.choice((U8, I8))


def _quantize(domain: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT,), least=1, exact=True)
        numbers = [_scale(g, 0.25), g.constant(3, _type(g))]
        g.add(f"{domain}QuantizeLinear", [x, *numbers])

    return draw


def _dequantize(domain: str) -> Draw:
    def draw(g: Graph) -> None:
        dtype, axis = _type(g), g.rng.choice((None, 1))
        x = g.given(codes(g, dtype, (2, 3, 5)), fixed=g.fix(1))
        if axis is None:
            g.add(f"{domain}DequantizeLinear", [x, _scale(g), _zero(g, dtype)])
            return
        scales, zeros = g.constant([0.1, 0.2, 0.3], FLOAT), g.constant([0, 1, 5], dtype)
        g.add(f"{domain}DequantizeLinear", [x, scales, zeros], axis=1)

    return draw


def _dynamic_quantize(g: Graph) -> None:
    g.add("DynamicQuantizeLinear", [g.pick((FLOAT,), least=1, exact=True)], results=3, last=True)


def _matmul_integer(g: Graph) -> None:
    a, b = _type(g), _type(g)
    shape = g.rng.choice(((3, 7), (2, 3, 7)))
    x = g.given(codes(g, a, shape), g.fix(-1))
    w = codes(g, b, (7, 4))
    weights = g.constant(w) if g.rng.random() < 0.7 else g.given(w)
    g.add("MatMulInteger", [x, weights, _zero(g, a), _zero(g, b)])


def _conv_integer(g: Graph) -> None:
    # onnxruntime takes unsigned weights alone beside unsigned images.
    x = g.given(codes(g, U8, (2, 4, 6, 5)), g.fix(1))
    w = g.constant(codes(g, U8, (6, 4, 3, 3)))
    g.add("ConvInteger", [x, w, _zero(g, U8), _zero(g, U8)], pads=[g.rng.randint(0, 1)] * 4)


def _qlinear_matmul(g: Graph) -> None:
    dtype = _type(g)
    a = _quantized(g, dtype, g.rng.choice(((3, 7), (2, 3, 7))), fixed=g.fix(-1))
    g.add("QLinearMatMul", [*a, *_quantized(g, dtype, (7, 4), known=True), *_result(g, dtype, 1.0)], last=True)


def _qlinear_conv(g: Graph) -> None:
    dtype = _type(g)
    x, w = _quantized(g, dtype, (1, 4, 6, 5), fixed=g.fix(1)), _quantized(g, dtype, (6, 4, 3, 3), known=True)
    # onnxruntime takes no zero point of weights but one for all, and 0 for signed ones.
    w[2] = g.constant(0 if dtype == I8 else 100, dtype)
    bias = [g.constant(codes(g, I32, (6,)) // 2**18)] if g.rng.random() < 0.5 else []
    g.add("QLinearConv", [*x, *w, *_result(g, dtype, 2.0), *bias], last=True, pads=[g.rng.randint(0, 1)] * 4)


def _elementwise(operator: str, count: int, **attributes: Any) -> Draw:
    def draw(g: Graph) -> None:
        dtype = _type(g)
        tensors = [v for _ in range(count) for v in _quantized(g, dtype, (2, 3, 5))]
        g.add(f"com.microsoft::{operator}", [*tensors, *_result(g, dtype)], last=True, **attributes)

    return draw


def _average_pool(g: Graph) -> None:
    dtype = _type(g)
    x = _quantized(g, dtype, (1, 3, 6, 5))
    g.add("com.microsoft::QLinearAveragePool", [*x, *_result(g, dtype)], last=True, kernel_shape=[2, 2])


def _global_pool(g: Graph) -> None:
    dtype = _type(g)
    x = _quantized(g, dtype, (1, 3, 6, 5))
    g.add("com.microsoft::QLinearGlobalAveragePool", [*x, *_result(g, dtype)], last=True, channels_last=0)


def _concat(g: Graph) -> None:
    dtype = _type(g)
    parts = [*_quantized(g, dtype, (2, 3)), *_quantized(g, dtype, (2, 3))]
    g.add("com.microsoft::QLinearConcat", [*_result(g, dtype), *parts], last=True, axis=g.rng.randint(0, 1))


def _where(g: Graph) -> None:
    dtype = _type(g)
    chosen = g.given(g.data(BOOL, (2, 3)), fixed=False)
    parts = [*_quantized(g, dtype, (2, 3)), *_quantized(g, dtype, (2, 3))]
    g.add("com.microsoft::QLinearWhere", [chosen, *parts, *_result(g, dtype)], last=True)


def _softmax(g: Graph) -> None:
    dtype = _type(g)
    x = _quantized(g, dtype, (2, 3, 5))
    result = [_scale(g, 1 / 256), g.constant(0 if dtype == U8 else -128, dtype)]
    g.add("com.microsoft::QLinearSoftmax", [*x, *result], last=True, axis=-1, opset=13)


def _dynamic_matmul(g: Graph) -> None:
    dtype = _type(g)
    w = _quantized(g, dtype, (7, 4), known=True)
    g.add("com.microsoft::DynamicQuantizeMatMul", [g.input(FLOAT, (3, 7), g.fix(-1)), *w], last=True)


def _integer_to_float(g: Graph) -> None:
    dtype = _type(g)
    a, b = _quantized(g, U8, (2, 3, 7), fixed=g.fix(-1)), _quantized(g, dtype, (7, 4), known=True)
    g.add("com.microsoft::MatMulIntegerToFloat", [a[0], b[0], a[1], b[1], a[2], b[2]])


def _gemm(g: Graph) -> None:
    a, b = _quantized(g, U8, (3, 7), fixed=g.fix(-1)), _quantized(g, _type(g), (7, 4), known=True)
    bias = g.constant(codes(g, I32, (4,)) // 2**18)
    quantized = _result(g, U8, 1.0) if g.rng.random() < 0.5 else []
    g.add("com.microsoft::QGemm", [*a, *b, bias, *quantized], last=True)


OPERATORS: dict[str, Draw] = {
    "QuantizeLinear": _quantize(""),
    "com.microsoft::QuantizeLinear": _quantize("com.microsoft::"),
    "DequantizeLinear": _dequantize(""),
    "com.microsoft::DequantizeLinear": _dequantize("com.microsoft::"),
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
    **{
        f"com.microsoft::{name}": _elementwise(name, count, **more)
        for name, count, more in (
            ("QLinearAdd", 2, {}),
            ("QLinearMul", 2, {}),
            ("QLinearSigmoid", 1, {}),
            ("QLinearLeakyRelu", 1, {"alpha": 0.2}),
        )
    },
    "com.microsoft::QLinearAveragePool": _average_pool,
    "com.microsoft::QLinearGlobalAveragePool": _global_pool,
    "com.microsoft::QLinearConcat": _concat,
    "com.microsoft::QLinearWhere": _where,
    "com.microsoft::QLinearSoftmax": _softmax,
    "com.microsoft::DynamicQuantizeMatMul": _dynamic_matmul,
    "com.microsoft::MatMulIntegerToFloat": _integer_to_float,
    "com.microsoft::QGemm": _gemm,
}
