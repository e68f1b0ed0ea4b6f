"""Which rows of which attention maps are taken: drawn for each sample and head by itself, from a counter and a key.

The key is made of the seed, the draw, the site and the sample's content, so that what is taken does not depend on the
batch size, the order of the samples or threads; it follows that equal samples count once. The generator is NumPy's
Philox4x64-10 (J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), by its raw words, which no
version of NumPy changes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from softq.data import Batch
from softq.errors import UsageError
from softq.methods import Sample

_Key = tuple[int, bytes, int]


@dataclass(frozen=True)
class Sampling:
    """How many rows the options of a method are fitted on, and how they are drawn.

    With several maps per head they show more of it than many rows of one map.

    Attributes:
        rows: Rows of each map, with repetition.
        maps: Attention maps of each head of a site.
        draws: Repetitions with other numbers. Options are fitted on all of them together; fitted on each alone they
            show by how much a fit depends on the draw.
        seed: Other seeds give other rows.
    """

    rows: int = 8
    maps: int = 4
    draws: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that make no sample.

        Raises:
            UsageError: one is too small; the message names it.
        """
        for name, least in {"rows": 1, "maps": 1, "draws": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise UsageError(f"calibration {name} is {getattr(self, name)}; it must be at least {least}")

    def words(self, site: str, samples: list[bytes], maps: int) -> NDArray[np.int64]:
        """Return random numbers of 62 bits, [samples, maps, draws, 1 + rows]; those of a map depend on nothing else.

        The first of a map in a draw ranks it among the others, the others choose its rows.

        Args:
            site: Id of the site.
            samples: What `names_of` gives.
            maps: Maps that a sample has at the site, or more.
        """
        found = np.empty((len(samples), maps, self.draws, 1 + self.rows), np.int64)
        for number, sample in enumerate(samples):
            for draw in range(self.draws):
                text = f"{self.seed} {draw} {site} ".encode()
                key = int.from_bytes(blake2b(text + sample, digest_size=16).digest(), "little")
                raw = np.random.Philox(key=key).random_raw(maps * (1 + self.rows))
                found[number, :, draw] = (raw >> np.uint64(2)).astype(np.int64).reshape(maps, -1)
        return found


def names_of(part: Batch) -> list[bytes]:
    """Return a name for each sample of a batch that says what it holds: a hash over its part of every input."""
    digests = [blake2b(digest_size=16) for _ in range(part.samples)]
    for name in sorted(part.inputs):
        for digest, array in zip(digests, part.each(name), strict=False):
            sample = np.ascontiguousarray(array)
            digest.update(f"{name} {sample.dtype.str} {sample.shape} ".encode())
            digest.update(sample.tobytes())
    return [digest.digest() for digest in digests]


@dataclass
class Reservoir:
    """A uniform sample of the maps offered, so many per head: those with the least random numbers, in that order."""

    maps: int
    heads: dict[int, list[tuple[_Key, Sample]]] = field(default_factory=dict[int, list[tuple[_Key, Sample]]])

    def offer(self, head: int, key: _Key, make: Callable[[], Sample]) -> None:
        """Take a map of a head if its key is among the least so far: a random number, its sample, its place there."""
        kept = self.heads.setdefault(head, [])
        if len(kept) == self.maps and key >= kept[-1][0]:
            return
        if any(key == other for other, _ in kept):
            return
        insort(kept, (key, make()), key=itemgetter(0))
        del kept[self.maps :]

    def samples(self) -> list[Sample]:
        """Return what was kept, head by head, each in the order of the keys."""
        return [sample for head in sorted(self.heads) for _, sample in self.heads[head]]
