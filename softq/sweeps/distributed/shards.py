"""The fixed partition of a data set: consecutive batches, by data and batch alone and never by who measures.

So what a shard adds to a value is the same on every worker, and the parts of all shards in order are those of one run
over the whole. Its digest says whether a worker has the same samples before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softq.data import Array
from softq.sweeps.evaluate.evaluator import Subject

LEAST = 4
"""Batches per shard at least: each shard of a setting may open a session, which costs about as much as a batch."""

MOST = 64
"""Shards at most: enough for some dozens of workers, few enough that handing them out costs nothing."""


@dataclass(frozen=True)
class Shard:
    """Some consecutive batches.

    Attributes:
        number: Its place among the shards.
        first: Number of its first batch.
        start: Its first sample.
        stop: The sample behind its last one.
        digest: SHA-256 of its samples in their batches.
    """

    number: int
    first: int
    start: int
    stop: int
    digest: str


def partition(subject: Subject) -> tuple[Shard, ...]:
    """Return the shards of a subject's samples; they are read once for it."""
    return group(
        [(batch.samples, digest_arrays(batch.inputs, batch.labels)) for batch in subject.data.batches(subject.batch)]
    )


def group(batches: Sequence[tuple[int, str]]) -> tuple[Shard, ...]:
    """Return shards of equally many batches, the last one aside: `LEAST`, or the multiple of it that keeps to `MOST`.

    Args:
        batches: Samples and digest of each batch.
    """
    size = LEAST * -(-len(batches) // (LEAST * MOST))
    shards: list[Shard] = []
    start = 0
    for number, first in enumerate(range(0, len(batches), size)):
        some = batches[first : first + size]
        stop = start + sum(samples for samples, _ in some)
        shards.append(Shard(number, first, start, stop, join_digests([digest for _, digest in some])))
        start = stop
    return tuple(shards)


def digest_arrays(*groups: Mapping[str, Array]) -> str:
    """Return the SHA-256 over arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    for arrays in groups:
        for name in sorted(arrays):
            array = arrays[name]
            digest.update(f"{name}\0{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def join_digests(digests: Sequence[str]) -> str:
    """Return one digest for several."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
