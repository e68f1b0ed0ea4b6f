"""Softmax kernels, a row at a time: exact and logarithmic ones from float scores, folded tables from 8-bit scores."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.cpu.section import Result, Section, Settings
from benchmarks.cpu.timing import Call, ratio, take_turns
from softq.errors import RefusalError
from softq.methods import METHODS
from softq.rowprog import DType, Program
from softq.rowprog.codes import coded
from softq.rowprog.program import quotient
from softq.rowprog.tabulate import tabulate_or_keep

if TYPE_CHECKING:
    import onnx

    from softq.codegen.cpu.rows import RowKernel

Array = NDArray[np.generic]

SHAPES = ("4096x512", "1024x4096", "64x65536", "2364x197", "4800x50")
ROUNDS = 41
STEP = 0.1
"""Real value of one unit of the 8-bit scores."""

SOFTMAX, QLINEAR, TORCH, TVM, COPY = (
    "onnxruntime Softmax", "onnxruntime QLinearSoftmax", "torch.softmax", "TVM's softmax", "copy of the floats",
)  # fmt: skip
BYTES = "copy of the bytes"
EXACT, CODES = "exact, probabilities", "deferred-log, 8-bit codes and sum"
NIBBLES, MASKED = "deferred-log, 4-bit codes two a byte and sum", "deferred-log with a byte mask"


@dataclass(frozen=True)
class Kernel:
    """A piece of work of softq's.

    Attributes:
        program: What it computes.
        outputs: The outputs that it writes.
        limits: The rivals, with the ratio aimed at or None.
        nibbles: Those of the outputs that are written two elements a byte.
    """

    program: Program
    outputs: tuple[str, ...]
    limits: Mapping[str, float | None]
    nibbles: tuple[str, ...] = ()


def _program(method: str, scores: DType, *, masked: bool = False, **options: int | float | str) -> Program:
    chosen = METHODS.get(method)
    return chosen.program(chosen.resolve(chosen.configure(options), False), scores=scores, masked=masked)


def kernels(length: int) -> dict[str, Kernel]:
    """Return softq's work for rows of a length, by name."""
    short = length < 256
    floats = {SOFTMAX: 0.85 if short else 0.75, TORCH: None, TVM: 0.10, COPY: None}
    found = {EXACT: Kernel(quotient(_program("exact", DType.F32)), ("probabilities",), floats)}
    found[CODES] = Kernel(
        _program("deferred-log", DType.F32, r=1), ("codes", "normalizer"), {SOFTMAX: 0.38, COPY: None}
    )
    for bits in (4, 3, 2):
        plain = _program("deferred-log", DType.F32, bits=bits)
        name = f"deferred-log, {bits} bits, growing steps of a distance in a byte"
        found[name] = Kernel(plain, ("codes", "normalizer"), {SOFTMAX: 0.36, COPY: None})
        rest = _program("deferred-log", DType.F32, bits=bits, rest="mean")
        found[f"deferred-log, {bits} bits, rest=mean, weights and sum"] = Kernel(
            rest, ("weights", "normalizer"), {SOFTMAX: None, COPY: None}
        )
    halves = _program("deferred-log", DType.F32, r=1)
    found[NIBBLES] = Kernel(halves, ("codes", "normalizer"), {SOFTMAX: 0.36, COPY: None}, ("codes",))
    masked = _program("deferred-log", DType.F32, masked=True, r=1)
    found[MASKED] = Kernel(masked, ("codes", "normalizer"), {CODES: 1.3, SOFTMAX: None})
    for name, method in METHODS.entries().items():
        if method.integer_scores and method.drop_in:
            options = {"step": STEP} if "step" in method.options.specs() else {}
            program = _program(name, DType.I8, **options)
            if all(node.op != "scan" for node in program.nodes()):
                found |= _of_bytes(f"{name} of int8", program)
    # What QLinearSoftmax itself gives.
    whole = _program("qlinear", DType.I8, step=STEP, output="uint8")
    found |= _of_bytes("qlinear of int8, divided", whole)
    return found


