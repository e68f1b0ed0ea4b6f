"""Row kernels of small processors give the interpreter's bits too, run in an emulator."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tvm")

from softq.artifact.machine import Cpu
from softq.codegen.cpu.object_code import object_code
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, run
from softq.rowprog.codes import coded
from softq.rowprog.tabulate import tabulate_or_keep
from tests.amount import amount
from tests.emulators import EMULATORS, emulator
from tests.test_native_rows import AVX2, AVX512, PLAIN, SSE2, Array, Call, call_of, expected, same_bits

EDGE = {
    "aarch64": Cpu(
        name="aarch64",
        triple="aarch64-unknown-linux-gnu",
        cpu="cortex-a53",
        features=(),
        zig="aarch64-linux-musl",
        vector_bytes=16,
        vectors=32,
    ),
    "armv7": Cpu(
        name="arm",
        triple="armv7a-unknown-linux-gnueabihf",
        cpu="cortex-a7",
        features=("neon", "vfp4"),
        zig="arm-linux-musleabihf",
        vector_bytes=16,
        vectors=16,
        float_abi="hard",
    ),
    "riscv64": Cpu(
        name="riscv64",
        triple="riscv64-unknown-linux-gnu",
        cpu="generic-rv64",
        features=("m", "a", "f", "d", "c"),
        zig="riscv64-linux-musl",
        vector_bytes=0,
        vectors=0,
        abi="lp64d",
    ),
    "riscv64v": Cpu(
        name="riscv64v",
        triple="riscv64-unknown-linux-gnu",
        cpu="generic-rv64",
        features=("m", "a", "f", "d", "c", "v"),
        zig="riscv64-linux-musl",
        vector_bytes=16,
        vectors=32,
        abi="lp64d",
    ),
}


@dataclass(frozen=True)
class Case:
    """A program, the outputs asked for, and what it is run on."""

    program: Program
    outputs: tuple[str, ...]
    scores: Array
    valid: Array | None = None
    params: dict[str, Array] | None = None
    max_length: int = 65536
    close: float = 0.0


def undefined_symbols(code: bytes) -> list[str]:
    """Return the names of an ELF object's undefined symbols."""
    wide = code[4] == 2
    header = "<16xHHIQQQIHHHHHH" if wide else "<16xHHIIIIIHHHHHH"
    fields = struct.unpack_from(header, code)
    start, entry, count = fields[5], fields[10], fields[11]
    section = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    sections = [struct.unpack_from(section, code, start + i * entry) for i in range(count)]
    names: list[str] = []
    for kind in sections:
        if kind[1] != 2:
            continue
        text = sections[kind[6]][4]
        symbol, size = ("<IBBHQQ", 24) if wide else ("<IIIBBH", 16)
        for at in range(kind[4] + size, kind[4] + kind[5], size):
            parts = struct.unpack_from(symbol, code, at)
            if (parts[3] if wide else parts[5]) == 0:
                first = text + parts[0]
                names.append(code[first : code.index(b"\0", first)].decode())
    return [name for name in names if name]


def method_cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    lengths = (0, 1, 3, 4, 15, 16, 17, 50, 67)
    for settings, kind in (({"bits": 4, "r": 1}, DType.F32), ({"bits": 3, "r": 0.75}, DType.F32),
                           ({"bits": 3, "r": 5, "steps": "growing"}, DType.F32), ({"bits": 8, "r": 16}, DType.F32),
                           ({"bits": 3, "distance": "byte"}, DType.F32),
                           ({"bits": 4, "r": 1, "step": 0.1}, DType.I8), ({"bits": 8, "r": 16, "step": 0.03}, DType.U8),
                           ({"bits": 3, "r": 5, "steps": "growing", "step": 0.1}, DType.I8)):  # fmt: skip
        method = METHODS.get("deferred-log")
        options = method.resolve(method.configure(settings), False)
        for masked in (False, True):
            program = method.program(options, scores=kind, masked=masked)
            for length in lengths:
                yield Case(program, ("codes", "weights", "normalizer"), *_rows(rng, (2, 2, 3, length), kind, masked))
    for scope, distance in (("site", "float"), ("head", "float"), ("site", "byte"), ("head", "byte")):
        method = METHODS.get("deferred-log")
        options = method.resolve(method.configure({"bits": 4, "r": scope, "distance": distance}), True)
        values = dict(method.parameters(options, {"r": 15.0 if scope == "site" else (12.0, 29.0)}))
        for length in lengths:
            scores, _ = _rows(rng, (2, 2, 3, length), DType.F32, False)
            yield Case(method.program(options), ("weights", "normalizer"), scores, None, values)
    for name in ("exact", "log2", "uniform"):
        method = METHODS.get(name)
        for masked in (False, True):
            program = method.program(method.resolve(method.configure({}), False), masked=masked)
            outputs = tuple(n for n in ("probabilities", "weights", "normalizer") if n in program.outputs)
            for length in lengths:
                yield Case(program, outputs, *_rows(rng, (2, 2, 3, length), DType.F32, masked), close=1e-6)


