"""Row kernels on this machine give the interpreter's bits: every method, any length, alignment, mask and parameter."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import tempfile
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tvm")

from tvm import tirx

from softq.artifact.machine import Cpu
from softq.codegen.c.function import Function, constants_of
from softq.codegen.c.lowering import lower
from softq.codegen.c.machines import CORTEX_M, portable
from softq.codegen.c.prelude import prelude
from softq.codegen.cpu.machines import X86_64
from softq.codegen.cpu.object_code import object_code
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, run
from softq.rowprog.library import EXP_LIMIT, exp_minus
from softq.rowprog.onnx.interface import INTERFACE
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rowprog.types import Kind
from tests.amount import amount
from tests.skips import OTHER_PROCESSOR
from tests.test_methods import some_fitted

Array = NDArray[np.generic]

AVX512 = X86_64.machine("cpu", "x86-64-v4", "")
VBMI = X86_64.machine("cpu", "icelake-server", "")
AVX2 = Cpu(
    name="cpu",
    triple="x86_64-unknown-linux-gnu",
    cpu="haswell",
    features=(),
    zig="x86_64-linux-gnu",
    vector_bytes=32,
    vectors=16,
)
SSE2 = Cpu(
    name="cpu",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64",
    features=(),
    zig="x86_64-linux-gnu",
    vector_bytes=16,
    vectors=16,
)
PLAIN = Cpu(
    name="cpu",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64",
    features=(),
    zig="x86_64-linux-gnu",
    vector_bytes=0,
    vectors=16,
)
IN_C = portable("c")
IN_C_FUSED = CORTEX_M.machine("m7", "single")
"""What is written for a processor with multiply-adds; in C it runs here, too."""
C_COMPILER = ("gcc", "-std=c99", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wconversion",
              "-Wshadow", "-Werror")  # fmt: skip
"""Every warning is an error, but for parameters of other forms of a kernel."""
GUARD = 64


def _features() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def available() -> list[Cpu]:
    """Return the machines whose code this one runs."""
    features = _features()
    if "x86-64" not in features and "flags" not in features:
        return []
    newest = [AVX512] * all(f in features for f in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
    permutes = [VBMI] * all(f in features for f in ("avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "vpclmulqdq"))
    fused = "avx2" in features and "fma" in features
    return [*permutes, *newest, *[AVX2] * fused, SSE2, PLAIN, IN_C, *[IN_C_FUSED] * fused]


MACHINES = available()
HOST = MACHINES[0] if MACHINES else SSE2

MIDDLE = amount(AVX2 if AVX2 in MACHINES else HOST, HOST)
"""For the arithmetic of methods; each operator of theirs is tested on HOST. In the quick run kernels half as long."""

FEW = (HOST, AVX2, PLAIN, IN_C)
"""For what machines do alike: the newest vectors, narrower ones, and none; and what is compiled by a compiler of C."""


COMPILED = tuple(m for m in MACHINES if not m.in_c)
"""Whose kernels LLVM makes."""


def each_machine(quick: Container[Cpu] = COMPILED) -> list[Any]:
    """Return cases for `parametrize`: every machine whose code runs here, those that are not in `quick` slow."""
    names = {f"{m.cpu}-{m.vector_bytes}" + "-in-c" * m.in_c: m for m in MACHINES or [HOST]}
    return [pytest.param(m, id=name, marks=() if m in quick else pytest.mark.slow) for name, m in names.items()]


def output_type(program: Program, name: str) -> np.dtype[np.generic]:
    """Return the type that the kernel writes an output in."""
    return np.dtype(np.float32) if name in INTERFACE else program.outputs[name].dtype.numpy


def expected(program: Program, name: str, value: Array) -> Array:
    """Return an output of the interpreter as the kernel writes it."""
    return value.astype(output_type(program, name))


@dataclass(frozen=True)
class Call:
    """The arguments of one call: arrays in order, then integers.

    Attributes:
        inputs: Arrays that are read.
        outputs: Shapes and types of the arrays that are written; scratch is the last.
        numbers: The integers.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype[np.generic]], ...]
    numbers: tuple[int, ...]


