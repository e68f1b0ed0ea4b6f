"""How many instructions row kernels take an element, counted in an emulator: processors that are not here count too.

    python -m benchmarks.cpu.instructions [--cpu haswell] [--cpu cortex-a72] [--shape 64x512] [--work PART]

The kernels are those of the section `rows`. x86 kernels run in valgrind (which has no AVX-512), the others in qemu,
each instruction a block of its own; zig compiles the program around them. RISC-V's vectors take qemu 8 or later.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cpu.rows import Kernel, kernels
from softq.artifact.machine import Cpu
from softq.codegen.cpu.machines import AARCH64, RISCV64, X86_64
from softq.codegen.cpu.object_code import object_code
from softq.codegen.cpu.rows import RowKernel, row_kernel
from softq.rowprog.types import Kind

SYMBOL = "softq_counted"
CPUS, SHAPES = ("haswell", "cortex-a72", "generic-rv64"), ("64x512", "64x197", "64x50")
EMULATORS = {"aarch64": ("qemu-aarch64",), "riscv64": ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128")}
"""Commands by the first part of the triple."""

_MAIN = """
#include <stdint.h>
#include <stdlib.h>
void %(symbol)s(%(types)s);
int main(void)
{
    void *p[%(count)d];
    const size_t size[] = {%(sizes)s};
    for (int i = 0; i < %(count)d; i++) p[i] = aligned_alloc(64, (size[i] + 127) / 64 * 64);
    for (size_t i = 0; i < %(elements)d; i++) {
        int value = (int)(i * 7919 %% 251) - 125;
        %(fill)s
    }
    for (size_t i = 0; i < %(mask)d; i++) ((uint8_t *)p[1])[i] = 1;
    %(symbol)s(%(arguments)s);
    return 0;
}
"""


def machine_of(cpu: str) -> Cpu:
    """Return the processor by LLVM's name of it."""
    if cpu.endswith("rv64"):
        return RISCV64.machine("cpu", cpu, "+m+a+f+d+c+v")
    family = AARCH64 if cpu.startswith(("cortex", "neoverse", "apple")) else X86_64
    return family.machine("cpu", cpu, "")


def counted(work: Kernel, machine: Cpu, rows: int, length: int) -> float:
    """Return the instructions that a kernel takes for an element."""
    kernel = row_kernel(
        work.program, machine, symbol=SYMBOL, max_length=length, outputs=work.outputs, nibbles=work.nibbles
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.o").write_bytes(object_code([kernel.function], machine))
        (folder / "main.c").write_text(_main(work, kernel, rows, length), "utf-8")
        target = re.sub(r"gnu.*", "musl", machine.zig)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-static", "-O1", "-fno-sanitize=all"]
        subprocess.run([*command, "-w", "-o", "main", "main.c", "kernel.o"], cwd=folder, check=True)
        emulator = EMULATORS.get(machine.triple.partition("-")[0])
        return (_in_qemu(folder, emulator) if emulator else _in_valgrind(folder)) / (rows * length)


def _main(work: Kernel, kernel: RowKernel, rows: int, length: int) -> str:
    program, elements = work.program, rows * length
    sizes = [elements * program.scores.numpy.itemsize]
    if program.masked:
        sizes.append(elements)
    for output in kernel.outputs:
        node = program.outputs[output]
        sizes.append((elements if node.kind is Kind.ROW else rows) * 8)
    sizes += [elements * kernel.scratch_bytes] * bool(kernel.scratch_bytes)
    strides = [elements, elements, length, 1] if program.masked else []
    numbers = [length, 1, rows, *strides, 0, rows]
    fill = "((float *)p[0])[i] = value / 25.0f;" if program.scores.is_float else "((int8_t *)p[0])[i] = value;"
    return _MAIN % {
        "symbol": SYMBOL,
        "types": ", ".join(["void *"] * len(sizes) + ["int64_t"] * len(numbers)),
        "count": len(sizes),
        "sizes": ", ".join(map(str, sizes)),
        "elements": elements,
        "mask": elements * program.masked,
        "fill": fill,
        "arguments": ", ".join([*(f"p[{i}]" for i in range(len(sizes))), *map(str, numbers)]),
    }


def _in_valgrind(folder: Path) -> int:
    command = ["valgrind", "--tool=callgrind", f"--toggle-collect={SYMBOL}", "--callgrind-out-file=out", "./main"]
    run = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", run.stderr)
    assert found is not None, run.stderr
    return int(found[1])


def _in_qemu(folder: Path, emulator: Sequence[str]) -> int:
    version = subprocess.run([emulator[0], "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", version)
    single = "-one-insn-per-tb" if found is not None and int(found[1]) >= 8 else "-singlestep"
    names = subprocess.run(["nm", "-S", "main"], cwd=folder, check=True, capture_output=True, text=True).stdout
    start, size = next(line.split()[:2] for line in names.splitlines() if line.endswith(f" {SYMBOL}"))
    where = f"0x{start}+0x{size}"
    command = [*emulator, single, "-d", "exec,nochain", "-dfilter", where, "-D", "log", "./main"]
    subprocess.run(command, cwd=folder, check=True)
    with (folder / "log").open(encoding="utf-8") as log:
        return sum(line.startswith("Trace") for line in log)


def table(cpus: Sequence[str], shapes: Sequence[str], wanted: str) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    columns = [(cpu, shape) for cpu in cpus for shape in shapes]
    yield "| " + " | ".join(["work", *(f"{cpu} {shape}" for cpu, shape in columns)]) + " |"
    yield "| --- " * (len(columns) + 1) + "|"
    for name in (name for name in kernels(512) if wanted in name):
        cells = [name]
        for cpu, shape in columns:
            rows, length = map(int, shape.split("x"))
            cells.append(f"{counted(kernels(length)[name], machine_of(cpu), rows, length):.2f}")
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="append", help=f"LLVM's name; by default {', '.join(CPUS)}")
    parser.add_argument("--shape", action="append", help=f"rows x columns; by default {', '.join(SHAPES)}")
    parser.add_argument("--work", default="", help="a part of the works' names")
    given = parser.parse_args()
    for line in table(given.cpu or CPUS, given.shape or SHAPES, given.work):
        print(line, flush=True)


if __name__ == "__main__":
    main()
