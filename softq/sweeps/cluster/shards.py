"""The fixed partition of a data set: consecutive batches, by data and batch alone and never by who measures.

So what a shard adds to a value is the same on every worker, and the parts of all shards in order are those of one run
over the whole. Its digest says whether a worker has the same samples before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softq.data import Array, Batch
from softq.sweeps.bench import Subject

LEAST = 4
"""Batches of a shard at least: each shard of a setting may open a session, which costs about as much as a batch."""

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


class Digest:
    """A SHA-256 over arrays with their names, types and shapes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Take arrays by name."""
        for name in sorted(arrays):
            array = arrays[name]
            self._hash.update(f"{name}\0{array.dtype.str}{array.shape}".encode())
            self._hash.update(np.ascontiguousarray(array).tobytes())

    def add_batch(self, batch: Batch) -> None:
        """Take a batch's inputs and labels."""
        self.add(batch.inputs)
        self.add(batch.labels)

    def text(self) -> str:
        """Return the hash so far."""
        return self._hash.hexdigest()


def partition(subject: Subject) -> tuple[Shard, ...]:
    """Return the shards of a subject's samples; they are read once for it."""
    # How many batches there are is known at the end only, so the digests are of the least shards first.
    pieces: list[tuple[int, str]] = []
    samples, count, digest = 0, 0, Digest()
    for batch in subject.data.batches(subject.batch):
        digest.add_batch(batch)
        samples, count = samples + batch.samples, count + 1
        if count % LEAST == 0:
            pieces.append((samples, digest.text()))
            samples, digest = 0, Digest()
    if samples:
        pieces.append((samples, digest.text()))
    return grouped(pieces)


def grouped(pieces: Sequence[tuple[int, str]]) -> tuple[Shard, ...]:
    """Return shards of equally many pieces, as few as keep to `MOST`.

    Args:
        pieces: Samples and digest of each `LEAST` batches.
    """
    each = -(-len(pieces) // MOST)
    shards: list[Shard] = []
    start = 0
    for number, at in enumerate(range(0, len(pieces), each)):
        some = pieces[at : at + each]
        stop = start + sum(samples for samples, _ in some)
        shards.append(Shard(number, at * LEAST, start, stop, joined([digest for _, digest in some])))
        start = stop
    return tuple(shards)


def joined(digests: Sequence[str]) -> str:
    """Return one digest for several."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
