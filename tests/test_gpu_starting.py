"""How kernels are started on a device: the form for each length and mask, blocks, numbers, and the grid's limit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.artifact.device.executor import Executor
from softq.artifact.device.starting import Start
from softq.artifact.device.steps import Launch, RowForm, Steps, TileForm
from softq.artifact.program import Op, Step, Tensor
from softq.errors import InputError
from tests.standin import FORMS

Array = NDArray[np.generic]


class Recorder:
    """A device that keeps what is launched."""

    def __init__(self, shared_bytes: int = 0) -> None:
        self.shared_bytes = shared_bytes
        self.launched: list[tuple[str, str, int, int, list[Any]]] = []

    def allocate(self, size: int) -> int:
        return size

    def free(self, memory: int) -> None: ...

    def write(self, memory: int, array: Array) -> None: ...

    def read(self, memory: int, array: Array) -> None: ...

    def launch(self, module: str, start: Start, blocks: int, arguments: Sequence[Any]) -> None:
        assert start.shared <= self.shared_bytes
        self.launched.append((module, start.symbol, blocks, start.threads, [*arguments]))


def run(
    launch: Launch, step: Step, shape: Mapping[str, int], shared_bytes: int = 0
) -> tuple[str, str, int, int, list[Any]]:
    """Return the one launch of a step."""
    (launched,) = all_of(launch, step, shape, shared_bytes)
    return launched


def all_of(
    launch: Launch, step: Step, shape: Mapping[str, int], shared_bytes: int = 0
) -> list[tuple[str, str, int, int, list[Any]]]:
    tensors = (Tensor("x", "float32", (*shape,), "input", 0),)
    device = Recorder(shared_bytes)
    steps = Steps((0,), (), tensors, (), (step,), (), {}, {"k": launch})
    Executor(steps, np.empty(0, np.uint8), device)({"x": np.broadcast_to(np.float32(0), tuple(shape.values()))})
    return device.launched


@pytest.mark.parametrize(("length", "strides", "chosen"), [
    (16, (), "short_aligned"), (15, (), "short_"), (17, (), "long_"), (24, (), "long_aligned"), (20, (), "long_"),
    (16, (0, 16, 32, 1), "short_aligned"), (16, (0, 16, 34, 1), "short_"), (16, (2, 16, 32, 1), "short_"),
    # A mask that is the same for all elements of a row is not read in chunks.
    (16, (1, 3, 5, 0), "short_aligned"), (24, (24, 48, 4, 1), "long_"), (24, (24, 48, 8, 1), "long_aligned"),
])  # fmt: skip
def test_the_form_of_rows(length: int, strides: Sequence[int], chosen: str) -> None:
    step = Step("k", (0,), ("n", 3, Op("mul", "r", 2), *strides), Op("mul", "r", 5), 0)
    module, symbol, blocks, threads, arguments = run(Launch("rows", "m", 0, FORMS), step, {"r": 7, "n": length})
    assert (module, symbol, threads) == ("m", chosen, 128 if "short" in chosen else 512)
    assert blocks == (9 if "short" in chosen else 35)
    assert arguments[1:] == [35, length, 3, 14, *strides]
    assert [type(n) for n in arguments[1:]] == [np.int64] + [np.int32] * 3 + [np.int64] * len(strides)


def test_a_form_takes_no_more_shared_memory_than_there_is() -> None:
    forms = (RowForm("large", 1, 1024, 4, True, 65536, 1000), RowForm("streamed", 1, 512, 4, True, None))
    step = Step("k", (0,), ("n", 1, 1), 3, 0)
    for there, length, chosen in ((1000, 64, "large"), (999, 64, "streamed"), (1000, 65540, "streamed")):
        assert run(Launch("rows", "m", 0, forms), step, {"n": length}, there)[1] == chosen


def test_threads_and_blocks_of_items() -> None:
    step = Step("k", (0,), ("n",), "r", 0)
    assert run(Launch("items", "m", 128), step, {"r": 129, "n": 1})[1:4] == ("k", 2, 128)
    assert run(Launch("items", "m", 128), step, {"r": 129, "n": 1})[4][1:] == [1, 129]
    assert run(Launch("blocks", "m", 256), step, {"r": 129, "n": 1})[1:4] == ("k", 129, 256)
    assert run(Launch("blocks", "m", 256), step, {"r": 129, "n": 1})[4][1:] == [1]


def test_more_blocks_than_a_gpu_takes_are_one_error() -> None:
    step = Step("k", (0,), (), Op("mul", "n", 2**20), 0)
    assert run(Launch("blocks", "m", 32), step, {"n": 2**11 - 1})[2] == 2**31 - 2**20
    with pytest.raises(InputError, match=r"a launch of 'k' has 2147483648 blocks; a GPU takes at most 2147483647"):
        run(Launch("blocks", "m", 32), step, {"n": 2**11})


@pytest.mark.parametrize(("launch", "message"), [
    (Launch("rows", "m", 0, FORMS), "a launch of 'long_aligned' has a number of 32 bits that is 2147483648"),
    (Launch("rows", "m", 0, FORMS[:1]), "no kernel of 'k' fits for these dimensions: {'n': 2048}"),
])  # fmt: skip
def test_a_launch_that_cannot_be_is_one_error(launch: Launch, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        run(launch, Step("k", (0,), ("n", Op("mul", "n", 2**20), 1), 5, 0), {"n": 2**11})


def test_nothing_is_launched_for_what_is_empty() -> None:
    assert all_of(Launch("blocks", "m", 32), Step("k", (0,), (), "n", 0), {"n": 0}) == []
    # Matrices without rows: work items, but no blocks.
    tiles = Launch("tiles", "m", 0, (TileForm("t", 64, 64, 128, 1, None, 0),))
    step = Step("k", (0,), ("n", 5, 5, 0, 0, 5), 3, 0)
    assert all_of(tiles, step, {"n": 0}) == []
    assert run(tiles, step, {"n": 65})[1:4] == ("t", 6, 128)
