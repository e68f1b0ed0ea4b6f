"""Perplexity of a causal language model: exp of the mean negative log-likelihood of each next token, in nats."""

from __future__ import annotations

import math

import numpy as np

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.kinds import AloneMetric
from softq.metrics.base.meter import Floats, PerSample
from softq.metrics.base.rows import by_blocks, log_softmax
from softq.metrics.base.values import EXP_MEAN


def _contribute(output: Array, labels: Array) -> PerSample:
    if output.ndim != 3 or output.shape[-1] < 2:
        raise InputError(
            f"metric perplexity needs logits [samples, tokens, vocabulary]; the output is {list(output.shape)}"
        )
    if labels.dtype.kind not in "iu" or labels.shape != output.shape[:2]:
        raise InputError(
            f"metric perplexity: labels are {labels.dtype.name}{list(labels.shape)};"
            f" logits {list(output.shape)} need token ids {list(output.shape[:2])}"
        )
    vocabulary = output.shape[-1]
    if labels.max(initial=0) >= vocabulary:
        raise InputError(f"metric perplexity: token id {labels.max()} is not below the vocabulary's {vocabulary}")
    # Position t predicts token t + 1: the last position predicts nothing, the first token is never predicted.
    targets = labels[:, 1:].astype(np.int64)
    counted = targets >= 0
    nll = np.zeros(targets.shape)
    for sample in range(len(output)):
        logits, here = output[sample, :-1], counted[sample]
        nll[sample, here] = by_blocks(_nll, logits[here], targets[sample, here][:, None])
    return PerSample(nll.sum(axis=-1), counted.sum(axis=-1).astype(np.float64))


def _nll(logits: Array, targets: Array) -> Floats:
    return -np.take_along_axis(log_softmax(logits), targets.astype(np.int64), axis=-1)[:, 0]


METRIC = AloneMetric(
    name="perplexity",
    direction="lower",
    unit="perplexity",
    summary="exp of the mean NLL of each next token; logits [B,T,V], token ids [B,T], negative ids are ignored",
    needs_labels=True,
    contribute=_contribute,
    kind=EXP_MEAN,
    bounds=(1.0, math.inf),
    distance="kl",
)
