"""CUDA text compiled for this computer: prelude.cu's functions of one thread, with what CUDA has in cuda_words.h."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softq.codegen.gpu.dialect.dialects import CUDA

WORDS = Path(__file__).with_name("cuda_words.h")

_TOGETHER = (r"mma\.", r"ldmatrix\.", r"cp\.async\.(commit|wait)")
"""What a warp does together, or later: no function of one thread."""

_ASM = re.compile(r'asm\s*(?:volatile)?\s*\(\s*((?:"[^"]*"\s*)+)((?:[^;"]|"[^"]*")*?)\)\s*;')


def compiled(kernels: str, architecture: int, folder: Path) -> ctypes.CDLL:
    """Return prelude.cu and kernels as a library, as they are for an architecture (750, 800)."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs zig: pip install ziglang")
    text = f'#include "{WORDS}"\n{CUDA.prelude()}\n{kernels}'
    # As nvcc: a product and a sum may become one instruction.
    command = [
        *(sys.executable, "-m", "ziglang", "cc", "-x", "c++", "-std=c++17", "-nostdinc++", "-O1", "-mcpu=native"),
        *("-ffp-contract=fast", "-fno-sanitize=all", "-fno-strict-aliasing", f"-D__CUDA_ARCH__={architecture}"),
    ]
    expanded = subprocess.run(
        [*command, "-E", "-P", "-"], input=text, check=True, capture_output=True, text=True, cwd=folder
    ).stdout
    (folder / "host.cc").write_text(_ASM.sub(_call, expanded), encoding="utf-8")
    made = subprocess.run(
        [*command, "-shared", "-fPIC", "-o", "host.so", "host.cc"], cwd=folder, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return ctypes.CDLL(str(folder / "host.so"))


def _call(statement: re.Match[str]) -> str:
    """Return an `asm` statement as a call of the function that is named as its instruction, operands in its order."""
    template = "".join(re.findall(r'"([^"]*)"', statement[1])).strip().rstrip(";")
    instruction, _, places = template.partition(" ")
    if any(re.match(name, instruction) for name in _TOGETHER):
        return "__builtin_trap();"
    # Each operand is a constraint and an expression in brackets, which may hold some itself.
    operands, rest = [], statement[2]
    while found := re.search(r'"[=+]?[a-z]"\s*\(', rest):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(rest[end], 0)
            end += 1
        operands.append(rest[found.end() : end - 1])
        rest = rest[end:]
    order = [operands[int(p[1:])] if p.startswith("%") else p for p in re.findall(r"%\d+|\b\d+\b", places)]
    return f"ptx_{instruction.replace('.', '_')}({', '.join(order)});"
