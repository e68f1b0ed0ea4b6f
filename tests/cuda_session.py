"""What is done with a built model while a stand-in plays NVIDIA's driver: `python -m tests.cuda_session LOG`.

Run in a process of its own with the stand-in (tests/libcuda.c) in LD_LIBRARY_PATH, so that the library of the model
finds it as it would find the real one; one that leaves anything behind ends the process with 97.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import softq
from softq.artifact import Artifact, manifest
from softq.artifact.library import Contexts, Library
from softq.errors import InputError, SoftqError
from tests.handmade import TABLE, rows_expected, rows_inputs
from tests.opencl import OPTIONS, device
from tests.standin import SHARED

Array = NDArray[np.generic]
Outputs = dict[str, Array]

STANDIN = ctypes.CDLL("libcuda.so.1")

_LAUNCHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.POINTER(ctypes.c_void_p)
)  # fmt: skip


def in_c(folder: Path) -> Artifact:
    """Return a built model as C programs use it: its library and nothing else does the work."""
    library = Library((folder / "libmodel.so").read_bytes(), str(folder))
    try:
        return Artifact(str(folder), manifest.read(folder), Contexts(library, str(folder), 1), 1)
    except BaseException:
        library.close()
        raise


def same(found: Array, wanted: Array) -> None:
    # Sums of eight numbers in another order, all near 56: a few times 2^-24.
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-6, atol=0)


def left() -> int:
    return STANDIN.standin_left()


class OpenCl:
    """Runs the kernels of modules that are OpenCL C, on the stand-in's memory."""

    _NUMBERS: Mapping[str, tuple[Any, Any]] = {
        "i64": (ctypes.c_int64, np.int64), "long": (ctypes.c_int64, np.int64), "i32": (ctypes.c_int32, np.int32)
    }  # fmt: skip

    def __init__(self) -> None:
        self._cl, self._queue = pytest.importorskip("pyopencl"), device()
        self._programs: dict[bytes, Any] = {}
        self._kernels: dict[tuple[bytes, bytes], tuple[Any, list[str]]] = {}
        self.launched: list[tuple[str, int, int]] = []
        self.callback = _LAUNCHER(self._launch)

    def _launch(self, code: bytes, symbol: bytes, blocks: int, threads: int, arguments: Any) -> int:
        try:
            kernel, parameters = self._kernel(code, symbol)
            found = [self._argument(text, arguments[k]) for k, text in enumerate(parameters)]
            kernel(self._queue, (blocks * threads,), (threads,), *found)
            self._queue.finish()
        except Exception as error:
            print(f"{symbol}: {error}", file=sys.stderr)
            return 719
        self.launched.append((symbol.decode(), blocks, threads))
        return 0

    def _kernel(self, code: bytes, symbol: bytes) -> tuple[Any, list[str]]:
        if (code, symbol) not in self._kernels:
            text, name = code.decode(), symbol.decode()
            if code not in self._programs:
                self._programs[code] = self._cl.Program(self._queue.context, text).build(options=OPTIONS)
            found = re.search(rf"\b{name}\(([^)]*)\)(?! *;)", text)
            assert found is not None, name
            self._kernels[code, symbol] = getattr(self._programs[code], name), found[1].split(",")
        return self._kernels[code, symbol]

    def _argument(self, parameter: str, place: int) -> Any:
        if "*" in parameter:
            address = ctypes.c_uint64.from_address(place).value
            return self._cl.SVM(np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(address)))
        in_memory, number = self._NUMBERS[parameter.split()[0]]
        return number(in_memory.from_address(place).value)


def compare(folder: Path, feeds: Path, results: Path) -> None:
    """Run a model from Python and from C on inputs `TURN.NAME`; both launch and give the same; keep what they gave."""
    opencl = OpenCl()
    STANDIN.standin_launcher(opencl.callback)
    given = np.load(feeds)
    turns = sorted({name.partition(".")[0] for name in given})
    inputs = [{n.partition(".")[2]: given[n] for n in given if n.startswith(f"{turn}.")} for turn in turns]
    with softq.load(folder) as artifact:
        in_python = [(artifact(one), opencl.launched.copy(), opencl.launched.clear()) for one in inputs]
    assert left() == 0
    kept: Outputs = {}
    with in_c(folder) as artifact:
        for _ in range(2):
            for turn, one, (wanted, launched, _none) in zip(turns, inputs, in_python, strict=True):
                found = artifact(one)
                for name, value in found.items():
                    assert value.dtype == wanted[name].dtype
                    assert value.tobytes() == wanted[name].tobytes(), (turn, name)
                    kept[f"{turn}.{name}"] = value
                assert opencl.launched == launched
                assert launched or not all(x.size for x in one.values())
                opencl.launched.clear()
    assert left() == 0
    np.savez(results, **kept)  # pyright: ignore[reportArgumentType]


