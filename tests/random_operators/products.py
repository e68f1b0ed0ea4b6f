"""Products, convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_graph import DOUBLE, FLOAT, Draw, Drawn, Graph


def _matmul(g: Graph) -> None:
    a = g.pick((FLOAT, FLOAT, DOUBLE), least=1)
    b = g.input(a.dtype, [a.shape[-1], g.rng.choice((1, 4, 6))])
    if g.rng.random() < 0.5:
        a = g.input(a.dtype, g.rng.choice(((3, 7), (2, 3, 7), (7,))), fixed=(-1,))
        b = g.weight(7, g.rng.choice((1, 4, 6)), dtype=a.dtype)
    g.add("MatMul", [a, b])


def _gemm(g: Graph) -> None:
    a, by = g.pick((FLOAT,), rank=2), g.rng.randint(0, 1)
    n = g.rng.choice((1, 4, 6))
    b = g.input(FLOAT, [n, a.shape[1]] if by else [a.shape[1], n])
    c = g.input(FLOAT, g.rng.choice(([n], [1, n], [a.shape[0], 1])))
    g.add("Gemm", [a, b, c], transB=by, alpha=0.5, beta=1.5)


def _einsum(g: Graph) -> None:
    equation, a, b = g.rng.choice((
        ("bij,bjk->bik", (2, 3, 5), (2, 5, 4)), ("ij,kj->ik", (3, 5), (4, 5)),
        ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("i,j->ij", (3,), (5,)), ("...ij,jk->...ik", (2, 3, 5), (5, 4)), ("ij,ij->", (3, 5), (3, 5)),
    ))  # fmt: skip
    fixed = g.rng.random() < 0.5
    g.add("Einsum", [g.input(FLOAT, a, fixed), g.input(FLOAT, b, fixed)], equation=equation)


def _conv(g: Graph) -> None:
    axes, fixed = g.rng.choice((1, 2, 2, 2, 3)), g.rng.random() < 0.5
    channels, kernel = g.rng.choice((1, 2, 4)), g.rng.choice((1, 2, 3))
    size = [g.rng.choice((5, 7)) for _ in range(axes)]
    groups = g.rng.choice([n for n in (1, 2, 4) if channels % n == 0])
    pads = g.rng.choice(([0] * (2 * axes), [1] * (2 * axes), [1, 0, 2][:axes] * 2))
    padding: dict[str, Any] = {"auto_pad": "SAME_UPPER"} if g.rng.random() < 0.25 else {"pads": pads}
    # Below it is not known how much stands before an axis whose length is not known.
    x = g.input(FLOAT, [2, channels, *size], fixed or "auto_pad" in padding or (1,))
    w = g.weight(4, channels // groups, *[kernel] * axes)
    bias = [g.weight(4)] if g.rng.random() < 0.5 else []
    dilations = [1 if "auto_pad" in padding else g.rng.choice((1, 1, 2))] * axes
    g.add("Conv", [x, w, *bias], group=groups, strides=[g.rng.choice((1, 2))] * axes, dilations=dilations, **padding)


def _conv_transpose(g: Graph) -> None:
    axes, groups = g.rng.choice((1, 2, 2)), g.rng.choice((1, 2))
    x = g.input(FLOAT, [1, 2, *[4] * axes], g.fix(1))
    w = g.weight(2, 3, *[3] * axes)
    stride = g.rng.choice((1, 2))
    g.add(
        "ConvTranspose", [x, w], group=groups, strides=[stride] * axes, pads=[g.rng.randint(0, 1)] * (2 * axes),
        output_padding=[g.rng.randint(0, stride - 1)] * axes,
    )  # fmt: skip


def _deform_conv(g: Graph) -> None:
    # onnxruntime's kernel takes float; the shapes are those of a kernel of 2x2 on 4x4.
    x, w = g.input(FLOAT, (1, 2, 4, 4), fixed=True), g.weight(3, 2, 2, 2)
    offsets = g.given(g.data(FLOAT, (1, 8, 3, 3)) * np.float32(0.5))
    g.add("DeformConv", [x, w, offsets], kernel_shape=[2, 2])


def _causal_conv(g: Graph) -> None:
    x, w = g.input(FLOAT, (2, 3, 5), g.fix(1)), g.weight(3, 1, 4)
    activation = g.rng.choice(("none", "silu"))
    g.add("CausalConvWithState", [x, w, g.weight(3)], results=2, activation=activation)


def _pool(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x: Drawn = g.pick((FLOAT,), rank=g.rng.choice((3, 4, 4)))
        kernel = [min(g.rng.choice((2, 3)), d) for d in x.shape[2:]]
        strides = [g.rng.choice((1, 2)) for _ in kernel]
        more: dict[str, Any] = {}
        if g.rng.random() < 0.5:
            more["pads"] = [g.rng.randint(0, k - 1) and 1 for _ in range(2) for k in kernel]
        # With pads onnxruntime leaves out windows that only padding is in, and ONNX's reference does not.
        if "pads" not in more and g.rng.random() < 0.4:
            more["ceil_mode"] = 1
        if operator == "AveragePool":
            more["count_include_pad"] = g.rng.randint(0, 1)
        if operator == "LpPool":
            more["p"] = g.rng.choice((1, 2))
        g.add(operator, [x], kernel_shape=kernel, strides=strides, **more)

    return draw


def _global_pool(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        g.add(operator, [g.pick((FLOAT,), rank=g.rng.choice((3, 4)))])

    return draw


def _max_unpool(g: Graph) -> None:
    x = g.input(FLOAT, (1, 2, 2, 2), fixed=True)
    places = np.array([0, 3, 8, 11, 21, 23, 26, 31]).reshape(1, 2, 2, 2)
    g.add("MaxUnpool", [x, g.given(places)], moves=True, kernel_shape=[2, 2], strides=[2, 2])


def _column_to_image(g: Graph) -> None:
    x = g.input(FLOAT, (2, 3 * 4, 4 * 3), g.fix(1, 2))
    g.add("Col2Im", [x, g.ints(5, 4), g.ints(2, 2)])


def _det(g: Graph) -> None:
    n = g.rng.choice((1, 2, 3))
    g.add("Det", [g.input(FLOAT, (2, n, n)[g.rng.randint(0, 1) :], g.fix(-1, -2))])


OPERATORS: dict[str, Draw] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "CausalConvWithState": _causal_conv,
    **{name: _pool(name) for name in ("MaxPool", "AveragePool", "LpPool")},
    **{name: _global_pool(name) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    "MaxUnpool": _max_unpool,
    "Col2Im": _column_to_image,
    "Det": _det,
}
