"""The weights file: the arrays at their offsets, and 64 bytes at the end that tell one model's from another's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from softq.artifact.ctext import SEAL_BYTES
from softq.artifact.program import Program, evaluate
from softq.errors import SoftqError

ALIGNMENT = 64

_CHUNK = 1 << 24

_MAGIC = b"softq weights 1\n"


def layout(program: Program) -> list[tuple[int, NDArray[np.generic]]]:
    """Return the arrays by ascending offset.

    Raises:
        SoftqError: arrays overlap or are misaligned, or a weight tensor has no array of its size there.
    """
    placed = sorted(program.weights.items())
    end = 0
    for offset, array in placed:
        if offset % ALIGNMENT or offset < end:
            raise SoftqError(f"weights: the array at offset {offset} is misaligned or overlaps the one before it")
        end = offset + array.nbytes
    for tensor in program.tensors:
        if tensor.place != "weight":
            continue
        bytes_ = np.dtype(tensor.dtype).itemsize
        for size in tensor.shape:
            bytes_ *= evaluate(size, {})
        there = program.weights[tensor.at].nbytes if tensor.at in program.weights else 0
        if bytes_ > there:
            raise SoftqError(f"weights: a tensor at offset {tensor.at} has {bytes_} bytes; there are {there}")
    return placed


class WeightsStream:
    """The bytes of the weights file, piece by piece; no second copy of the arrays is made.

    Attributes:
        seal: The last bytes, known when all pieces were taken.
        bytes: Size of the file, known then too.
    """

    def __init__(self, program: Program) -> None:
        self._placed = layout(program)
        self.seal = b""
        self.bytes = 0

    def __iter__(self) -> Iterator[memoryview]:
        digest = hashlib.sha256()
        end = 0
        for piece in self._pieces():
            digest.update(piece)
            end += piece.nbytes
            yield piece
        # What the driver compares: cheap, and different wherever the contents differ.
        self.seal = (_MAGIC + digest.digest()).ljust(SEAL_BYTES, b"\0")
        self.bytes = end + SEAL_BYTES
        yield memoryview(self.seal)

    def _pieces(self) -> Iterator[memoryview]:
        end = 0
        for offset, array in self._placed:
            yield memoryview(bytes(offset - end))
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
            for start in range(0, flat.nbytes, _CHUNK):
                yield flat[start : start + _CHUNK]
            end = offset + array.nbytes
        yield memoryview(bytes(-end % ALIGNMENT))
