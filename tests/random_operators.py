"""How a node of each operator is drawn for a random graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.random_graph import BOOL, DOUBLE, FLOAT, I8, I32, I64, U8, Draw, Graph, broadcast

NUMBERS = (FLOAT, I32, I64)


def _unary(operator: str, dtypes: Sequence[int] = (FLOAT,), exact: bool = False, **attributes: Any) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick(dtypes, exact=exact)
        g.add(operator, [x], [x.shape], x.dtype, **attributes)

    return draw


def _binary(operator: str, dtypes: Sequence[int], result: int | None = None, exact: bool = False) -> Draw:
    def draw(g: Graph) -> None:
        a = g.pick(dtypes, exact=exact)
        b = g.like(a)
        if exact and not b.exact:
            b = g.input(a.dtype, a.shape)
        g.add(operator, [a, b], [broadcast(a, b)], a.dtype if result is None else result)

    return draw


def _reduce(operator: str, dtypes: Sequence[int] = (FLOAT,)) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick(dtypes, least=1)
        axes = sorted(g.rng.sample(range(len(x.shape)), g.rng.randint(1, len(x.shape))))
        keep = g.rng.randint(0, 1)
        shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
        named = [a - len(x.shape) if g.rng.random() < 0.5 else a for a in axes]
        g.add(operator, [x, g.ints(*named)], [tuple(shape)], x.dtype, keepdims=keep)

    return draw


def _arg(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT, I32), least=1, exact=True)
        axis, keep = g.rng.randrange(len(x.shape)), g.rng.randint(0, 1)
        shape = tuple(1 if i == axis else d for i, d in enumerate(x.shape) if keep or i != axis)
        g.add(operator, [x], [shape], I64, axis=axis, keepdims=keep, select_last_index=g.rng.randint(0, 1))

    return draw


def _cast(g: Graph) -> None:
    x = g.pick((FLOAT, DOUBLE, I32, I64, BOOL, U8, I8), exact=True)
    to = g.rng.choice((FLOAT, DOUBLE, I32, I64, BOOL))
    g.add("Cast", [x], [x.shape], to, to=to)


def _transpose(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    perm = g.rng.sample(range(len(x.shape)), len(x.shape))
    g.add("Transpose", [x], [tuple(x.shape[i] for i in perm)], x.dtype, moves=True, perm=perm)


def _reshape(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    cut = g.rng.randint(0, len(x.shape))
    shape = (math.prod(x.shape[:cut]), math.prod(x.shape[cut:]))
    target = [-1, shape[1]] if g.rng.random() < 0.5 and shape[1] else list(shape)
    g.add("Reshape", [x, g.ints(*target)], [shape], x.dtype, moves=True)


def _flatten(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    axis = g.rng.randint(0, len(x.shape))
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    g.add("Flatten", [x], [shape], x.dtype, moves=True, axis=axis)


def _unsqueeze(g: Graph) -> None:
    x = g.pick((FLOAT, I64))
    axis = g.rng.randint(0, len(x.shape))
    g.add("Unsqueeze", [x, g.ints(axis)], [(*x.shape[:axis], 1, *x.shape[axis:])], x.dtype, moves=True)


def _squeeze(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones:
        axis = g.rng.choice(ones)
        shape = tuple(d for i, d in enumerate(x.shape) if i != axis)
        g.add("Squeeze", [x, g.ints(axis)], [shape], x.dtype, moves=True)


def _slice(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    axis = g.rng.randrange(len(x.shape))
    start, end, step = g.rng.randint(-8, 8), g.rng.randint(-8, 8), g.rng.choice((1, 1, 2, -1, -2))
    length = len(range(x.shape[axis])[start:end:step])
    if length and (step > 0 or end >= 0):
        shape = tuple(length if i == axis else d for i, d in enumerate(x.shape))
        g.add("Slice", [x, *(g.ints(n) for n in (start, end, axis, step))], [shape], x.dtype, moves=True)


def _concat(g: Graph) -> None:
    a = g.pick((FLOAT, I64), least=1)
    axis = g.rng.randrange(len(a.shape))
    b = g.input(a.dtype, [g.rng.choice((1, 2, 4)) if i == axis else d for i, d in enumerate(a.shape)])
    shape = tuple(d + b.shape[axis] if i == axis else d for i, d in enumerate(a.shape))
    g.add("Concat", [a, b], [shape], a.dtype, moves=True, axis=axis)


def _split(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    axis = g.rng.randrange(len(x.shape))
    if x.shape[axis] > 1:
        first = g.rng.randint(1, x.shape[axis] - 1)
        parts = (first, x.shape[axis] - first)
        shapes = [tuple(part if i == axis else d for i, d in enumerate(x.shape)) for part in parts]
        g.add("Split", [x, g.ints(*parts)], shapes, x.dtype, moves=True, axis=axis)


def _pad(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    mode = g.rng.choice(("constant", "constant", "edge", "reflect"))
    pads = [[g.rng.randint(0, min(2, d - 1) if mode == "reflect" else 2) for d in x.shape] for _ in range(2)]
    shape = tuple(d + a + b for d, a, b in zip(x.shape, *pads, strict=True))
    g.add("Pad", [x, g.ints(*pads[0], *pads[1])], [shape], x.dtype, moves=True, mode=mode)


def _expand(g: Graph) -> None:
    x = g.pick((FLOAT, I64))
    shape = (2, *(3 if d == 1 else d for d in x.shape))
    # Axes that stay are asked for as 1: a name is not known to be a number.
    g.add("Expand", [x, g.ints(2, *(3 if d == 1 else 1 for d in x.shape))], [shape], x.dtype, moves=True)


def _tile(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    repeats = [g.rng.randint(1, 2) for _ in x.shape]
    shape = tuple(d * r for d, r in zip(x.shape, repeats, strict=True))
    g.add("Tile", [x, g.ints(*repeats)], [shape], x.dtype, moves=True)


def _gather(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    axis = g.rng.randrange(len(x.shape))
    at = np.array([[g.rng.randrange(-x.shape[axis], x.shape[axis]) for _ in range(2)] for _ in range(3)])
    shape = (*x.shape[:axis], 3, 2, *x.shape[axis + 1 :])
    g.add("Gather", [x, g.constant(at)], [shape], x.dtype, moves=True, axis=axis)


def _where(g: Graph) -> None:
    a = g.pick((FLOAT, I64))
    b, chosen = g.like(a), g.like(a, BOOL)
    g.add("Where", [chosen, a, b], [broadcast(chosen, a, b)], a.dtype, moves=True)


def _matmul(g: Graph) -> None:
    a = g.pick((FLOAT,), least=2)
    b = g.input(FLOAT, [a.shape[-1], g.rng.choice((1, 4, 6))])
    g.add("MatMul", [a, b], [(*a.shape[:-1], b.shape[-1])], FLOAT)


def _gemm(g: Graph) -> None:
    a, by = g.pick((FLOAT,), rank=2), g.rng.randint(0, 1)
    n = g.rng.choice((1, 4, 6))
    b = g.input(FLOAT, [n, a.shape[1]] if by else [a.shape[1], n])
    c = g.input(FLOAT, g.rng.choice(([n], [1, n], [a.shape[0], 1])))
    g.add("Gemm", [a, b, c], [(a.shape[0], n)], FLOAT, transB=by, alpha=0.5, beta=1.5)


def _conv(g: Graph) -> None:
    channels, size, kernel = g.rng.choice((1, 2, 4)), g.rng.choice((5, 7)), g.rng.choice((1, 3))
    groups = g.rng.choice([n for n in (1, 2, 4) if channels % n == 0])
    stride, dilation, pad = g.rng.choice((1, 2)), g.rng.choice((1, 2)), g.rng.choice((0, 1))
    length = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    if length > 0:
        x, w = g.input(FLOAT, [2, channels, size, size]), g.input(FLOAT, [4, channels // groups, kernel, kernel])
        g.add(
            "Conv", [x, w], [(2, 4, length, length)], FLOAT, group=groups, strides=[stride] * 2,
            dilations=[dilation] * 2, pads=[pad] * 4,
        )  # fmt: skip


def _pool(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT,), rank=4)
        kernel, stride = [min(2, d) for d in x.shape[2:]], g.rng.choice((1, 2))
        lengths = tuple((d - k) // stride + 1 for d, k in zip(x.shape[2:], kernel, strict=True))
        g.add(operator, [x], [(*x.shape[:2], *lengths)], FLOAT, kernel_shape=kernel, strides=[stride] * 2)

    return draw


def _softmax(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT,), least=1)
        g.add(operator, [x], [x.shape], FLOAT, axis=g.rng.randrange(-len(x.shape), len(x.shape)))

    return draw


def _layer_norm(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    scale, bias = g.input(FLOAT, [x.shape[-1]]), g.input(FLOAT, [x.shape[-1]])
    g.add("LayerNormalization", [x, scale, bias], [x.shape], FLOAT)


def _cumsum(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    exclusive, backwards = g.rng.randint(0, 1), g.rng.randint(0, 1)
    axis = g.constant(np.array(g.rng.randrange(len(x.shape))))
    g.add("CumSum", [x, axis], [x.shape], x.dtype, exclusive=exclusive, reverse=backwards)


def _clip(g: Graph) -> None:
    x = g.pick((FLOAT,))
    low, high = (g.constant(np.array(v, np.float32)) for v in (-0.5, 0.75))
    g.add("Clip", [x, low, high], [x.shape], FLOAT)


def _one_hot(g: Graph) -> None:
    x = g.pick((I64,), exact=True)
    g.add("OneHot", [x, g.constant(np.array(4)), g.constant(np.array([0, 1], np.float32))], [(*x.shape, 4)], FLOAT)


def _trilu(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=2)
    g.add("Trilu", [x], [x.shape], x.dtype, moves=True, upper=g.rng.randint(0, 1))


def _quantize(g: Graph) -> None:
    x = g.pick((FLOAT,), exact=True)
    scale, zero = g.constant(np.array(0.25, np.float32)), g.constant(np.array(3, np.uint8))
    g.add("QuantizeLinear", [x, scale, zero], [x.shape], U8)
    g.add("DequantizeLinear", [g.values[-1], scale, zero], [x.shape], FLOAT)


def _prelu(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    g.add("PRelu", [x, g.input(FLOAT, [x.shape[-1]])], [x.shape], FLOAT)


def _is_nan(g: Graph) -> None:
    x = g.pick((FLOAT,))
    g.add("IsNaN", [x], [x.shape], BOOL)


def _shape(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1)
    g.add("Shape", [x], [(len(x.shape),)], I64)


_SMOOTH = (
    *("Abs", "Neg", "Exp", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign"),
    *("Erf", "HardSigmoid", "HardSwish", "Gelu", "Mish", "Celu", "Identity", "Atan", "Asinh"),
)
_COMPARED = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
_SUMMED = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd")

OPERATORS: dict[str, Draw] = {
    **{name: _unary(name) for name in _SMOOTH},
    **{name: _unary(name, exact=True) for name in ("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu")},
    **{name: _binary(name, NUMBERS) for name in ("Add", "Sub", "Mul")},
    **{name: _binary(name, (FLOAT, I64)) for name in ("Min", "Max")},
    **{name: _binary(name, (FLOAT, I32), BOOL, exact=True) for name in _COMPARED},
    **{name: _binary(name, (BOOL,)) for name in ("And", "Or", "Xor")},
    "PRelu": _prelu,
    "Not": _unary("Not", (BOOL,)),
    "IsNaN": _is_nan,
    **{name: _reduce(name) for name in _SUMMED},
    **{name: _reduce(name, (FLOAT, I64)) for name in ("ReduceMax", "ReduceMin")},
    **{name: _arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: _pool(name) for name in ("MaxPool", "AveragePool")},
    **{name: _softmax(name) for name in ("Softmax", "LogSoftmax")},
    "Cast": _cast,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "Expand": _expand,
    "Tile": _tile,
    "Gather": _gather,
    "Where": _where,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "LayerNormalization": _layer_norm,
    "CumSum": _cumsum,
    "Clip": _clip,
    "OneHot": _one_hot,
    "Trilu": _trilu,
    "QuantizeLinear": _quantize,
    "Shape": _shape,
}
"""How a node of each operator is drawn."""
