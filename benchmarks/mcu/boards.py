"""Boards that qemu emulates: how programs without a system are linked for them, run, and counted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softq.artifact.machine import Cpu
from softq.codegen.c.machines import CORTEX_M, RISCV32

_START = Path(__file__).with_name("start.c")
_LINK = """ENTRY({entry})
MEMORY {{
  code (rx) : ORIGIN = {code:#x}, LENGTH = {code_bytes:#x}
  ram (rwx) : ORIGIN = {ram:#x}, LENGTH = {ram_bytes:#x}
  far (r) : ORIGIN = {far:#x}, LENGTH = {far_bytes:#x}
}}
SECTIONS {{
  .weights : {{ *(.rodata.*_weight_*) }} > far
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.srodata*) *(.ARM.ex*) . = ALIGN(16); }} > code
  .data : {{ _data_begin = .; *(.data*) *(.sdata*) . = ALIGN(16); _data_end = .; }} > ram AT > code
  _data_load = LOADADDR(.data);
  .bss (NOLOAD) : {{ _bss_begin = .; *(.bss*) *(.sbss*) *(COMMON) . = ALIGN(16); _bss_end = .; }} > ram
  _stack_limit = _bss_end;
  _stack_top = ORIGIN(ram) + LENGTH(ram);
}}
"""


@dataclass(frozen=True)
class Board:
    """A board.

    Attributes:
        machine: qemu's name.
        cpu: The processor, as the targets call it.
        system: The program of qemu.
        compiler: The compiler with what it needs to find the C library.
        code: Where code and constants lie, and how many bytes there are.
        ram: The same of memory.
        tick: Instructions to a tick of the counter.
        far: Where weights lie.
    """

    machine: str
    cpu: Cpu
    system: str
    compiler: tuple[str, ...]
    code: tuple[int, int]
    ram: tuple[int, int]
    tick: float
    far: tuple[int, int]


def _arm(
    machine: str, cpu: str, code: tuple[int, int], ram: tuple[int, int], clock: int, far: tuple[int, int]
) -> Board:
    processor, compiler = CORTEX_M.machine(cpu, ""), ("arm-none-eabi-gcc",)
    return Board(machine, processor, "qemu-system-arm", compiler, code, ram, 1000 / clock, far)


def _riscv(cpu: str) -> Board:
    compiler = ("riscv64-unknown-elf-gcc", "--specs=picolibc.specs")
    code, ram, far = (0x80000000, 2 << 20), (0x80800000, 4 << 20), (0x80200000, 6 << 20)
    return Board("virt", RISCV32.machine(cpu, ""), "qemu-system-riscv32", compiler, code, ram, 1.0, far)


_MPS2 = ((0x00000000, 2 << 20), (0x20000000, 4 << 20), 25, (0x00200000, 2 << 20))


BOARDS: Mapping[str, Board] = {
    "m3": _arm("mps2-an385", "m3", *_MPS2),
    "m4": _arm("mps2-an386", "m4", *_MPS2),
    "m7": _arm("mps2-an500", "m7", *_MPS2),
    "m33": _arm("mps2-an505", "m33", (0x10000000, 2 << 20), (0x38000000, 2 << 20), 20, (0x10200000, 2 << 20)),
    "m55": _arm("mps3-an547", "m55", (0x10000000, 512 << 10), (0x31000000, 2 << 20), 32, (0x70000000, 16 << 20)),
    "imc": _riscv("imc"),
    "imafc": _riscv("imafc"),
}
"""By the name of the processor."""


def missing(board: Board) -> str | None:
    """Return what has to be installed to run programs of a board; None if all is there."""
    absent = [name for name in (board.system, board.compiler[0]) if shutil.which(name) is None]
    return ", ".join(absent) or None


def run(
    board: Board, folder: Path, sources: Sequence[Path], include: Sequence[Path] = (), opt: str = "-O2"
) -> list[str]:
    """Return the lines that a program prints, whose `measured()` is in one of the sources.

    Args:
        board: Where it runs.
        folder: For what is made.
        sources: Its files in C.
        include: Folders of headers.
        opt: How the compiler optimizes.

    Raises:
        subprocess.CalledProcessError: it does not compile.
        AssertionError: it does not end as it should.
    """
    link = folder / "link.ld"
    entry = "start" if board.system.endswith("arm") else "_start"
    link.write_text(_LINK.format(entry=entry, code=board.code[0], code_bytes=board.code[1], ram=board.ram[0],
                                 ram_bytes=board.ram[1], far=board.far[0], far_bytes=board.far[1]))  # fmt: skip
    flags = [*board.cpu.compiler_flags, opt, "-std=c99", "-ffunction-sections", "-fdata-sections"]
    command = [*board.compiler, *flags, *(f"-I{path}" for path in include), "-nostartfiles", "-Wl,--gc-sections",
               f"-T{link}", str(_START), *map(str, sources), "-lm", "-o", str(folder / "program.elf")]  # fmt: skip
    subprocess.run(command, check=True)
    emulator = [board.system, "-M", board.machine, "-nographic", "-semihosting", "-icount", "shift=0"]
    emulator += ["-bios", "none"] if board.system.endswith("riscv32") else []
    done = subprocess.run([*emulator, "-kernel", str(folder / "program.elf")], capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    assert lines[-1:] == ["done"], (board.machine, lines[-3:])
    return lines[:-1]


def version(board: Board) -> str:
    """Return the compiler of a board with its version."""
    done = subprocess.run([board.compiler[0], "-dumpversion"], capture_output=True, text=True, check=True)
    return f"{board.compiler[0]} {done.stdout.strip()}"


def code_bytes(board: Board, source: Path, folder: Path, opt: str = "-O2") -> int:
    """Return the bytes of code and constants of one file in C."""
    out = folder / "size.o"
    flags = [*board.cpu.compiler_flags, opt, "-std=c99"]
    subprocess.run([*board.compiler, *flags, "-c", str(source), "-o", str(out)], check=True)
    size = board.compiler[0].replace("gcc", "size")
    return int(subprocess.run([size, str(out)], capture_output=True, text=True, check=True).stdout.split()[6])