def rows(folder: Path) -> None:
    """Run a hand-made model at several sizes, twice open at once, in a thread that has another context."""
    STANDIN.standin_push_another()
    with in_c(folder) as one, in_c(folder) as other:
        for batch, length in ((2, 3), (40, 100), (0, 3), (2, 0), (1, 1), (3, 70)):
            inputs = rows_inputs(batch, length)
            for artifact in (one, other):
                found = artifact(inputs)
                for name, wanted in rows_expected(**inputs).items():
                    same(found[name], wanted)
    with in_c(folder) as artifact:
        artifact(rows_inputs(1, 1))
    with softq.load(folder) as artifact:
        inputs = rows_inputs(5, 7)
        for name, value in artifact(inputs).items():
            same(value, rows_expected(**inputs)[name])
    assert STANDIN.standin_pop_another() == 1
    assert left() == 0


def look_up(folder: Path) -> None:
    """An index outside its axis is an error of this run alone."""
    inside, outside = np.array([3, 0, 9]), np.array([3, 10])
    with in_c(folder) as artifact:
        for ids in (inside, outside, inside, np.empty(0, np.int64)):
            if ids is outside:
                with pytest.raises(InputError, match="an id is not in the table of 10 rows"):
                    artifact({"ids": ids})
            else:
                np.testing.assert_array_equal(artifact({"ids": ids})["rows"], TABLE[ids])


def started(folder: Path, short: Path) -> None:
    """Kernels are started from C as from Python: form, blocks, threads, numbers of 32 and 64 bits; limits alike."""
    for (r, n, s, t), begun in (
        ((3, 16, 4, 1), (0, 12, 128)), ((3, 16, 6, 0), (0, 12, 128)), ((3, 16, 6, 1), (1, 12, 128)),
        ((3, 15, 4, 1), (1, 12, 128)), ((5, 24, 8, 2), (2, 80, 512)), ((5, 24, 4, 2), (3, 80, 512)),
        ((1, 999, 0, 1), (3, 16, 512)),
    ):  # fmt: skip
        given: dict[str, Array] = {"x": np.zeros((r, n, s, t), np.bool_)}
        for opened in (softq.load, in_c):
            with opened(folder) as artifact:
                found = [*map(int, artifact(given)["how"])]
            assert found == [*begun, 16 * r, n, r, s + 7, 0, s, 2 * s, min(t, 1)], opened
    for where, shape, message in (
        (folder, (1, 0, 2**31, 1), "a launch of 'short_aligned' has a number of 32 bits that is 2147483655"),
        (folder, (2**30, 0, 4, 1), "a launch of 'short_aligned' has 4294967296 blocks; a GPU takes at most 2147483647"),
        (short, (1, 17, 4, 1), "no kernel of .* fits for these dimensions: .*17"),
    ):
        for opened in (softq.load, in_c):
            with opened(where) as artifact, pytest.raises(InputError, match=message):
                artifact({"x": np.zeros(shape, np.bool_)})


def shared(folder: Path) -> None:
    """A kernel gets its shared memory where the GPU has as much; where it has not, another form is started."""
    given: dict[str, Array] = {"x": np.zeros((1, 16, 8, 1), np.bool_)}
    for most, (form, wanted) in ((SHARED, (2, SHARED)), (SHARED - 1, (3, 0)), (227 << 10, (2, SHARED))):
        STANDIN.standin_most_shared(most)
        for opened in (softq.load, in_c):
            with opened(folder) as artifact:
                for _ in range(2):
                    assert artifact(given)["how"][0] == form
                    assert STANDIN.standin_shared() == wanted
    assert left() == 0


