"""Row kernels for GPUs as OpenCL on PoCL, which runs them on a processor: the form with shared memory and barriers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.codegen.gpu.dialect.dialects import OPENCL
from softq.codegen.gpu.rows import RowKernel, Tiling, row_kernel
from softq.codegen.gpu.rows.load_store import bytes_of
from softq.codegen.gpu.rows.tiling import choose_tiling
from softq.rowprog import Program
from softq.rowprog.phases import is_group
from softq.rowprog.program import size_of
from softq.rowprog.types import Kind

Array = NDArray[np.generic]

GUARD = 64
MOST_SHARED = 227 << 10
# Optimising takes four times as long as all the rest of a test.
OPTIONS = ["-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt", "-cl-opt-disable"]


@functools.cache
def device() -> Any:
    """Return a queue of PoCL's device; skip the test where there is none."""
    cl = pytest.importorskip("pyopencl", reason="needs pyopencl and PoCL: pip install 'softq[dev]'")
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        platforms = []
    found = [d for p in platforms if "Portable" in p.name for d in p.get_devices()]
    if not found:
        pytest.skip("needs PoCL: pip install 'pyopencl[pocl]'")
    for each in found:
        context = cl.Context([each])
        # PoCL's wheel is older than some processors, for which it compiles nothing.
        with contextlib.suppress(cl.RuntimeError):
            cl.Program(context, "kernel void nothing() {}").build()
            return cl.CommandQueue(context)
    pytest.skip(f"no PoCL here compiles for {found[0].name}: apt-get install pocl-opencl-icd")


def compiled(text: str, symbol: str) -> Any:
    """Return a kernel by its symbol; whatever the compiler warns of is an error."""
    cl, queue = pytest.importorskip("pyopencl"), device()
    program = cl.Program(queue.context, OPENCL.prelude() + text).build(options=[*OPTIONS, "-Werror"])
    return getattr(program, symbol)


def launch(kernel: Any, blocks: int, threads: int, arguments: Sequence[Array | int | np.generic],
           written: Sequence[int]) -> list[Array]:  # fmt: skip
    """Run a kernel; return the arrays at the given positions as it left them, what lies around them being checked."""
    cl, queue = pytest.importorskip("pyopencl"), device()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            raw = np.full(argument.nbytes + GUARD, 0xA5, np.uint8)
            raw[: argument.nbytes] = np.frombuffer(argument.tobytes(), np.uint8)
            buffers.append(cl.Buffer(queue.context, flags, hostbuf=raw))
        else:
            buffers.append(argument)
    kernel(queue, (blocks * threads,), (threads,), *buffers)
    results: list[Array] = []
    for position, argument in enumerate(arguments):
        if not isinstance(argument, np.ndarray):
            continue
        raw = np.empty(argument.nbytes + GUARD, np.uint8)
        cl.enqueue_copy(queue, raw, buffers[position])
        assert np.all(raw[argument.nbytes :] == 0xA5), f"written behind argument {position}"
        value = raw[: argument.nbytes].copy().view(argument.dtype).reshape(argument.shape)
        if position in written:
            results.append(value)
        else:
            assert value.tobytes() == argument.tobytes(), f"argument {position} was written"
    return results


_NUMPY = {"f32": "float32", "f16": "float16", "bf16": "uint16"}


def numpy_type(stored: str) -> np.dtype[np.generic]:
    """Return NumPy's type of elements in memory; bfloat16 as its bits."""
    return np.dtype(_NUMPY.get(stored) or f"{'uint' if stored[0] == 'u' else 'int'}{stored.lstrip('iu')}")


class OpenCl:
    """A program's kernels, compiled as rows of other lengths ask for other forms."""

    def __init__(self, program: Program, *, outputs: Sequence[str] | None = None, max_length: int = 65536,
                 nibbles: Sequence[str] = (), scores: str | None = None, stored: Mapping[str, str] | None = None,
                 form: Tiling | None = None) -> None:  # fmt: skip
        self.program, self.nibbles, self._form = program, nibbles, form
        self._scores = scores or program.scores.value
        self._make = functools.cache(lambda form: self._compiled(row_kernel(
            program, form, OPENCL, symbol="kernel_of_rows", max_length=max_length, outputs=outputs, nibbles=nibbles,
            scores=scores, stored=stored)))  # fmt: skip

    def _compiled(self, kernel: RowKernel) -> tuple[RowKernel, Any]:
        return kernel, compiled(kernel.text, kernel.symbol)

    def form(self, length: int) -> Tiling:
        """Return the form for rows of a length."""
        if self._form is not None:
            return self._form
        in_order = any(node.op == "scan" for node in self.program.nodes())
        # One access is at most a group; the groups of number formats are never so small.
        least = min((size_of(node) for node in self.program.nodes() if is_group(node)), default=16)
        return choose_tiling(
            length, bytes_of(self._scores), aligned=least >= 16 // bytes_of(self._scores), in_order=in_order,
            even=bool(self.nibbles), shared_bytes=MOST_SHARED,
        )  # fmt: skip

    def __call__(self, scores: Array, *, valid: Array | None = None,
                 params: Mapping[str, Array] | None = None) -> dict[str, Array]:  # fmt: skip
        """Return the outputs for scores [..., N]; bfloat16 is given and returned as its bits."""
        kernel, function = self._make(self.form(scores.shape[-1]))
        lead, length = scores.shape[:-1], scores.shape[-1]
        queries, heads = (lead[-1] if lead else 1), (lead[-2] if len(lead) > 1 else 1)
        count = int(np.prod(lead, dtype=np.int64))
        arguments: list[Any] = [np.ascontiguousarray(scores)]
        strides: list[Any] = []
        if valid is not None:
            given = (1,) * (scores.ndim - valid.ndim) + valid.shape
            steps, size = [0] * len(given), 1
            for axis in reversed(range(len(given))):
                steps[axis], size = (0 if given[axis] == 1 else size), size * given[axis]
            strides = [np.int64(s) for s in [0, 0, 0, *steps][-4:]]
            arguments.append(np.ascontiguousarray(valid).view(np.uint8))
        for param in self.program.params:
            value = np.asarray((params or {})[param.name])
            if param.scope == "head":
                value = value.reshape(value.shape[:-2] + value.shape[-1:]) if value.ndim > 2 else value
                value = np.broadcast_to(value, (heads, param.size or 1))
            arguments.append(np.ascontiguousarray(value.reshape(-1)))
        first = len(arguments)
        for name in kernel.outputs:
            row = self.program.outputs[name].kind is Kind.ROW
            last = ((length + 1) // 2 if name in self.nibbles else length) if row else 1
            arguments.append(np.full((*lead, last), 0x5A, np.uint8).astype(numpy_type(kernel.stored[name])))
        last = len(arguments)
        arguments += [np.int64(count), np.int32(length), np.int32(heads), np.int32(queries), *strides]
        if count == 0:
            return dict(zip(kernel.outputs, arguments[first:last], strict=True))
        blocks = -(-count // kernel.tiling.rows)
        found = launch(function, blocks, kernel.tiling.threads, arguments, range(first, last))
        return dict(zip(kernel.outputs, found, strict=True))