def call_of(kernel: RowKernel, program: Program, scores: Array, valid: Array | None,
            params: Mapping[str, Array] | None, rows: tuple[int, int] | None = None) -> Call:  # fmt: skip
    """Return the arguments of a call for scores [..., N]; the mask keeps its broadcast axes."""
    lead = scores.shape[:-1]
    queries, heads = (lead[-1] if lead else 1), (lead[-2] if len(lead) > 1 else 1)
    count = int(np.prod(lead, dtype=np.int64))
    inputs: list[Array] = [scores]
    strides: list[int] = []
    if valid is not None:
        inputs.append(valid)
        given = (1,) * (scores.ndim - valid.ndim) + valid.shape
        steps, size = [0] * len(given), 1
        for axis in reversed(range(len(given))):
            steps[axis], size = (0 if given[axis] == 1 else size), size * given[axis]
        steps = [0, 0, 0, *steps][-4:]
        strides = [int(s) for s in steps]
        if scores.ndim > 4:
            raise AssertionError("masks of at most four axes")
    for param in program.params:
        value = np.asarray((params or {})[param.name])
        last = param.size or 1
        if param.scope == "head":
            value = np.broadcast_to(value.reshape(value.shape[:-2] + value.shape[-1:]) if value.ndim > 2 else value,
                                    (heads, last))  # fmt: skip
        inputs.append(np.ascontiguousarray(value.reshape(-1)))
    shapes = [(scores.shape if program.outputs[n].kind is Kind.ROW else (*lead, 1)) for n in kernel.outputs]
    outputs = [(shape, output_type(program, n)) for shape, n in zip(shapes, kernel.outputs, strict=True)]
    if kernel.scratch_bytes:
        outputs.append(((scores.size * kernel.scratch_bytes,), np.dtype(np.uint8)))
    begin, end = rows or (0, count)
    return Call(tuple(inputs), tuple(outputs), (scores.shape[-1], heads, queries, *strides, begin, end))


def c_source(function: tirx.PrimFunc, fused: bool) -> str:
    """Return the text of a kernel in C."""
    lowered = lower(function, fused)
    text = Function(lowered, "kernel", constants_of(lowered))
    return f"{prelude(text.used)}\nvoid {text.head()};\nvoid {text.head()}\n{text.body()}"


def placed(size: int, shift: int) -> tuple[Array, Array]:
    """Return memory with guards and the part between them, so many bytes behind an address divisible by 64."""
    raw = np.full(size + 2 * GUARD + 64, 0xA5, np.uint8)
    start = GUARD + (-(raw.ctypes.data + GUARD)) % 64 + shift
    return raw, raw[start : start + size]