def _of_bytes(name: str, program: Program) -> Iterator[tuple[str, Kernel]]:
    """Yield the folded table of a program of 8-bit scores, under a name that says what each element takes."""
    program, refused = tabulate_or_keep(program)
    if refused is not None or program.params:
        return
    outputs = ("weights", "normalizer") if program.is_pair else ("probabilities",)
    with suppress(RefusalError):
        program, outputs = coded(program).program, ("codes", "normalizer")
    row = program.outputs[outputs[0]]
    yield (
        f"{name}, {outputs[0]} of {row.dtype.value}{' and sum' * program.is_pair}",
        Kernel(program, outputs, {SOFTMAX: 0.18, QLINEAR: 0.03, BYTES: None}),
    )


def scores(rows: int, length: int) -> tuple[Array, Array]:
    """Return normal scores as floats and as 8-bit integers."""
    from benchmarks.cpu.native import aligned

    floats, integers = aligned((rows, length), np.float32), aligned((rows, length), np.int8)
    floats[:] = np.random.default_rng(0).normal(size=(rows, length)) * 3
    integers[:] = np.clip(np.rint(floats / STEP), -128, 127)
    return floats, integers


def measure(settings: Settings) -> Iterator[Result]:
    """Yield the results, shape by shape."""
    for place in SHAPES:
        if not settings.wants(place):
            continue
        rows, length = map(int, place.split("x"))
        floats, integers = scores(rows, length)
        chosen = {name: k for name, k in kernels(length).items() if settings.wants(place, name)}
        for threads in settings.threads:
            with ThreadPoolExecutor(threads) as pool:
                calls = dict(_calls(chosen, floats, integers, threads, pool, settings.cpu))
                wanted = {rival for kernel in chosen.values() for rival in kernel.limits}
                calls |= {r: c for r, c in _rivals(floats, integers, threads, wanted) if r in wanted}
                times = take_turns(calls, settings.rounds or ROUNDS, warm=True)
            for name, kernel in chosen.items():
                for rival, limit in kernel.limits.items():
                    if rival in calls:
                        yield ratio(times, name, rival, work=name, place=place, threads=threads, limit=limit)


def _calls(
    chosen: Mapping[str, Kernel], floats: Array, integers: Array, threads: int, pool: ThreadPoolExecutor, cpu: str
) -> Iterator[tuple[str, Call]]:
    """Yield a call of each kernel."""
    from benchmarks.cpu.native import aligned, library
    from softq.codegen.cpu.machines import host
    from softq.codegen.cpu.rows import row_kernel

    machine = host("cpu", cpu, "")
    rows, length = floats.shape
    built: dict[str, RowKernel] = {}
    for i, (name, k) in enumerate(chosen.items()):
        program, outputs = _own_types(k.program, k.outputs), [_OWN.get(o, o) for o in k.outputs]
        built[name] = row_kernel(program, machine, symbol=f"kernel_{i}", max_length=length, outputs=outputs,
                                 nibbles=k.nibbles)  # fmt: skip
    loaded = library([kernel.function for kernel in built.values()], machine)
    valid = np.random.default_rng(1).random(floats.shape) < 0.9
    for name, kernel in built.items():
        program = chosen[name].program
        scores = floats if program.scores.is_float else integers
        outputs = [aligned((rows, 1) if o == "sum" else floats.shape, np.uint64) for o in kernel.outputs]
        if kernel.scratch_bytes:
            outputs.append(aligned((floats.size * kernel.scratch_bytes,), np.uint8))
        yield name, _call(loaded[kernel.symbol], scores, valid if program.masked else None, outputs, threads, pool)


_OWN = {"weights": "row", "normalizer": "sum", "probabilities": "probabilities"}
"""Names under which a kernel writes results in their own type: those of a function's interface are float32."""


def _own_types(program: Program, outputs: Sequence[str]) -> Program:
    return replace(program, outputs=dict(program.outputs) | {_OWN.get(o, o): program.outputs[o] for o in outputs})


