"""Operators that join elements along axes, and norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.random_graph import DOUBLE, FLOAT, I32, I64, Draw, Drawn, Graph


def _reduce(operator: str, dtypes: Sequence[int] = (FLOAT,), positive: bool = False) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick(dtypes, least=1)
        if positive:
            (x,) = g.add("Exp", [x])
        axes = sorted(g.rng.sample(range(len(x.shape)), g.rng.randint(1, len(x.shape))))
        named = [a - len(x.shape) if g.rng.random() < 0.5 else a for a in axes]
        given = [g.ints(*named)] if g.rng.random() < 0.9 else []
        g.add(operator, [x, *given], keepdims=g.rng.randint(0, 1))

    return draw


def _arg(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT, I32), least=1, exact=True)
        axis = g.rng.randrange(len(x.shape))
        keep, latest = g.rng.randint(0, 1), g.rng.randint(0, 1)
        g.add(operator, [x], axis=axis, keepdims=keep, select_last_index=latest)

    return draw


def _along(operator: str, exact: bool = False) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT,), least=1, exact=exact)
        g.add(operator, [x], axis=g.rng.randrange(-len(x.shape), len(x.shape)))

    return draw


def _cumulative(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT, I64), least=1)
        axis = g.constant(np.array(g.rng.randrange(len(x.shape))))
        g.add(operator, [x, axis], exclusive=g.rng.randint(0, 1), reverse=g.rng.randint(0, 1))

    return draw


def _layer_norm(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    scale, bias = g.input(FLOAT, [x.shape[-1]]), g.input(FLOAT, [x.shape[-1]])
    g.add("LayerNormalization", [x, scale, *([bias] if g.rng.random() < 0.7 else [])])


def _rms_norm(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    g.add("RMSNormalization", [x, g.input(FLOAT, [x.shape[-1]])], axis=-1)


def _image(g: Graph, least: int = 3) -> Drawn:
    """Return a tensor with a batch, channels, and more axes."""
    return g.pick((FLOAT,), rank=g.rng.choice((least, 4)))


def _instance_norm(g: Graph) -> None:
    x = _image(g)
    g.add("InstanceNormalization", [x, *(g.input(FLOAT, [x.shape[1]]) for _ in range(2))])


def _batch_norm(g: Graph) -> None:
    x = g.pick((FLOAT,), rank=g.rng.choice((2, 3, 4)))
    scale, bias, mean = (g.input(FLOAT, [x.shape[1]]) for _ in range(3))
    variance = g.given(np.abs(g.data(FLOAT, [x.shape[1]])) + np.float32(0.5), fixed=False)
    g.add("BatchNormalization", [x, scale, bias, mean, variance])


def _group_norm(g: Graph) -> None:
    x = g.input(FLOAT, (2, 4, 3, 5), g.fix(1))
    g.add("GroupNormalization", [x, g.weight(4), g.weight(4)], num_groups=g.rng.choice((1, 2, 4)))


def _local_norm(g: Graph) -> None:
    x = _image(g, 4)
    g.add("LRN", [x], size=g.rng.choice((1, 3, 5)), alpha=0.1, beta=0.75, bias=1.0)


def _lp_norm(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    g.add("LpNormalization", [x], axis=g.rng.randrange(len(x.shape)), p=g.rng.choice((1, 2)))


def _mean_variance(g: Graph) -> None:
    x = g.pick((FLOAT,), rank=4, exact=True)
    # By definition the root of E[x^2] - E[x]^2, which may round to less than nothing where all elements are the same.
    if x.array.std(axis=(0, 2, 3)).min(initial=1) > 0.01:
        g.add("MeanVarianceNormalization", [x], axes=[0, 2, 3])


def _loss(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.input(FLOAT, (3, 5, 2)[: g.rng.choice((2, 3))], fixed=True)
        target = g.given(g.data(I64, (x.shape[0], *x.shape[2:])))
        weights = [g.constant(np.abs(g.data(FLOAT, (5,))) + np.float32(0.1))] if g.rng.random() < 0.5 else []
        reduction = g.rng.choice(("none", "mean", "sum"))
        g.add(operator, [x, target, *weights], reduction=reduction)

    return draw


_SUMMED = ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd")

OPERATORS: dict[str, Draw] = {
    **{name: _reduce(name) for name in _SUMMED},
    **{name: _reduce(name, (FLOAT, I64, DOUBLE, I32)) for name in ("ReduceSum", "ReduceMax", "ReduceMin")},
    "ReduceLogSum": _reduce("ReduceLogSum", positive=True),
    **{name: _arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: _along(name) for name in ("Softmax", "LogSoftmax")},
    "Hardmax": _along("Hardmax", exact=True),
    **{name: _cumulative(name) for name in ("CumSum", "CumProd")},
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "LRN": _local_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    **{name: _loss(name) for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
}
