"""CMSIS-NN's softmax of int8 beside softq's `tflite-int8`; writes benchmarks/mcu_cmsis_nn.json.

    python -m benchmarks.mcu.cmsis_nn FOLDER --version COMMIT [--boards m4 ...]

FOLDER is a checkout of github.com/ARM-software/CMSIS-NN. Its `arm_softmax_s8` is compiled for this computer and is
given every pair of a maximum and a score, and rows of up to 1,024 scores; what comes out is compared with softq's
program and stored as a hash, which tests/test_mcu_cmsis_nn.py holds the program against. On the boards its instructions
are counted for the rows that `python -m benchmarks.mcu` takes. Nothing of CMSIS-NN is part of softq.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.mcu.boards import BOARDS, Board, missing, run
from benchmarks.mcu.kernels import LENGTH, SCALE, TURNS, rows_of
from benchmarks.mcu.results import COMMAND
from softq.artifact.firmware.numbers import literal
from softq.methods import METHODS
from softq.methods._gemmlowp import quantize_multiplier
from softq.rowprog import DType
from softq.rowprog import run as interpret

RESULTS = Path(__file__).parent.with_name("mcu_cmsis_nn.json")
SOURCES = ("arm_softmax_s8.c", "arm_nn_softmax_common_s8.c")
LENGTHS = (3, 16, 197, 512, 1024)
INTEGER_BITS = 5
"""Of a scaled difference, as TensorFlow Lite has it."""

_DEFINED = 1 << 28
"""Sums from which on C leaves CMSIS-NN's last shift undefined."""

Codes = NDArray[np.int8]


def rows() -> list[Codes]:
    """Return the scores that are compared: each pair of a maximum and a score, then random rows, by their length."""
    high, low = np.tril_indices(256)
    found = [np.stack([high - 128, low - 128], axis=1).astype(np.int8)]
    rng = np.random.default_rng(23)
    for length in LENGTHS:
        spreads = rng.uniform(2, 60, (40, 1))
        found.append(np.clip(np.rint(rng.normal(size=(40, length)) * spreads), -128, 127).astype(np.int8))
    return [scores[_are_defined(scores)] for scores in found]


def _are_defined(scores: Codes) -> NDArray[np.bool_]:
    sums = interpret(_program("pair"), scores)["normalizer"].reshape(-1)
    return np.less(sums, _DEFINED)


def _program(output: str) -> Any:
    method = METHODS.get("tflite-int8")
    return method.program(method.configure({"step": SCALE, "output": output}), scores=DType.I8)


def ours(scores: Codes) -> Codes:
    """Return what softq's program makes of rows, with TensorFlow Lite's zero point."""
    weights = interpret(_program("int8"), scores)["weights"]
    return (weights.astype(np.int16) - 128).astype(np.int8)


def digest(found: Sequence[Codes]) -> str:
    """Return a hash of results."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(codes).tobytes() for codes in found)).hexdigest()


def _numbers() -> tuple[int, int, int]:
    """Return what the function is told of the scale: multiplier, shift, and the least difference that counts."""
    multiplier, shift = quantize_multiplier(SCALE * 2 ** (31 - INTEGER_BITS))
    radius = math.floor(((1 << INTEGER_BITS) - 1) * 2.0 ** (31 - INTEGER_BITS) / 2.0**shift)
    return multiplier, shift, -radius


def _sources(folder: Path) -> list[Path]:
    return [folder / "Source" / "SoftmaxFunctions" / name for name in SOURCES]


def theirs(folder: Path, scratch: Path, scores: Codes) -> Codes:
    """Return what CMSIS-NN makes of rows on this computer.

    Raises:
        subprocess.CalledProcessError: it does not compile.
    """
    library = scratch / "softmax.so"
    if not library.exists():
        sources = [*map(str, _sources(folder)), f"-I{folder / 'Include'}"]
        subprocess.run(["cc", "-std=c99", "-O2", "-fPIC", "-shared", *sources, "-o", str(library)], check=True)
    code, given, found = ctypes.CDLL(str(library)), np.ascontiguousarray(scores), np.empty_like(scores)
    numbers = [ctypes.c_int32(value) for value in (*scores.shape, *_numbers())]
    code.arm_softmax_s8(ctypes.c_void_p(given.ctypes.data), *numbers, ctypes.c_void_p(found.ctypes.data))
    return found


def count(board: Board, folder: Path, scratch: Path) -> float:
    """Return the instructions per element on a board."""
    scores = rows_of(DType.I8)
    values = ", ".join(literal(value, "int8") for value in scores.ravel().tolist())
    (scratch / "main.c").write_text(f"""#include "board.h"
#include "arm_nnfunctions.h"
static const int8_t scores[{scores.size}] = {{{values}}};
static int8_t out[{scores.size}];
volatile int32_t rows = {scores.shape[0]};

int main(void)
{{
    const uint32_t before = count_now();
    for (int turn = 0; turn < {TURNS}; ++turn) {{
        arm_softmax_s8(scores, rows, {LENGTH}, {", ".join(map(str, _numbers()))}, out);
    }}
    print_number(count_from(before));
    print_bytes(out, sizeof out);
    return 0;
}}
""")
    sources = [scratch / "main.c", *_sources(folder)]
    first, *words = [int(line, 16) for line in run(board, scratch, sources, [folder / "Include"])]
    found = np.frombuffer(np.array(words, np.uint32).tobytes()[: scores.size], np.int8).reshape(scores.shape)
    np.testing.assert_array_equal(found, ours(scores), board.machine)
    return first * board.tick / (TURNS * scores.size)


def main(arguments: Sequence[str]) -> int:
    """Compare, count, and store."""
    parser = argparse.ArgumentParser(prog=f"{COMMAND}.cmsis_nn", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--boards", nargs="*", default=["m3", "m4", "m7", "m33", "m55"], choices=list(BOARDS))
    given = parser.parse_args(arguments)
    scores, counted = rows(), dict[str, float]()
    with tempfile.TemporaryDirectory() as name:
        found = [theirs(given.folder, Path(name), part) for part in scores]
        for part, theirs_, part_of_ours in zip(scores, found, map(ours, scores), strict=True):
            np.testing.assert_array_equal(theirs_, part_of_ours, f"rows of {part.shape[1]}")
        for board in given.boards:
            absent = missing(BOARDS[board])
            if absent:
                print(f"{board}: needs {absent}", file=sys.stderr)
                return 2
            counted[board] = round(count(BOARDS[board], given.folder, Path(name)), 1)
            print(board, counted[board])
    facts = {
        "command": f"{COMMAND}.cmsis_nn",
        "version": given.version,
        "rows": {str(part.shape[1]): len(part) for part in scores},
        "sha256": digest(found),
        "instructions": counted,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