def _rows(rng: np.random.Generator, shape: tuple[int, ...], kind: DType, masked: bool) -> tuple[Array, Array | None]:
    scores = rng.normal(size=shape).astype(np.float32) * 4
    if kind.is_float and shape[-1]:
        scores[0, 0, 0, 0] = np.inf
        scores[0, 0, 1, -1] = np.nan
        scores[0, 1, 0] = -np.inf
        scores[1, 0, 0] = np.float32(1e-45) * rng.integers(-9, 9, shape[-1])
    if not kind.is_float:
        scores = rng.integers(kind.low, kind.high + 1, shape)
    valid = rng.random((shape[0], 1, *shape[2:])) < 0.7 if masked else None
    if valid is not None:
        valid[0, 0, 2] = False
    return scores.astype(kind.numpy), valid


def operator_cases() -> Iterator[Case]:
    """Operators that small processors lack instructions for."""
    rng = np.random.default_rng(1)

    def case(dtype: DType, values: NDArray[np.generic], build: Callable[[Trace], object], **given: object) -> Case:
        t = Trace("op", structure="x", scores=dtype)
        built = build(t)
        assert isinstance(built, dict)
        program = t.program(weights=t.scores, normalizer=t.length(), **built)
        return Case(program, tuple(built), values.reshape(2, -1), **given)  # pyright: ignore[reportArgumentType]

    halves = np.concatenate([np.arange(-40, 40) / 4, [1e10, -3e38, np.inf, -np.inf, np.nan, 8388607.5, -8388608.0],
                             2.0**23 + np.arange(-8, 9) / 2]).astype(np.float32)  # fmt: skip
    halves = halves[: len(halves) // 2 * 2]
    yield case(DType.F32, halves, lambda t: {"rounded": t.rint(t.scores)})
    yield case(DType.F32, np.abs(halves), lambda t: {"root": t.sqrt(t.scores)})
    # What TVM takes for the same as in integers.
    folded = lambda t: {"third": t.divide(t.scores, t.const(3.0, DType.F32)), "zero": t.scores * 0.0,  # noqa: E731
                        "same": t.scores.eq(t.scores), "less": t.scores < t.scores,
                        "gone": t.scores - t.scores, "none": t.divide(0.0, t.scores)}  # fmt: skip
    yield case(DType.F32, halves, folded)
    fused = lambda t: {"a": t.scores * t.const(1.1, DType.F32) + t.const(0.7, DType.F32)}  # noqa: E731
    yield case(DType.F32, rng.normal(size=64).astype(np.float32), fused)
    wide = rng.integers(-(2**62), 2**62, 64) >> rng.integers(0, 62, 64)
    yield case(DType.I64, wide, lambda t: {"f": t.cast(t.scores, DType.F32)})
    ties = np.array([2**53 + 1, 2**53 + 2**29, 2**53 + 2**29 + 1, -(2**54) - 2**30 - 1, 2**24 + 1, -(2**24) - 3, 0, 5])
    yield case(DType.I64, ties, lambda t: {"f": t.cast(t.scores, DType.F32)})
    far = (rng.normal(size=64) * 2.0 ** rng.integers(0, 60, 64)).astype(np.float32)
    yield case(DType.F32, far, lambda t: {"i": t.cast(t.clamp(t.scores, -(2.0**62), 2.0**62), DType.I64)})
    for dtype in (DType.U8, DType.I16, DType.I32, DType.U32, DType.I64):
        numbers = rng.integers(0, min(dtype.high, 2**62), 64).astype(dtype.numpy)
        quotients = lambda t: {"q": t.divide(t.max(t.scores, 0), t.max(t.row_min(t.scores), 1)),  # noqa: E731
                               "by": t.divide(t.max(t.scores, 0), 7)}  # fmt: skip
        yield case(dtype, numbers, quotients, max_length=64)
    yield case(DType.U32, rng.integers(1, 2**32, 16).astype(np.uint32),
               lambda t: dict(zip("ms", t.normalize(t.max(t.row_min(t.scores), 1)), strict=True)))  # fmt: skip
    # Rows that are copied or repeated: what LLVM makes calls of memcpy and memset.
    for dtype in (DType.F32, DType.I8, DType.I16, DType.I64):
        numbers = np.arange(160).astype(dtype.numpy)
        yield case(dtype, numbers, lambda t: {"copy": t.scores, "zeros": t.scores.eq(t.scores)})


def byte_cases() -> Iterator[Case]:
    """Scores of bytes whose sums are taken in bytes, and leave 32 bits: of float weights and of integers."""
    rng = np.random.default_rng(2)
    t = Trace("wide", scores=DType.I8)
    d = t.row_max(t.cast(t.scores, DType.I32)) - t.cast(t.scores, DType.I32)
    wide = t.lut(t.table([2**31 // (1 + i) for i in range(256)], DType.U32), d)
    integers = t.program(weights=wide, normalizer=t.row_sum(t.cast(wide, DType.U64)))
    method = METHODS.get("qlinear")
    given = method.resolve(method.configure({"step": 0.1}), False)
    floats = coded(tabulate_or_keep(method.program(given, scores=DType.I8))[0]).program
    for length in (0, 1, 15, 17, 67, 400, 1000):
        scores = np.clip(rng.normal(size=(3, length)) * 30, -128, 127).astype(np.int8)
        yield Case(integers, ("normalizer",), scores)
        # Sums of floats may be taken in any order: each of up to 1,000 additions rounds by 2^-24.
        yield Case(floats, ("codes", "normalizer"), scores, close=6e-5)


def numbered(cases: Sequence[Case], machine: Cpu) -> list[tuple[int, RowKernel]]:
    """Return for each case the number of its kernel and the kernel; equal programs share one."""
    found: dict[tuple[int, tuple[str, ...]], tuple[int, RowKernel]] = {}
    result: list[tuple[int, RowKernel]] = []
    for case in cases:
        key = (id(case.program), case.outputs)
        if key not in found:
            kernel = row_kernel(case.program, machine, symbol=f"kernel{len(found)}", max_length=case.max_length,
                                outputs=case.outputs)  # fmt: skip
            found[key] = (len(found), kernel)
        result.append(found[key])
    return result


# Arrays begin 8 bytes behind a multiple of 16: no more aligned than their elements. Behind each output lie guards.
_MAIN = """int main(int argc, char **argv) {
  int64_t head[3], n[16], inputs, size[16];
  char *p[16];
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  while (fread(head, 8, 3, in) == 3) {
    if (fread(n, 8, head[2], in) != head[2] || fread(&inputs, 8, 1, in) != 1) return 1;
    for (int i = 0; i < head[1]; i++) {
      if (fread(&size[i], 8, 1, in) != 1) return 1;
      p[i] = (char *)malloc(size[i] + 64) + 8;
      for (int k = 0; k < 24; k++) p[i][size[i] + k] = 77;
      if (i < inputs && fread(p[i], 1, size[i], in) != size[i]) return 1;
    }
    switch (head[0]) {"""
_END = """    }
    for (int i = 0; i < head[1]; i++) {
      for (int k = 0; k < 24; k++) if (p[i][size[i] + k] != 77) return 2;
      if (i >= inputs) fwrite(p[i], 1, size[i], out);
      free(p[i] - 8);
    }
  }
  fclose(out);
  return 0;
}
"""


def host_program(calls: Sequence[tuple[int, Call]]) -> str:
    """Return a C program that makes the calls of a file: for each the numbers, and each array behind its size."""
    shapes = {number: (len(c.inputs) + len(c.outputs), len(c.numbers)) for number, c in calls}
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"]
    for number, (pointers, integers) in shapes.items():
        lines.append(f"void kernel{number}({', '.join(['void *'] * pointers + ['int64_t'] * integers)});")
    lines.append(_MAIN)
    for number, (pointers, integers) in shapes.items():
        given = [f"p[{i}]" for i in range(pointers)] + [f"n[{i}]" for i in range(integers)]
        lines.append(f"    case {number}: kernel{number}({', '.join(given)}); break;")
    lines.append(_END)
    return "\n".join(lines)


@pytest.mark.slow  # An emulator, and C compiled for it.
@pytest.mark.parametrize("name", list(EMULATORS))
def test_bits_are_equal_on_small_processors(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    machine = EDGE[name.removesuffix("256")]
    run_cases([*method_cases(), *operator_cases(), *byte_cases()], machine, emulator(name).command, tmp_path)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "machine",
    [EDGE["riscv64v"], SSE2, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (AVX512, AVX2, PLAIN))],
    ids=lambda m: f"{m.name}-{m.cpu}",
)
def test_no_symbol_is_undefined(machine: Cpu) -> None:
    # In the quick run a method once: what calls a function is an operator.
    methods = amount([*{case.program.name: case for case in method_cases()}.values()], [*method_cases()])
    kernels = numbered([*methods, *operator_cases(), *byte_cases()], machine)
    functions = {kernel.symbol: kernel.function for _, kernel in kernels}
    assert undefined_symbols(object_code(list(functions.values()), machine)) == []


def run_cases(cases: Sequence[Case], machine: Cpu, runner: Sequence[str], folder: Path) -> None:
    kernels = numbered(cases, machine)
    functions = {kernel.symbol: kernel.function for _, kernel in kernels}
    code = object_code(list(functions.values()), machine)
    assert undefined_symbols(code) == []
    (folder / "kernels.o").write_bytes(code)
    calls = [(number, call_of(kernel, case.program, case.scores, case.valid, case.params))
             for case, (number, kernel) in zip(cases, kernels, strict=True)]  # fmt: skip
    (folder / "main.c").write_text(host_program(calls))
    (folder / "in").write_bytes(b"".join(written(number, call) for number, call in calls))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", machine.zig, "-static", "-O1", "-w"]
    command += ["-fno-sanitize=all", "-o", "main", "main.c", "kernels.o"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run([*runner, "./main", "in", "out"], cwd=folder, check=True)
    results = (folder / "out").read_bytes()
    at = 0
    for case, (_, kernel), (_, call) in zip(cases, kernels, calls, strict=True):
        ours = run(case.program, case.scores, valid=case.valid, params=case.params)
        for output, (shape, dtype) in zip(kernel.outputs, call.outputs, strict=False):
            size = int(np.prod(shape, dtype=np.int64))
            found = np.frombuffer(results, dtype, size, at).reshape(shape)
            at += size * dtype.itemsize
            wanted = expected(case.program, output, ours[output])
            label = (machine.name, case.program.name, case.program.structure, output, case.scores.shape)
            if output == "weights" and "normalizer" in ours and ours["normalizer"].dtype.kind == "f":
                # What the weights of an undefined row are does not matter.
                defined = ~np.isnan(ours["normalizer"][..., 0])
                found, wanted = found[defined], wanted[defined]
            if case.close:
                found, wanted = found.astype(np.float64), wanted.astype(np.float64)
                np.testing.assert_allclose(found, wanted, rtol=case.close, atol=1e-30, err_msg=str(label))
            else:
                assert same_bits(found, wanted), (*label, found, wanted)
    assert at == len(results), "a kernel wrote outside its arrays, or a call is missing"


def written(number: int, call: Call) -> bytes:
    parts = [struct.pack("<3q", number, len(call.inputs) + len(call.outputs), len(call.numbers))]
    parts.append(struct.pack(f"<{len(call.numbers)}q", *call.numbers))
    parts.append(struct.pack("<q", len(call.inputs)))
    parts += [struct.pack("<q", a.nbytes) + a.tobytes() for a in call.inputs]
    for shape, dtype in call.outputs:
        parts.append(struct.pack("<q", int(np.prod(shape, dtype=np.int64)) * dtype.itemsize))
    return b"".join(parts)