class Host:
    """A kernel of this machine."""

    def __init__(self, program: Program, machine: Cpu = HOST, *, outputs: Sequence[str] | None = None,
                 max_length: int = 65536, nibbles: Sequence[str] = (), flags: Sequence[str] = ()) -> None:  # fmt: skip
        self.program = program
        self.kernel = row_kernel(
            program, machine, symbol="kernel", max_length=max_length, outputs=outputs, nibbles=nibbles
        )
        self.nibbles = nibbles
        # A library gets a path of its own each time: a changed file that is open corrupts the process.
        folder = Path(tempfile.mkdtemp(prefix="softq-rows-"))
        try:
            if machine.in_c:
                (folder / "kernel.c").write_text(c_source(self.kernel.function, machine.fused))
                subprocess.run(
                    [*C_COMPILER, *["-mfma"] * machine.fused, *flags, "-o", "kernel.o", "-c", "kernel.c"],
                    check=True,
                    cwd=folder,
                )
            else:
                (folder / "kernel.o").write_bytes(object_code([self.kernel.function], machine))
            # Without any library: whatever is undefined fails here. Compilers of C make loops calls of memset.
            alone = () if machine.in_c else ("-nostdlib",)
            subprocess.run(["gcc", "-shared", *alone, "-Wl,-z,defs", "-o", str(folder / "kernel.so"),
                            str(folder / "kernel.o"), *["-lm"] * machine.in_c], check=True)  # fmt: skip
            self._function = ctypes.CDLL(str(folder / "kernel.so")).kernel
        finally:
            shutil.rmtree(folder)

    def __call__(self, scores: Array, *, valid: Array | None = None, params: Mapping[str, Array] | None = None,
                 shift: int = 0, rows: tuple[int, int] | None = None) -> dict[str, Array]:  # fmt: skip
        """Return the outputs; pointers lie `shift` elements behind a multiple of 64 bytes."""
        call = call_of(self.kernel, self.program, scores, valid, params, rows)
        half = (*scores.shape[:-1], (scores.shape[-1] + 1) // 2)
        named = zip((*self.kernel.outputs, "scratch"), call.outputs, strict=False)
        call = replace(call, outputs=tuple((half if n in self.nibbles else s, t) for n, (s, t) in named))
        memory: list[tuple[Array, Array]] = []
        for array in call.inputs:
            raw, part = placed(array.nbytes, shift * array.itemsize)
            part[:] = np.frombuffer(array.tobytes(), np.uint8)
            memory.append((raw, part))
        results: list[tuple[Array, Array]] = []
        for shape, dtype in call.outputs:
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            results.append(placed(size, shift * dtype.itemsize))
        before = [raw.copy() for raw, _ in memory]
        pointers = [ctypes.c_void_p(part.ctypes.data) for _, part in (*memory, *results)]
        self._function(*pointers, *map(ctypes.c_int64, call.numbers))
        for (raw, _), old in zip(memory, before, strict=True):
            assert np.array_equal(raw, old), "an input was written"
        for raw, part in results:
            start = part.ctypes.data - raw.ctypes.data
            assert np.all(raw[:start] == 0xA5), "written before an output"
            assert np.all(raw[start + part.size :] == 0xA5), "written behind an output"
        written = zip(self.kernel.outputs, results, call.outputs, strict=False)
        return {name: part.copy().view(dtype).reshape(shape) for name, (_, part), (shape, dtype) in written}


def same_bits(found: Array, wanted: Array) -> bool:
    """Say whether two arrays are equal, zeros of either sign and any NaN alike."""
    return np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f")


def assert_same(host: Host, scores: Array, **given: object) -> None:
    """Compare a kernel with the interpreter, bit for bit."""
    ours = run(host.program, scores, valid=given.get("valid"), params=given.get("params"))  # pyright: ignore[reportArgumentType]
    found = host(scores, **given)  # pyright: ignore[reportArgumentType]
    for name, value in found.items():
        wanted = expected(host.program, name, ours[name])
        assert same_bits(value, wanted), (name, scores.shape, _first_difference(value, wanted))


def assert_codes(host: Host, scores: Array, most: float, **given: Any) -> None:
    """Compare a kernel with the interpreter where each value is a code.

    A sum of floats may differ in its last bits, and a code by one at a tie: of at most this share of the values.
    """
    ours, found = run(host.program, scores, valid=given.get("valid")), host(scores, **given)
    for output, value in found.items():
        wanted = expected(host.program, output, ours[output])
        differs = ~((value == wanted) | (np.isnan(value) & np.isnan(wanted)))
        assert np.sum(differs) <= most * value.size, (output, scores.shape)
        near = (a[differs].astype(np.float64) for a in (value, wanted))
        np.testing.assert_allclose(*near, rtol=2**-3)


def _first_difference(value: Array, wanted: Array) -> object:
    where = np.argwhere(~((value == wanted) | ((value != value) & (wanted != wanted))))
    at = tuple(where[0])
    return at, value[at], wanted[at], len(where)


TYPES: dict[str, int | float | str] = {
    "difference_type": "bf16", "exponential_type": "bf16", "sum_type": "f16", "product_type": "e4m3",
}  # fmt: skip
SETTINGS: list[tuple[str, dict[str, int | float | str], DType]] = [
    ("deferred-log", {"bits": 2, "r": 0.5}, DType.F32),
    ("deferred-log", {"bits": 4, "r": 1}, DType.F32),
    ("deferred-log", {"bits": 8, "r": 16}, DType.F32),
    ("deferred-log", {"bits": 3, "r": 5, "steps": "growing"}, DType.F32),
    ("deferred-log", {"bits": 3, "r": 5, "first": 0.3, "shift": 0.4, "steps": "growing"}, DType.F32),
    ("deferred-log", {"bits": 4, "distance": "byte"}, DType.F32),
    ("deferred-log", {"bits": 3, "distance": "byte"}, DType.F32),
    ("deferred-log", {"bits": 2, "rest": "mean"}, DType.F32),
    ("deferred-log", {"bits": 2, "rest": "mean", "step": 0.1}, DType.I8),
    ("deferred-log", {"bits": 4, "r": 1, "step": 0.1}, DType.I8),
    ("deferred-log", {"bits": 8, "r": 16, "step": 0.03}, DType.U8),
    ("deferred-log", {"bits": 3, "r": 5, "steps": "growing", "step": 0.1}, DType.I8),
    ("log2", {"bits": 4}, DType.F32),
    ("uniform", {"bits": 8}, DType.F32),
    ("adalog", {"bits": 4, "q": 22}, DType.F32),
    ("log-sqrt2", {"bits": 4, "scale": 0.5}, DType.F32),
    ("bias-corrected", {"bits": 8, "bias": -0.001}, DType.F32),
    ("minifloat", {"bits": 4}, DType.F32),
    ("nvfp4", {}, DType.F32),
]


def program_of(name: str, settings: Mapping[str, int | float | str], kind: DType, masked: bool) -> Program:
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(settings), False), scores=kind, masked=masked)


