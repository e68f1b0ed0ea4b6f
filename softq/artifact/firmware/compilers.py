"""Compilers of C for processors without a system, as far as they are here."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from softq.artifact.toolchain import zig

_COMMANDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "thumb": (("arm-none-eabi-gcc",), ("clang", "--target=arm-none-eabi")),
    "riscv32": (
        ("riscv64-unknown-elf-gcc",), ("riscv32-unknown-elf-gcc",), ("riscv-none-elf-gcc",),
        ("clang", "--target=riscv32-unknown-elf"),
    ),
}  # fmt: skip
"""By the beginning of a machine's triple; zig's is the last to be asked."""

_ZIG: Mapping[str, str] = {
    "-mfpu=fpv4-sp-d16": "+vfp4d16sp", "-mfpu=fpv5-sp-d16": "+fp_armv8d16sp", "-mfpu=fpv5-d16": "+fp_armv8d16",
    "-mfpu=auto": "+fp_armv8d16", "-march=rv32imafc": "+f",
}  # fmt: skip
"""What zig is told of units for floats, which it does not take from a processor's name."""

_HEADERS: Mapping[str, str] = {
    "math.h": """#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define SQ_OF_ONE(name) double name(double); float name##f(float);
SQ_OF_ONE(sqrt) SQ_OF_ONE(fabs) SQ_OF_ONE(floor) SQ_OF_ONE(ceil) SQ_OF_ONE(trunc) SQ_OF_ONE(round)
SQ_OF_ONE(nearbyint) SQ_OF_ONE(exp) SQ_OF_ONE(exp2) SQ_OF_ONE(log) SQ_OF_ONE(log2) SQ_OF_ONE(log10)
SQ_OF_ONE(sin) SQ_OF_ONE(cos) SQ_OF_ONE(tan) SQ_OF_ONE(asin) SQ_OF_ONE(acos) SQ_OF_ONE(atan)
SQ_OF_ONE(sinh) SQ_OF_ONE(cosh) SQ_OF_ONE(tanh) SQ_OF_ONE(asinh) SQ_OF_ONE(acosh) SQ_OF_ONE(atanh) SQ_OF_ONE(erf)
double pow(double, double); float powf(float, float); double fma(double, double, double);
float fmaf(float, float, float); float fminf(float, float); float fmaxf(float, float);
""",
    "string.h": """#include <stddef.h>
void *memcpy(void *, const void *, size_t); void *memset(void *, int, size_t);
void *memmove(void *, const void *, size_t);
""",
}
"""What compilers that come without a C library lack."""

_OF_GCC: Mapping[str, str] = {"stdint.h": "#include <stdint-gcc.h>\n"}
"""What gcc has under another name then."""


def compilers(machine: Mapping[str, object], flags: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield commands that may compile for a machine, with what they are told of it, the best first.

    Args:
        machine: It, as manifests have it.
        flags: What gcc and clang are told of it; none where nothing is known of it.
    """
    if not flags:
        return
    triple = str(machine["triple"])
    for command in [command for begin, known in _COMMANDS.items() if triple.startswith(begin) for command in known]:
        if shutil.which(command[0]) is not None:
            yield [*command, *flags]
    if command := zig():
        cpu = str(machine["cpu"]).replace("-", "_") + "".join(_ZIG.get(flag, "") for flag in flags)
        # As gcc for such processors, which writes no tables for exceptions.
        plain = ("-fno-sanitize=all", "-g0", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables")
        yield [*command, "-target", str(machine["zig"]), f"-mcpu={cpu}", *plain]


def write_headers(command: list[str], folder: Path) -> list[str]:
    """Write headers for a compiler that has none, and return the options with which they are found last."""
    folder.mkdir()
    for name, text in {**_HEADERS, **(_OF_GCC if "gcc" in Path(command[0]).name else {})}.items():
        (folder / name).write_text(text, encoding="ascii")
    return ["-idirafter", str(folder)]


def describe(command: list[str]) -> str:
    """Return the name of a compiler with its version, as far as it tells one."""
    name = Path(command[0]).name
    asked = [command[0], "version" if name == "zig" else "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout.partition("\n")[0].rpartition(")")[2] or done.stdout)
    return f"{name} {found[0]}" if found else name
