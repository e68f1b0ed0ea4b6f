"""Attentions and what stands before them, ONNX's and onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_graph import BOOL, FLOAT, NOTHING, Draw, Graph


def _attention(g: Graph) -> None:
    heads = g.rng.choice((1, 2))
    mask = NOTHING
    if g.rng.random() < 0.4:
        array = g.data(BOOL, (3, 5)) if g.rng.random() < 0.5 else g.data(FLOAT, (3, 5))
        # A row of which nothing is seen has no weights.
        array[:, 0] = 1
        mask = g.given(array)
    q = g.input(FLOAT, (2, 4, 3, 6), True if mask.name else g.fix(1, 3))
    k, v = (g.input(FLOAT, (2, 4 // heads, 5, 6), q.fixed) for _ in range(2))
    causal = 0 if mask.name else g.rng.randint(0, 1)
    g.add("Attention", [q, k, v, *([mask] if mask.name else [])], is_causal=causal)


def _linear_attention(g: Graph) -> None:
    q, k, v = (g.input(FLOAT, (2, 4, 6), fixed=True) for _ in range(3))
    g.add("LinearAttention", [q, k, v], results=2, update_rule="linear", q_num_heads=2, kv_num_heads=2)


def _rotary(g: Graph) -> None:
    x = g.input(FLOAT, (2, 3, 4, 8), g.fix(3))
    caches = [g.constant(g.data(FLOAT, (9, 4))) for _ in range(2)]
    positions = g.given(np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), x.fixed is True)
    g.add("RotaryEmbedding", [x, *caches, positions], interleaved=g.rng.randint(0, 1))


def _own_rotary(g: Graph) -> None:
    x = g.input(FLOAT, (2, 3, 16), g.fix(2))
    caches = [g.constant(g.data(FLOAT, (9, 4))) for _ in range(2)]
    positions = g.given(np.array([[0, 1, 2], [4, 5, 6]] if g.rng.random() < 0.5 else [2]), x.fixed is True)
    g.add("com.microsoft::RotaryEmbedding", [x, positions, *caches], interleaved=g.rng.randint(0, 1))


def _own_attention(g: Graph) -> None:
    x = g.input(FLOAT, (2, 5, 8), g.fix(2))
    mask = (
        [g.given(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32), x.fixed is True)]
        if g.rng.random() < 0.5
        else []
    )
    more: dict[str, Any] = {"unidirectional": 0 if mask else g.rng.randint(0, 1)}
    g.add("com.microsoft::Attention", [x, g.weight(8, 24), g.weight(24), *mask], num_heads=2, **more)


def _multi_head(g: Graph) -> None:
    fixed = g.fix(2)
    q, k, v = (g.input(FLOAT, (2, 3, 8), fixed) for _ in range(3))
    bias = [g.weight(24)] if g.rng.random() < 0.5 else []
    g.add("com.microsoft::MultiHeadAttention", [q, k, v, *bias], num_heads=2)


def _grouped(g: Graph) -> None:
    before = g.rng.choice((0, 5))
    length = 1 if before else 3
    q, k, v = (g.given(g.data(FLOAT, (2, length, n))) for n in (32, 16, 16))
    past = [g.given(g.data(FLOAT, (2, 2, before, 8))) for _ in range(2)]
    total = before + length
    numbers = [g.given(np.array([total - 1] * 2, np.int32)), g.given(np.array([total], np.int32))]
    g.add("com.microsoft::GroupQueryAttention", [q, k, v, *past, *numbers], results=3, num_heads=4, kv_num_heads=2)


OPERATORS: dict[str, Draw] = {
    "Attention": _attention,
    "LinearAttention": _linear_attention,
    "RotaryEmbedding": _rotary,
    "com.microsoft::RotaryEmbedding": _own_rotary,
    "com.microsoft::Attention": _own_attention,
    "com.microsoft::MultiHeadAttention": _multi_head,
    "com.microsoft::GroupQueryAttention": _grouped,
}
