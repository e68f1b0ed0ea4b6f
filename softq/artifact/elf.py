"""For which processor a file was made, by the first bytes of an ELF file."""

from __future__ import annotations

import os
from pathlib import Path

from softq.errors import InputError

# e_machine of the ELF specification.
_NAMES = {3: "x86", 8: "MIPS", 20: "PowerPC", 21: "PowerPC 64", 22: "S/390", 40: "Arm", 62: "x86-64", 183: "AArch64",
          243: "RISC-V", 258: "LoongArch"}  # fmt: skip

HEADER_BYTES = 20


def processor(header: bytes, name: str) -> str:
    """Return the processor family and word size, `AArch64 (64 bits)`.

    Raises:
        InputError: this is no ELF file.
    """
    if len(header) < HEADER_BYTES or header[:4] != b"\x7fELF" or header[4] not in (1, 2) or header[5] not in (1, 2):
        raise InputError(f"{name}: is no ELF file")
    number = int.from_bytes(header[18:20], "little" if header[5] == 1 else "big")
    ends = "" if header[5] == 1 else ", big-endian"
    return f"{_NAMES.get(number, f'processor family {number}')} ({32 * header[4]} bits{ends})"


def this_processor() -> str:
    """Return what `processor` says of the running program.

    Raises:
        InputError: this is no Linux.
    """
    try:
        with open("/proc/self/exe", "rb") as file:
            return processor(file.read(HEADER_BYTES), "/proc/self/exe")
    except OSError as error:
        raise InputError(f"artifacts run on Linux; this is {os.name}") from error


def check(library: Path, name: str, built_for: str) -> None:
    """Check that this program can load the library of the artifact that a user knows by a name.

    Raises:
        InputError: it is for another processor; the message names both.
    """
    with open(library, "rb") as file:
        there = processor(file.read(HEADER_BYTES), str(library))
    here = this_processor()
    if there != here:
        raise InputError(f"{name}: was built for {there}, {built_for}; this program runs on {here}")
