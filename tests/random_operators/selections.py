"""Operators that read and write at places, sort, and select; data decide the lengths of some results."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_graph import DOUBLE, FLOAT, I32, I64, Draw, Drawn, Graph

_MOVED = (FLOAT, FLOAT, I64, DOUBLE, I32)


def _places(g: Graph, array: object) -> Drawn:
    """Return indices that are a constant, or an input."""
    made = np.asarray(array)
    return g.constant(made) if g.rng.random() < 0.5 else g.given(made)


def _gather(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    axis = g.rng.randrange(len(x.shape))
    at = [[g.rng.randrange(-x.shape[axis], x.shape[axis]) for _ in range(2)] for _ in range(3)]
    g.add("Gather", [x, _places(g, at)], moves=True, axis=axis)


def _gather_elements(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    axis = g.rng.randrange(len(x.shape))
    random = np.random.default_rng(g.rng.getrandbits(32))
    shape = tuple(3 if i == axis else d for i, d in enumerate(x.shape))
    g.add(
        "GatherElements", [x, _places(g, random.integers(-x.shape[axis], x.shape[axis], shape))], moves=True, axis=axis
    )


def _gather_nd(g: Graph) -> None:
    x = g.pick(_MOVED, least=2)
    at = [[g.rng.randrange(-d, d) for d in x.shape[:2]] for _ in range(3)]
    g.add("GatherND", [x, _places(g, at)], moves=True)


def _scatter_elements(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT, I64, DOUBLE), least=1)
        axis = g.rng.randrange(len(x.shape))
        reduction = "none" if operator == "Scatter" else g.rng.choice(("none", "add", "mul", "max", "min"))
        # Each place once: which of two updates stays is not said.
        places = np.indices(x.shape)[axis]
        kept = tuple(slice(0, max(1, d - 1)) for d in x.shape)
        updates = g.given(g.data(x.dtype, places[kept].shape))
        more: dict[str, Any] = {} if operator == "Scatter" else {"reduction": reduction}
        g.add(operator, [x, _places(g, places[kept]), updates], moves=reduction == "none", axis=axis, **more)

    return draw


def _scatter_nd(g: Graph) -> None:
    x = g.pick((FLOAT, I64, DOUBLE), least=1)
    reduction = g.rng.choice(("none", "add", "mul", "max", "min"))
    at = g.rng.sample(range(x.shape[0]), min(2, x.shape[0]))
    updates = g.given(g.data(x.dtype, (len(at), *x.shape[1:])), fixed=(0,))
    g.add("ScatterND", [x, _places(g, [[n] for n in at]), updates], moves=reduction == "none", reduction=reduction)


def _tensor_scatter(g: Graph) -> None:
    cache, mode = g.input(FLOAT, (2, 3, 5, 4), True), g.rng.choice(("linear", "circular"))
    update = g.given(g.data(FLOAT, (2, 3, 2, 4)))
    g.add("TensorScatter", [cache, update, g.given(np.array([1, 3]))], moves=True, mode=mode)


def _one_hot(g: Graph) -> None:
    x = g.pick((I64, I32, FLOAT), exact=True)
    values = g.constant([0, 1] if g.rng.random() < 0.5 else [-1, 2], g.rng.choice((FLOAT, I64)))
    if x.dtype == FLOAT:
        x = g.given(np.floor(g.data(FLOAT, (2, 3)) * 2).astype(np.float32), fixed=False)
    # onnxruntime has no kernel for indices of int32 and these values; ONNX's reference has.
    g.add("OneHot", [x, g.constant(np.array(4)), values], axis=g.rng.choice((-1, 0)))


def _top_k(g: Graph) -> None:
    x = g.pick((FLOAT, I64, DOUBLE, I32), least=1, exact=True)
    axis = g.rng.randrange(len(x.shape))
    k = np.array([g.rng.randint(1, x.shape[axis])])
    g.add("TopK", [x, _places(g, k)], results=2, axis=axis, largest=g.rng.randint(0, 1))


def _unique(g: Graph) -> None:
    x = g.pick((FLOAT, I64), least=1, exact=True)
    axis: dict[str, Any] = {} if g.rng.random() < 0.5 else {"axis": g.rng.randrange(len(x.shape))}
    g.add("Unique", [x], results=g.rng.choice((1, 4)), sorted=g.rng.randint(0, 1), **axis)


def _non_zero(g: Graph) -> None:
    g.add("NonZero", [g.pick((FLOAT, I64, I32), least=1, exact=True)])


def _compress(g: Graph) -> None:
    x = g.pick(_MOVED, least=1)
    axis = g.rng.randrange(len(x.shape))
    if g.rng.random() < 0.3:
        g.add("Compress", [x, g.given(g.data(9, (min(4, x.array.size),)))], moves=True)
        return
    g.add("Compress", [x, g.given(g.data(9, (x.shape[axis],)))], moves=True, axis=axis)


def _suppress(g: Graph) -> None:
    corners = np.sort(np.abs(g.data(FLOAT, (1, 6, 2, 2))), axis=2).reshape(1, 6, 4)
    scores = g.given(np.abs(g.data(FLOAT, (1, 2, 6))))
    numbers = [g.constant(np.array([3])), g.constant([0.4], FLOAT), g.constant([0.2], FLOAT)]
    g.add("NonMaxSuppression", [g.given(corners), scores, *numbers], center_point_box=0)


def _reverse_sequence(g: Graph) -> None:
    x = g.input(FLOAT, (4, 3, 2), g.fix(0, 1))
    time = g.rng.randint(0, 1)
    lengths = np.array([1, 2, 4] if time == 0 else [1, 2, 3, 1])
    g.add("ReverseSequence", [x, _places(g, lengths)], moves=True, time_axis=time, batch_axis=1 - time)


def _tf_idf(g: Graph) -> None:
    x = g.given(g.data(I64, g.rng.choice(((8,), (2, 8)))))
    g.add(
        "TfIdfVectorizer", [x], mode=g.rng.choice(("TF", "IDF", "TFIDF")), min_gram_length=1, max_gram_length=2,
        max_skip_count=g.rng.randint(0, 2), ngram_counts=[0, 3], ngram_indexes=[0, 1, 2, 3, 4],
        pool_int64s=[1, 2, 3, 1, 2, 3, 1],
        weights=[1.0, 0.5, 2.0, 1.5, 0.25],
    )  # fmt: skip


OPERATORS: dict[str, Draw] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements("ScatterElements"),
    "Scatter": _scatter_elements("Scatter"),
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Unique": _unique,
    "NonZero": _non_zero,
    "Compress": _compress,
    "NonMaxSuppression": _suppress,
    "ReverseSequence": _reverse_sequence,
    "TfIdfVectorizer": _tf_idf,
}
