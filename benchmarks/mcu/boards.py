"""Boards that qemu emulates: how programs without a system are linked for them, run, and counted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softq.artifact.machine import Cpu
from softq.codegen.c.machines import CORTEX_M, RISCV32

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "microcontroller"
"""Has start code and a linker script, which serve every board."""

_MEMORY = """MEMORY {{
  code (rx) : ORIGIN = {code[0]:#x}, LENGTH = {code[1]:#x}
  weights (r) : ORIGIN = {weights[0]:#x}, LENGTH = {weights[1]:#x}
  ram (rwx) : ORIGIN = {ram[0]:#x}, LENGTH = {ram[1]:#x}
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
        target: What `softq build` is told.
    """

    machine: str
    cpu: Cpu
    system: str
    compiler: tuple[str, ...]
    code: tuple[int, int]
    ram: tuple[int, int]
    tick: float
    far: tuple[int, int]
    target: str


def _arm(
    machine: str,
    cpu: str,
    code: tuple[int, int],
    ram: tuple[int, int],
    clock: int,
    far: tuple[int, int],
    kernels: str = "c",
) -> Board:
    processor, compiler = CORTEX_M.machine(cpu, "", kernels), ("arm-none-eabi-gcc",)
    target = f"{CORTEX_M.name},cpu={cpu},kernels={kernels}"
    return Board(machine, processor, "qemu-system-arm", compiler, code, ram, 1000 / clock, far, target)


def _riscv(cpu: str) -> Board:
    compiler = ("riscv64-unknown-elf-gcc", "--specs=picolibc.specs")
    code, ram, far = (0x80000000, 2 << 20), (0x80800000, 4 << 20), (0x80200000, 6 << 20)
    processor, target = RISCV32.machine(cpu, ""), f"{RISCV32.name},cpu={cpu}"
    return Board("virt", processor, "qemu-system-riscv32", compiler, code, ram, 1.0, far, target)


_MPS3 = ((0x10000000, 512 << 10), (0x31000000, 2 << 20), 32, (0x70000000, 16 << 20))
_MPS2 = ((0x00000000, 2 << 20), (0x20000000, 4 << 20), 25, (0x00200000, 2 << 20))


BOARDS: Mapping[str, Board] = {
    "m0": _arm("microbit", "m0", (0x00000000, 128 << 10), (0x20000000, 16 << 10), 16, (0x00020000, 128 << 10)),
    "m3": _arm("mps2-an385", "m3", *_MPS2),
    "m4": _arm("mps2-an386", "m4", *_MPS2),
    "m7": _arm("mps2-an500", "m7", *_MPS2),
    "m33": _arm("mps2-an505", "m33", (0x10000000, 2 << 20), (0x38000000, 2 << 20), 20, (0x10200000, 2 << 20)),
    "m55": _arm("mps3-an547", "m55", *_MPS3),
    "m55 mve": _arm("mps3-an547", "m55", *_MPS3, kernels="object"),
    "imc": _riscv("imc"),
    "imafc": _riscv("imafc"),
}
"""By the name of the processor, with `mve` where kernels are an object with vectors."""

OF_MODELS: Mapping[str, Board] = {name: board for name, board in BOARDS.items() if board.ram[1] >= 1 << 20}
"""Those whose memory holds a whole model; the board of a Cortex-M0 has 16 KB."""


def missing(board: Board) -> str | None:
    """Return what has to be installed to run programs of a board; None if all is there."""
    absent = [name for name in (board.system, board.compiler[0]) if shutil.which(name) is None]
    return ", ".join(absent) or None


def run(
    board: Board, folder: Path, sources: Sequence[Path], include: Sequence[Path] = (), opt: str = "-O2"
) -> list[str]:
    """Return the lines that a program prints, whose `main()` is in one of the sources.

    Args:
        board: Where it runs.
        folder: For what is made.
        sources: Its files in C, and objects.
        include: Folders of headers.
        opt: How the compiler optimizes.

    Raises:
        subprocess.CalledProcessError: it does not compile.
        AssertionError: it does not end as it should.
    """
    (folder / "memory.ld").write_text(_MEMORY.format(code=board.code, weights=board.far, ram=board.ram))
    command = [*board.compiler, *_flags(board, opt), *(f"-I{path}" for path in (_EXAMPLE, *include)), "-nostartfiles",
               "-Wl,--gc-sections", f"-L{folder}", f"-T{_EXAMPLE / 'link.ld'}", str(_EXAMPLE / "start.c"),
               *map(str, sources), "-lm", "-o", str(folder / "program.elf")]  # fmt: skip
    subprocess.run(command, check=True)
    emulator = [board.system, "-M", board.machine, "-nographic", "-semihosting", "-icount", "shift=0"]
    emulator += ["-bios", "none"] if board.system.endswith("riscv32") else []
    done = subprocess.run([*emulator, "-kernel", str(folder / "program.elf")], capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, (board.machine, lines[-3:])
    return lines


def version(board: Board) -> str:
    """Return the compiler of a board with its version."""
    done = subprocess.run([board.compiler[0], "-dumpversion"], capture_output=True, text=True, check=True)
    return f"{board.compiler[0]} {done.stdout.strip()}"


def code_bytes(board: Board, source: Path, folder: Path, opt: str = "-O2") -> tuple[int, int]:
    """Return the bytes of code and those of constants of one file in C, or of an object."""
    made = source if source.suffix == ".o" else compile_object(board, source, folder / "size.o", opt=opt)
    sizes = sections(board, made)
    code = sum(size for name, size in sizes.items() if name.startswith(".text"))
    return code, sum(sizes.values()) - code


def compile_object(board: Board, source: Path, out: Path, include: Sequence[Path] = (), opt: str = "-O2") -> Path:
    """Compile a file in C, and return the object.

    Raises:
        subprocess.CalledProcessError: it does not compile.
    """
    told = [*_flags(board, opt), *(f"-I{path}" for path in include)]
    subprocess.run([*board.compiler, *told, "-c", str(source), "-o", str(out)], check=True)
    return out


FLASH = (".text", ".rodata", ".srodata", ".data", ".sdata")
"""Sections of code, constants, and what is copied to memory."""


def sections(board: Board, made: Path, kinds: tuple[str, ...] = FLASH) -> Mapping[str, int]:
    """Return the bytes of the sections of an object, of those that flash has or of other kinds."""
    size = [board.compiler[0].replace("gcc", "size"), "-A", str(made)]
    lines = subprocess.run(size, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = [line.split() for line in lines if line.startswith(kinds)]
    return {name: int(count) for name, count, _ in fields}


def _flags(board: Board, opt: str) -> Sequence[str]:
    return (*board.cpu.compiler_flags, opt, "-std=c99", "-ffunction-sections", "-fdata-sections")