def all_outputs(program: Program) -> list[str]:
    return list(program.outputs)


def rows_of(shape: tuple[int, ...], kind: DType, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if kind.is_float:
        return (rng.normal(size=shape) * rng.choice([0.3, 3.0, 20.0], (*shape[:-1], 1))).astype(np.float32)
    return rng.integers(kind.low, kind.high + 1, shape).astype(kind.numpy)


MISSING = OTHER_PROCESSOR if not MACHINES else "needs gcc" * (shutil.which("gcc") is None)
"""Why kernels cannot run here, or nothing."""

needs_host = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@needs_host
@pytest.mark.parametrize(("name", "kind"), [("exact", DType.F32), ("adalog", DType.F32), ("i-exp", DType.I8)])
def test_a_row_alone_is_the_row_among_others(name: str, kind: DType) -> None:
    """Groups of short rows add in the order in which a single one does."""
    settings: dict[str, int | float | str] = {"step": 0.05} if kind is DType.I8 else {}
    host = Host(program_of(name, settings, kind, False))
    for length in (3, 16, 17, 40, 48, 49, 50, 63, 64, 65, 127):
        rows = rows_of((61, length), kind, length)
        alone = [host(row[None]) for row in rows]
        for output, together in host(rows).items():
            assert same_bits(together, np.concatenate([one[output] for one in alone])), length


@pytest.mark.quick_cases(3)
@needs_host
@pytest.mark.parametrize(
    ("name", "settings", "kind", "masked"),
    [
        pytest.param(*case, masked, id=f"{'-'.join(map(str, case))}-{'masked' * masked}", marks=marks)
        for number, case in enumerate(SETTINGS)
        # A mask changes what is counted, and nothing else.
        for masked, marks in ((True, ()), (False, () if number in (1, 3, 5, 7, 10) else pytest.mark.slow))
    ],
)
def test_any_length_and_alignment(name: str, settings: dict[str, int | float | str], kind: DType, masked: bool) -> None:
    program = program_of(name, settings, kind, masked)
    exact = name == "deferred-log"  # the others sum exponentials, in another order
    host = Host(program, outputs=all_outputs(program) if exact else None)
    for length in (*range(131), 197, 512, 4097):
        rows = rows_of((7, length), kind, length)
        given: dict[str, Array] = {}
        if masked:
            keep = np.random.default_rng(length).random(rows.shape) < 0.7
            keep[2] = False
            given["valid"] = keep
        if exact:
            assert_same(host, rows, shift=length % 5, **given)
        else:
            assert_codes(host, rows, 1e-3, shift=length % 5, **given)


@pytest.mark.quick_cases(3)
@needs_host
@pytest.mark.parametrize("machine", each_machine((HOST, IN_C)))
@pytest.mark.parametrize("name", ["exact", "exact-online", "two-pass"])
def test_types_of_the_steps(name: str, machine: Cpu) -> None:
    host = Host(program_of(name, TYPES, DType.F32, False), machine)
    for length in (1, 16, 40, 197):
        # Exponentials that differ in their last bits are rounded alike but at ties, sums of them too.
        assert_codes(host, rows_of((16, length), DType.F32, length), 0.07)


@needs_host
@pytest.mark.parametrize("machine", each_machine((HOST, IN_C)))
def test_scales_of_groups(machine: Cpu) -> None:
    """Groups begin where they begin, whatever blocks a kernel has; exponentials differ in their last bits."""
    program = program_of("mxfp8", {}, DType.F32, True)
    host = Host(program, machine)
    for length in (0, 1, 31, 32, 33, 64, 100, 197, 1025):
        rows = rows_of((16, length), DType.F32, length)
        keep = np.random.default_rng(length).random(rows.shape) < 0.7
        ours, found = (
            {name: value.astype(np.float32) for name, value in outputs.items()}
            for outputs in (run(program, rows, valid=keep), host(rows, valid=keep))
        )
        assert np.sum(found["weights"] != ours["weights"]) <= 1e-3 * rows.size
        np.testing.assert_allclose(found["normalizer"], ours["normalizer"], rtol=1e-4)


@pytest.mark.quick_cases(1)
@needs_host
@pytest.mark.parametrize("machine", each_machine())
def test_every_pair_of_a_maximum_and_a_score(machine: Cpu) -> None:
    for name, settings, kind in SETTINGS:
        if kind.is_float:
            continue
        values = np.arange(kind.low, kind.high + 1)
        pairs = np.minimum(values[None], values[:, None]).astype(kind.numpy)  # row m: every score up to m
        for masked in (False, True):
            program = program_of(name, settings, kind, masked)
            host = Host(program, machine, outputs=all_outputs(program))
            keep = np.random.default_rng(1).random(pairs.shape) < 0.8
            assert_same(host, pairs, **({"valid": keep} if masked else {}))


def two_a_byte(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return codes of four bits with an even element in the low half of a byte and the next one in the high half."""
    padded = np.concatenate([codes, np.zeros((*codes.shape[:-1], codes.shape[-1] % 2), np.uint8)], axis=-1)
    return np.bitwise_or(padded[..., ::2], np.left_shift(padded[..., 1::2], 4))


@pytest.mark.quick_cases(6)
@needs_host
@pytest.mark.parametrize("machine", each_machine(FEW))
@pytest.mark.parametrize(("settings", "kind"), [
    ({"bits": 4, "r": 1}, DType.F32), ({"bits": 3, "r": 0.75}, DType.F32), ({"bits": 4, "r": 1, "step": 0.1}, DType.I8),
], ids=str)  # fmt: skip
def test_codes_of_four_bits_stand_two_a_byte(machine: Cpu, settings: dict[str, int | float | str], kind: DType) -> None:
    program = program_of("deferred-log", settings, kind, False)
    folded = tabulate_or_keep(program)[0]
    host = Host(folded, machine, outputs=("codes", "normalizer"), nibbles=("codes",))
    for length in range(131):
        rows = rows_of((5, length), kind, length)
        ours, found = run(program, rows), host(rows, shift=length % 3)
        np.testing.assert_array_equal(found["codes"], two_a_byte(ours["codes"].astype(np.uint8)), err_msg=str(length))
        np.testing.assert_array_equal(found["normalizer"], expected(program, "normalizer", ours["normalizer"]))


def test_two_a_byte_are_codes_of_at_most_four_bits() -> None:
    wide = program_of("deferred-log", {"bits": 5, "r": 2}, DType.F32, False)
    with pytest.raises(UsageError, match="codes of deferred-log goes up to 31; four bits hold at most 15"):
        row_kernel(wide, HOST, symbol="kernel", max_length=64, outputs=("codes",), nibbles=("codes",))
    with pytest.raises(UsageError, match="weights of deferred-log is no row of u8"):
        row_kernel(wide, HOST, symbol="kernel", max_length=64, nibbles=("weights",))


@pytest.mark.quick_cases(8)
@needs_host
@pytest.mark.parametrize("machine", each_machine(FEW))
@pytest.mark.parametrize(("bits", "r"), [(2, 0.5), (3, 0.75), (4, 1.0), (4, 0.613), (8, 16.0)])
def test_codes_at_their_boundaries(machine: Cpu, bits: int, r: float) -> None:
    program = program_of("deferred-log", {"bits": bits, "r": r, "steps": "equal"}, DType.F32, False)
    host = Host(program, machine, outputs=all_outputs(program))
    border = (np.arange(2**bits + 1) + 0.5) / np.float64(np.float32(r * np.log2(np.e)))
    ulps = np.arange(-4, 5, dtype=np.int32)[:, None]
    d = (border.astype(np.float32).view(np.int32) + ulps).view(np.float32).ravel()
    for peak in (0.0, 1.0, -3.25, 1000.0):
        assert_same(host, np.concatenate([[np.float32(peak)], np.float32(peak) - d]).astype(np.float32)[None])
        assert_same(host, np.stack([np.full_like(d, peak), np.float32(peak) - d / 2], axis=-1).astype(np.float32))


@needs_host
@pytest.mark.parametrize("machine", each_machine(FEW))
def test_a_table_that_rises_by_one_is_looked_up(machine: Cpu) -> None:
    # Every byte from 0 on, and what is beyond; where permutes are dear, the places where codes rise are counted.
    octaves = np.concatenate([np.arange(0, 16.1, 1 / 16), [20, 1e30, np.inf]])
    host = Host(
        program_of("deferred-log", {"bits": 3, "distance": "byte"}, DType.F32, False), machine, outputs=["codes"]
    )
    assert_same(host, np.stack([-octaves, 3 - octaves]).astype(np.float32) * np.float32(math.log(2)))


@pytest.mark.quick_cases(4)
@needs_host
@pytest.mark.parametrize("machine", each_machine(FEW))
@pytest.mark.parametrize("scope", ["site", "head"])
@pytest.mark.parametrize("settings", [
    {"bits": 4, "distance": "float"}, {"bits": 3},
    *(pytest.param({"bits": bits, "distance": "float"}, marks=pytest.mark.slow) for bits in (2, 8)),
], ids=str)  # fmt: skip
def test_parameters_of_a_site_and_of_heads(machine: Cpu, scope: str, settings: dict[str, int | str]) -> None:
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({**settings, "r": scope}), True)
    values = dict(method.parameters(options, some_fitted(options)))
    for masked in (False, True):
        program = method.program(options, masked=masked)
        host = Host(program, machine, outputs=all_outputs(program))
        for length in (1, 3, 16, 50, 197):
            rows = rows_of((2, 3, 5, length), DType.F32)
            keep = {"valid": np.random.default_rng(0).random((2, 1, 5, length)) < 0.7} if masked else {}
            assert_same(host, rows, params=values, shift=1, **keep)


@needs_host
def test_masks_broadcast() -> None:
    host = Host(program_of("deferred-log", {"bits": 4, "r": 1}, DType.F32, True))
    for n in (33, 67, 197):
        for shape in ((2, 3, 5, n), (1, 1, 1, n), (2, 1, 1, n), (1, 3, 5, 1), (2, 1, 5, 1), (n,)):
            keep = np.random.default_rng(3).random(shape) < 0.6
            assert_same(host, rows_of((2, 3, 5, n), DType.F32), valid=keep)


@needs_host
@pytest.mark.parametrize("length", [16, 33, 67])
def test_only_the_rows_asked_for_are_touched(length: int) -> None:
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({"bits": 4, "r": "head"}), True)
    values = dict(method.parameters(options, {"r": (0.37, 0.61, 1.9)}))
    program = method.program(options)
    host, rows = Host(program), rows_of((2, 3, 5, length), DType.F32)
    whole = run(program, rows, params=values)
    # Short rows stand side by side by fours: any number of them, and one that is less.
    for begin, end in ((0, 0), (0, 1), (3, 6), (4, 17), (7, 15), (9, 15), (1, 30), (29, 30), (30, 30)):
        part = host(rows, params=values, rows=(begin, end))
        for name, value in part.items():
            flat, wanted = value.reshape(30, -1), expected(program, name, whole[name]).reshape(30, -1)
            np.testing.assert_array_equal(flat[begin:end], wanted[begin:end])
            outside = np.concatenate([flat[:begin], flat[end:]])
            assert np.all(outside.view(np.uint8) == 0xA5)


def softmax64(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """The bound is of e^-d for the float32 distance d from the maximum."""
    d = (x - np.max(x, axis=-1, keepdims=True)).astype(np.float64)
    return np.exp(d) / np.sum(np.exp(d), axis=-1, keepdims=True)


@needs_host
@pytest.mark.parametrize("machine", each_machine())
def test_exact_softmax_is_within_its_bound(machine: Cpu) -> None:
    host = Host(program_of("exact", {}, DType.F32, False), machine)
    for length in (1, 2, 15, 16, 17, 50, 197, 512, 4097):
        rows = rows_of((64, length), DType.F32, length)
        found, wanted = host(rows), softmax64(rows.astype(np.float32))
        p = found["weights"].astype(np.float64) / found["normalizer"].astype(np.float64)
        seen = wanted > 3e-38
        assert np.max(np.abs(p[seen] / wanted[seen] - 1)) <= 2e-7 + length * 2.0**-24
        assert np.max(p[~seen], initial=0) <= 3.1e-38


@pytest.mark.quick_cases(8)
@needs_host
@pytest.mark.parametrize("machine", each_machine(FEW))
@pytest.mark.parametrize("name", ["exact", "deferred-log", "log2", "uniform"])
def test_special_values(machine: Cpu, name: str) -> None:
    inf, nan, most = np.inf, np.nan, np.finfo(np.float32).max
    rows = np.array([[1, 2, 3], [inf, 0, inf], [-inf, -inf, -inf], [nan, 1, 2], [0, nan, inf], [1, -inf, nan],
                     [most, -most, 0], [-inf, 5, inf], [1e-45, 0, -1e-45], [-0.0, 0.0, -0.0]], np.float32)  # fmt: skip
    program = program_of(name, {}, DType.F32, False)
    host = Host(program, machine)
    for some in (rows, np.tile(rows, 7), np.tile(rows, 70)):
        ours = run(program, some)
        for output, value in host(some).items():
            keep = ~np.isnan(ours["normalizer"][:, 0]) if output == "weights" else slice(None)
            wanted = expected(program, output, ours[output]).astype(np.float64)
            np.testing.assert_allclose(value.astype(np.float64)[keep], wanted[keep], rtol=1e-6)


@needs_host
def test_stored_rows_without_an_output_to_stand_in_take_scratch() -> None:
    t = Trace("stored", structure="x", scores=DType.F32)
    root = t.sqrt(t.max(t.scores, 0.0))
    program = t.program(
        weights=t.scores, normalizer=t.row_sum(t.select(t.row_max(root) <= root, t.const(1.0, DType.F32), 0.0))
    )
    host = Host(program, outputs=["normalizer"])
    assert host.kernel.scratch_bytes == 8
    for length in (0, 1, 5, 16, 33, 100):
        assert_same(host, rows_of((9, length), DType.F32, length))


@pytest.mark.slow
@needs_host
def test_log2_is_within_three_units_everywhere() -> None:
    t = Trace("log2", structure="x", scores=DType.F32)
    program = t.program(weights=t.scores, normalizer=t.length(), log=t.log2(t.scores))
    host = Host(program, outputs=["log"])
    for start in range(0, 0x7F800000, 1 << 24):
        x = np.arange(start, min(start + (1 << 24), 0x7F800000), 3, dtype=np.uint32).view(np.float32)[None]
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = np.log2(x.astype(np.float64))
        found, finite = host(x)["log"].astype(np.float64), np.isfinite(wanted)
        assert np.array_equal(found[~finite], wanted[~finite])
        wanted, found = wanted[finite], found[finite]
        units = np.abs(found - wanted) / np.spacing(np.abs(wanted.astype(np.float32))).astype(np.float64)
        assert np.max(units) <= 3


@needs_host
@pytest.mark.parametrize("machine", each_machine())
def test_the_exponential_keeps_its_bound(machine: Cpu) -> None:
    t = Trace("exponential", structure="x", scores=DType.F32)
    host = Host(t.program(weights=exp_minus(t, t.scores), normalizer=t.length()), machine, outputs=["weights"])
    d = np.linspace(0, EXP_LIMIT + 1, 400_001, dtype=np.float32)[None]
    found, near = host(d)["weights"].astype(np.float64), d <= EXP_LIMIT
    assert np.max(np.abs(found[near] / np.exp(-d.astype(np.float64))[near] - 1)) <= 1.95e-7
    assert not np.any(found[~near])
    assert host(np.array([[0.0, np.inf, 1e30, -0.0] * 9], np.float32))["weights"][0, :4].tolist() == [1, 0, 0, 1]