def _call(
    function: ctypes._FuncPointer,  # pyright: ignore[reportPrivateUsage]
    scores: Array,
    valid: Array | None,
    outputs: Sequence[Array],
    threads: int,
    pool: ThreadPoolExecutor,
) -> Call:
    """Return a call over all rows, in as many parts as there are threads."""
    from benchmarks.cpu.native import pointer

    rows, length = scores.shape
    arrays = [scores, *([] if valid is None else [valid]), *outputs]
    strides = [0, 0, length, 1] if valid is not None else []
    sizes = [ctypes.c_int64(n) for n in (length, 1, rows, *strides)]
    cuts = [rows * i // threads for i in range(threads + 1)]
    parts = [[*map(pointer, arrays), *sizes, ctypes.c_int64(a), ctypes.c_int64(b)] for a, b in pairwise(cuts)]

    def call() -> object:
        assert arrays
        if threads == 1:
            return function(*parts[0])
        return list(pool.map(lambda arguments: function(*arguments), parts))

    return call


def _rivals(floats: Array, integers: Array, threads: int, wanted: Iterable[str]) -> Iterator[tuple[str, Call]]:
    """Yield the calls that softq is compared to."""
    from benchmarks.cpu.native import aligned, session_call

    shape, out, bytes_out = list(floats.shape), aligned(floats.shape, np.float32), aligned(floats.shape, np.int8)
    yield COPY, lambda: np.copyto(out, floats)
    yield BYTES, lambda: np.copyto(bytes_out, integers)
    yield SOFTMAX, session_call(_softmax(shape), {"x": floats}, {"y": out}, threads)
    if QLINEAR in wanted:
        yield QLINEAR, session_call(_qlinear_softmax(shape), {"x": integers}, {"y": bytes_out}, threads)
    if TORCH in wanted:
        yield TORCH, _torch_softmax(floats, out, threads)
    if TVM in wanted:
        yield TVM, _tvm_softmax(floats, out)


def _softmax(shape: list[int]) -> onnx.ModelProto:
    import onnx

    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", values[:1], values[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)


def _qlinear_softmax(shape: list[int]) -> onnx.ModelProto:
    import onnx

    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.INT8, shape) for n in "xy"]
    numbers = {"xs": np.float32(STEP), "xz": np.int8(0), "ys": np.float32(1 / 256), "yz": np.int8(-128)}
    given = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in numbers.items()]
    node = onnx.helper.make_node(
        "QLinearSoftmax", ["x", *numbers], ["y"], domain="com.microsoft", axis=-1, opset=13
    )  # fmt: skip
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:], given)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _torch_softmax(floats: Array, out: Array, threads: int) -> Call:
    import torch

    x, y = torch.from_numpy(floats), torch.from_numpy(out)

    def call() -> object:
        torch.set_num_threads(threads)
        return torch.softmax(x, -1, out=y)

    return call


def _tvm_softmax(floats: Array, out: Array) -> Call:
    """Return TVM's own lowering: the operator's definition, fused, without tuning; it uses one thread."""
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(list(floats.shape), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.softmax(x)))
    target = tvm.target.Target({"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu())})
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target), tvm.cpu())
    given = tvm.runtime.tensor(floats)
    return lambda: machine["main"](given)


SECTION = Section(
    name="rows",
    title="Softmax kernels",
    text=(
        "Rows x elements. Scores are normal numbers with a standard deviation of 3; 8-bit scores are the same in steps "
        "of 0.1. `exact` divides; the others give codes or weights and their sum, for a division behind the product "
        "with V. Kernels of 8-bit scores are the folded tables, against the Softmax of the floats; what they write of "
        "each element stands in their names. Codes are bytes, each of which stands for an entry of a table of at most "
        "256 weights, constant and known to the reader (`softq.rowprog.codes`). The mask is a byte "
        "an element, a tenth of them masked. Before each timed call stands one of the same that is not timed: it "
        "finds the caches as it leaves them itself. onnxruntime, torch and softq use the threads that are named."
    ),
    measure=measure,
)
