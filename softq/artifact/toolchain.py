"""The C compiler: zig's from the package `ziglang`, which compiles for every machine, or one that the user names."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softq.artifact.abi import FUNCTIONS
from softq.artifact.features import architecture, family
from softq.artifact.machine import Cpu
from softq.cache import base_folder
from softq.errors import SoftqError, UsageError
from softq.scratch import scratch_folder

INSTALL = "pip install ziglang"
"""What installs the compiler."""

# Sanitizers off: zig turns some on by default, and their runtime is no part of an artifact.
FLAGS = ("-std=c99", "-O2", "-g0", "-fPIC", "-fno-sanitize=all", "-fvisibility=hidden")
"""How drivers are compiled."""

# Stripped: the compiler's own pieces of the C library come with debug sections, which name folders of this computer.
_LINK = (
    "-shared",
    "-Wl,-z,defs",
    "-Wl,--as-needed",
    "-Wl,--gc-sections",
    "-Wl,--strip-debug",
)


def compiler(machine: Cpu, cc: str | None = None) -> list[str]:
    """Return the command that compiles C for a machine.

    Args:
        machine: What to compile for.
        cc: A compiler with its arguments, `aarch64-linux-gnu-gcc --sysroot=...`; by default zig's, or for this
            computer's architecture `cc`.

    Raises:
        UsageError: there is no such compiler.
    """
    if cc is not None:
        command = shlex.split(cc)
        if not command or shutil.which(command[0]) is None:
            raise UsageError(f"cc is {cc!r}; there is no such program")
        return command
    if found := zig():
        return [*found, "-target", machine.zig]
    if architecture(machine) == host_architecture() and shutil.which("cc") is not None:
        return ["cc"]
    missing = f"there is no C compiler for machine {machine.name} ({machine.zig})"
    raise UsageError(f"{missing}; install one with: {INSTALL}, or name one with cc=")


def host_compiler() -> list[str]:
    """Return the command that compiles C for this computer.

    Raises:
        UsageError: there is none.
    """
    if shutil.which("cc") is not None:
        return ["cc"]
    if found := zig():
        return [*found, "-fno-sanitize=all"]
    raise UsageError(f"there is no C compiler for this computer; install one with: {INSTALL}")


def zig() -> list[str]:
    """Return the command of zig's C compiler; empty if it is not installed."""
    package = importlib.util.find_spec("ziglang")
    # `python -m ziglang` does no more than to start it.
    return [] if package is None or package.origin is None else [str(Path(package.origin).with_name("zig")), "cc"]


def host_architecture() -> str:
    """Return the architecture of this computer, as `architecture` names that of a machine."""
    return family(platform.machine().lower())


PROCESSOR = ("-lm", "-pthread")
"""The libraries of the driver for a processor."""

DEVICE = ("-ldl",)
"""The libraries of the driver for a device."""


@dataclass(frozen=True)
class Linking:
    """What a library is made of and called.

    Attributes:
        source: The file in C.
        library: The file to make.
        exports: The functions that it shows.
    """

    source: str
    library: str
    exports: tuple[str, ...]


DRIVER = Linking("driver.c", "libmodel.so", tuple(f"softq_{name}" for name in FUNCTIONS))
"""The library of a model."""


def link_library(
    folder: Path,
    machine: Cpu,
    cc: str | None = None,
    *,
    linking: Linking = DRIVER,
    objects: Sequence[bytes] = (),
    libraries: Sequence[str] = PROCESSOR,
) -> None:
    """Compile a source file of a folder and link it into a library there, with kernels as `kernels.o`.

    Args:
        folder: Where the files are.
        machine: The processor that the library is for.
        cc: The C compiler; see `compiler`.
        linking: The source file and the library; by default those of a model.
        objects: The kernels' object files; read when the source is compiled, as they may still be on their way.
        libraries: What it is linked with.

    Raises:
        UsageError: there is no compiler.
        SoftqError: the compiler fails; the message has its first error.
    """
    command = compiler(machine, cc)
    flags = FLAGS if _is_clang(command) else tuple(f for f in FLAGS if f != "-fno-sanitize=all")
    with scratch_folder() as scratch:
        compiled, exports = f"{scratch}/driver.o", scratch / "exports.map"
        run([*command, *flags, "-c", linking.source, "-o", compiled], folder)
        kernels = ["kernels.o"] * bool(objects)
        if objects:
            _join_objects(objects, folder, command)
        # Kernels are for the source alone, also those that it does not call.
        exports.write_text(f"{{ global: {' '.join(f'{name};' for name in linking.exports)} local: *; }};\n")
        name = f"-Wl,-soname,{linking.library}"
        link = [*_LINK, name, f"-Wl,--version-script={exports}", "-o", linking.library]
        run([*command, *flags, *kernels, compiled, *libraries, *link], folder)


def _join_objects(objects: Sequence[bytes], folder: Path, command: Sequence[str]) -> None:
    """Write object files as one, `kernels.o` of a folder."""
    if len(objects) == 1:
        (folder / "kernels.o").write_bytes(objects[0])
        return
    with scratch_folder() as scratch:
        paths = [scratch / f"{i}.o" for i in range(len(objects))]
        for path, code in zip(paths, objects, strict=True):
            path.write_bytes(code)
        run([*command, "-r", "-nostdlib", "-o", "kernels.o", *map(str, paths)], folder)


def _is_clang(command: Sequence[str]) -> bool:
    name = Path(command[0]).name
    return name == "zig" or "clang" in name


def run(command: Sequence[str], folder: Path) -> None:
    """Run a compiler in a folder.

    Raises:
        SoftqError: it fails; the message has its first error.
    """
    with scratch_folder() as scratch:
        try:
            done = subprocess.run(
                command, cwd=folder, env=_environment(str(scratch)), capture_output=True, text=True, errors="replace"
            )
        except OSError as error:
            raise SoftqError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        hint = ", as it is where memory runs out" if name == "SIGKILL" else ""
        raise SoftqError(f"{' '.join(command[:4])} was ended by {name}{hint}")
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "it says nothing")
        raise SoftqError(f"{' '.join(command[:4])} fails with exit code {done.returncode}: {first}")


def _environment(scratch: str) -> Mapping[str, str]:
    """Return the environment, with zig's caches where they can be written."""
    environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": os.path.join(scratch, "local")}
    if "ZIG_GLOBAL_CACHE_DIR" not in os.environ:
        cache = str(base_folder() / "zig")
        try:
            os.makedirs(cache, exist_ok=True)
            writable = os.access(cache, os.W_OK | os.X_OK)
        except OSError:
            writable = False
        environment["ZIG_GLOBAL_CACHE_DIR"] = cache if writable else os.path.join(scratch, "global")
    return environment
