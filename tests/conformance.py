"""Integer-only methods against a second derivation in Python integers, on every backend that runs here.

A test gives `derive`, which takes the whole-number distances of the elements that take part in one row and returns
their weights and the normalizer, written from the method's source and not from its program. Rows of scores that have
exactly these distances are then run by the interpreter, onnxruntime (optimised and not) and a TVM-built kernel.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import DType, Program, run
from softq.rowprog.library import FARTHEST
from tests.rowhost import everywhere

INF, MOST = np.inf, np.finfo(np.float32).max
# Without NaN: of a row that holds one only the normalizer is specified.
SPECIAL = np.array([[INF, 0, INF], [-INF] * 3, [MOST, -MOST, 0], [-INF, 5, INF], [1e-45, 0, -1e-45], [-0.0, 0.0, -0.0],
                    [4, -99.75, -1e4]], np.float32)  # fmt: skip
Ints = NDArray[np.int64]
Derive = Callable[[Sequence[int]], tuple[Sequence[int], int]]
DeriveRow = Callable[[tuple[int, ...]], tuple[Sequence[int], int]]


def program_of(name: str, settings: Mapping[str, object], kind: DType = DType.F32, *, masked: bool = False) -> Program:
    """Return the program of a method with these settings over its defaults."""
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(settings), False), scores=kind, masked=masked)


def distances(largest: int, *, count: int = 12, seed: int = 0) -> Iterator[Ints]:
    """Yield blocks of rows of distances: each of them, ties, one hot, all equal, flat, peaked, of many lengths."""
    every = np.arange(largest + 1)
    yield np.stack([every, np.zeros_like(every), every // 2, every], axis=1)
    for length in (1, 2, 3, 17, 50, 197):
        yield np.zeros((1, length), np.int64)
    rng = np.random.default_rng(seed)
    for length in (2, 5, 17, 64, 197):
        spread = rng.choice([0.02, 0.1, 0.4, 1.5], size=(count, 1)) * largest
        rows = np.minimum(np.abs(rng.normal(size=(count, length)) * spread), largest).astype(np.int64)
        yield rows - rows.min(axis=1, keepdims=True)
    one_hot = np.full((1, 60), largest)
    one_hot[0, 7] = 0
    yield one_hot


def scores_of(rows: Ints, kind: DType, unit: float) -> NDArray[np.generic]:
    """Return scores with these distances from the maximum of each row, in units of `unit` if they are floats."""
    if kind.is_float:
        return (2.0 - rows * unit).astype(np.float32)
    # Rows in turn at the top of the type and as low as they go, so that both ends of it occur.
    low = kind.low + rows.max(axis=1, keepdims=True)
    peak = np.where(np.arange(len(rows))[:, None] % 2 == 0, kind.high, low)
    return (peak - rows).astype(kind.numpy)


def assert_conforms(
    name: str,
    settings: Mapping[str, object],
    derive: Derive,
    *,
    unit: float,
    largest: int = 255,
    kinds: Sequence[DType] = (DType.F32, DType.I8, DType.U8),
    native: bool = True,
    max_length: int = 65536,
) -> None:
    """Compare weights and normalizer of each row with the second derivation, and each backend with the interpreter.

    Args:
        name: The method.
        settings: Its options.
        derive: The second derivation, from distances to (weights, normalizer).
        unit: The real value of one unit of the distances.
        largest: Distances up to this one.
        kinds: Types of scores.
        native: Whether to build and run a kernel too.
        max_length: The length up to which the program is to be proved.
    """
    derived = cache(derive)  # All types of scores have the same rows.
    for kind in kinds:
        for masked in (False, True)[kind is DType.U8 :]:
            program = program_of(name, settings, kind, masked=masked)
            native_host = host_of(program, max_length) if native and masked and kind is not DType.U8 else None
            if native_host is not None and kind.is_float:
                native_host(SPECIAL, np.ones(SPECIAL.shape, np.bool_))
            for block, rows in enumerate(distances(largest)):
                keep = None
                if masked:
                    keep = np.random.default_rng(block).random(rows.shape) < 0.6
                    keep[::9] = False
                if kind.is_float:
                    # Beyond, elements are excluded.
                    rows = np.minimum(rows, int(FARTHEST / unit) - 1)
                scores = scores_of(rows, kind, unit)
                out = run(program, scores, valid=keep)
                _compare(out, rows, np.ones(rows.shape, np.bool_) if keep is None else keep, derived)
                if block in (0, 10) and masked and kind is not DType.U8:
                    names = list(program.outputs)
                    backends = everywhere(program, scores, names, valid=keep, max_length=max_length)
                    results = [found for _, found in backends]
                    for found in results[1:]:
                        for output, wanted in results[0].items():
                            np.testing.assert_array_equal(found[output], wanted, err_msg=output)
                if native_host is not None:
                    native_host(scores, keep)


def _compare(out: Mapping[str, NDArray[np.generic]], rows: Ints, keep: NDArray[np.bool_], derive: DeriveRow) -> None:
    weights, normalizers = np.zeros(rows.shape, np.int64), np.zeros(len(rows), np.int64)
    # Under a mask, every third row: the others differ in nothing but what the mask takes away.
    some = slice(None, None, 1 if keep.all() else 3)
    for at, (row, kept) in list(enumerate(zip(rows, keep, strict=True)))[some]:
        if kept.any():
            weights[at, kept], normalizers[at] = derive(tuple((row[kept] - row[kept].min()).tolist()))
    found, wanted = out["normalizer"][:, 0], normalizers
    np.testing.assert_array_equal(out["weights"].astype(np.int64)[some], weights[some])
    np.testing.assert_array_equal(found[some], (wanted.astype(np.float32) if found.dtype.kind == "f" else wanted)[some])


def host_of(
    program: Program, max_length: int
) -> Callable[[NDArray[np.generic], NDArray[np.bool_] | None], None] | None:
    """Return a function that compares a kernel of this machine with the interpreter; None if none can be built."""
    if shutil.which("gcc") is None:
        return None
    pytest.importorskip("tvm")
    from tests.test_native_rows import MACHINES, MIDDLE, Host, assert_same

    if not MACHINES:
        return None
    host = Host(program, MIDDLE, max_length=max_length)
    return lambda scores, keep: assert_same(host, scores, valid=keep)
