"""Other processors in qemu's user mode: Debian's package qemu-user."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

_RUNNER = Path(__file__).with_name("run_raw.c")


@dataclass(frozen=True)
class Emulator:
    """How programs of a processor run here.

    Attributes:
        zig: The triple for zig of programs without shared libraries, which need no system of their own.
        command: What stands before the program.
        least: The first major version of qemu that runs them.
    """

    zig: str
    command: tuple[str, ...]
    least: int = 0

    def run(self, built: Path, data: bytes, dims: Iterable[int]) -> bytes:
        """Return the first output of a built model for its one input, whose symbolic sizes are `dims`."""
        sources = [_RUNNER, built / "driver.c", built / "kernels.o"]
        program, given, taken = (built / name for name in ("program", "in", "out"))
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", self.zig, "-O1", "-static", "-fno-sanitize=all"]
        subprocess.run([*compiler, f"-I{built}", *map(str, sources), "-lm", "-o", str(program)], check=True)
        given.write_bytes(data)
        subprocess.run([*self.command, *map(str, (program, built, given, taken, *dims))], check=True)
        return taken.read_bytes()


EMULATORS = {
    "aarch64": Emulator("aarch64-linux-musl", ("qemu-aarch64",)),
    "armv7": Emulator("arm-linux-musleabihf", ("qemu-arm",)),
    "riscv64": Emulator("riscv64-linux-musl", ("qemu-riscv64",)),
    # The vectors end qemu 7.2 itself, in an assertion of its translator.
    "riscv64v": Emulator("riscv64-linux-musl", ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128"), 8),
    # Longer registers than the code asks for.
    "riscv64v256": Emulator("riscv64-linux-musl", ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=256"), 8),
}

EDGE = {"aarch64": "aarch64", "armv7": "armv7", "riscv64": "riscv64", "riscv64v": "riscv64,features=+m+a+f+d+c+v"}
"""Targets of programs that run here, by the name of their emulator."""


def emulator(name: str) -> Emulator:
    """Return the emulator of a processor, or skip the test with the package that has it."""
    found = EMULATORS[name]
    program = found.command[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (Debian: qemu-user)")
    text = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"version (\d+)", text)
    assert version is not None, text
    if int(version[1]) < found.least:
        pytest.skip(f"{program} is older than version {found.least} (Debian 12: qemu-user of bookworm-backports)")
    return found
