"""Limits of memory and processor time for libraries that have none.

`check_address_space` comes before libraries that end the process if there is too little. `run_apart` reads untrusted
input, by libraries that cannot be interrupted, in a process of its own with limits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from softq.errors import InputError, SoftqError, UsageError, root_line

Work = Callable[[BinaryIO, BinaryIO], None]
"""Reads its input from one stream and writes results into another; a function of a module, which is found by name."""

_NO_MEMORY, _REFUSED = 3, 4
_NO_TIME = -24
"""The exit code of a process that SIGXCPU ends."""


def check_address_space(least: int, what: str) -> None:
    """Refuse to begin where the process may not have so many bytes of address space.

    Args:
        least: The bytes that are needed.
        what: Who needs them, as the message says it.

    Raises:
        UsageError: its limit is lower.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY and most < least:
        raise UsageError(
            f"{what} needs {least >> 20} MiB of address space; this process may have {most >> 20} (ulimit -v)"
        )


class ApartError(InputError):
    """Work in a process of its own failed.

    Attributes:
        limit: The limit that ended it, such as `512 MiB`, with the option that changes it; empty if none did.
        written: The bytes that it had written.
    """

    def __init__(self, text: str, limit: str, written: bytes) -> None:
        super().__init__(text)
        self.limit, self.written = limit, written


def run_apart(work: Work, data: bytes, memory: int, seconds: int) -> bytes:
    """Return the bytes that work writes in a process of its own.

    Args:
        work: The work.
        data: The bytes that it reads.
        memory: Bytes that it may take, without those of its modules.
        seconds: Processor time that it may take, without that of importing its modules.

    Raises:
        ApartError: it failed, or passed a limit.
    """
    name = f"{work.__module__}:{work.__qualname__}"
    # -P, and no empty entry: the working folder may hold modules of strangers.
    command = [sys.executable, "-P", "-m", __name__, name, str(memory), str(seconds)]
    path = os.pathsep.join(filter(None, (*sys.path, str(Path(__file__).parent.parent))))
    environment = os.environ | {"PYTHONPATH": path}
    try:
        # The timeout is for a process that waits; it limits its processor time itself.
        done = subprocess.run(command, input=data, capture_output=True, timeout=10 + 4 * seconds, env=environment)
        code, said, written = done.returncode, done.stderr.decode(errors="replace").splitlines(), done.stdout
    except subprocess.TimeoutExpired as error:
        code, said, written = _NO_TIME, [], error.stdout or b""
    except (OSError, ValueError) as error:
        raise ApartError(f"a process cannot be started: {root_line(error, 200)}", "", b"") from error
    if not code:
        return written
    if code > 0 and code != _NO_MEMORY:
        raise ApartError(said[-1] if said else f"exit code {code}", "", written)
    over = f"{seconds} seconds (--limit-seconds" if code == _NO_TIME else f"{memory >> 20} MiB (--limit-memory"
    raise ApartError("a limit is passed", f"{over} changes that)", written)


def _limit_itself(memory: int, seconds: int) -> None:
    try:
        import resource

        used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 1))
        with open("/proc/self/statm") as file:
            memory += int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, OSError, ValueError):  # not on Windows, and memory on Linux alone
        pass


def _run_named() -> None:
    module, _, function = sys.argv[1].partition(":")
    work: Work = getattr(import_module(module), function)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints
    _limit_itself(*map(int, sys.argv[2:]))
    try:
        work(sys.stdin.buffer, out)
        out.flush()
    except MemoryError:
        os._exit(_NO_MEMORY)
    except BaseException as error:  # a panic of Rust is no Exception
        out.flush()
        sys.stderr.write(f"\n{error if isinstance(error, SoftqError) else root_line(error, 200)}\n")
        sys.stderr.flush()
        os._exit(_REFUSED)


if __name__ == "__main__":
    _run_named()