def memory(folder: Path) -> None:
    """Too little memory is one error, and what was there before goes on."""
    inputs = rows_inputs(2, 3)
    for limit, wanted in ((0, "for weights of 128 bytes"), (200, "")):
        STANDIN.standin_limit(ctypes.c_size_t(limit))
        if wanted:
            with pytest.raises(SoftqError, match=f"the GPU has no memory {wanted}"):
                in_c(folder)
            assert left() == 0
    with in_c(folder) as artifact:
        with pytest.raises(SoftqError, match=r"no memory for inputs, outputs and intermediate results of \d+ bytes"):
            artifact(inputs)
        STANDIN.standin_limit(ctypes.c_size_t(1 << 20))
        artifact(inputs)
        with pytest.raises(SoftqError, match="no memory for inputs"):
            artifact(rows_inputs(1000, 100))
        same(artifact(inputs)["sums"], rows_expected(**inputs)["sums"])
    assert left() == 0
    # From Python, which gets each piece by itself: whichever is refused, nothing is left.
    STANDIN.standin_limit(ctypes.c_size_t(130))
    with softq.load(folder) as artifact:
        for _ in range(2):
            with pytest.raises(SoftqError, match=r"cuMemAlloc_v2: out of memory"):
                artifact(rows_inputs(1000, 100))
        STANDIN.standin_limit(ctypes.c_size_t(1 << 20))
        same(artifact(inputs)["sums"], rows_expected(**inputs)["sums"])
        with pytest.raises(SoftqError, match=r"cuMemAlloc_v2: out of memory"):
            artifact(rows_inputs(1000, 100))
        same(artifact(inputs)["sums"], rows_expected(**inputs)["sums"])
    assert left() == 0
    STANDIN.standin_limit(ctypes.c_size_t(0))
    with pytest.raises(SoftqError, match=r"out of memory"):
        softq.load(folder)
    assert left() == 0


def failures(folder: Path) -> None:
    """Whichever call of the driver fails, it is one error, nothing is left, and the next run is as if it had not."""
    ids = np.array([3, 0, 9])

    def opened_and_run() -> None:
        with in_c(folder) as artifact:
            try:
                artifact({"ids": ids})
            finally:
                turned_off()  # before it is closed

    # Library, device, context, two modules, function, weights, ...
    seen = _each_failing(opened_and_run)
    assert len(seen) > 16
    assert {name for text in seen for name in re.findall(r"cu[A-Z]\w+", text)} >= {
        "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2",
        "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize", "cuStreamCreate", "cuMemAllocHost_v2", "cuLaunchKernel",
    }  # fmt: skip
    with in_c(folder) as artifact:
        expected = artifact({"ids": ids})["rows"]
        np.testing.assert_array_equal(expected, TABLE[ids])

        def run() -> None:
            artifact({"ids": ids})
            turned_off()

        # Context, input, flag, kernel, flag, wait, output, wait; each time the next run is right.
        kept = left()
        assert len(_each_failing(run, lambda: np.array_equal(artifact({"ids": ids})["rows"], expected), kept)) == 8


def turned_off() -> None:
    STANDIN.standin_fail(0)


def _each_failing(work: Callable[[], None], after: Callable[[], bool] = lambda: True, kept: int = 0) -> list[str]:
    """Let the first call fail, then the second, until there is none; return what is said."""
    seen: list[str] = []
    while True:
        STANDIN.standin_fail(len(seen) + 1)
        try:
            work()
            return seen
        except SoftqError as error:
            turned_off()
            text = str(error).partition(": ")[2]
            failed = r"(was built for .*)?the GPU's driver fails in cu\w+: an error \(999\)"
            assert re.fullmatch(failed, text) or text.startswith(("needs an NVIDIA GPU", "there is no GPU")), text
            assert left() == kept, text
            assert after(), text
            seen.append(text)


def main(log: Path) -> None:
    """Do each part that a line of the input names, with its paths, in a child: the status of its end is printed."""
    for line in sys.stdin:
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        with open(log, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        name, *paths = json.loads(line)
        globals()[name](*map(Path, paths))
        return  # and to the end as every process, where the stand-in looks for what is left


if __name__ == "__main__":
    main(Path(sys.argv[1]))
