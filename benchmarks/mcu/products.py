"""Products of 8-bit integers in C on emulated microcontrollers; writes benchmarks/mcu_products.json.

    python -m benchmarks.mcu.products [--boards m4 ...]

With `--boards` nothing is written. The sizes are those of the int8 ViT (`python -m benchmarks.mcu.models`). Sums are
compared with NumPy's first; codes with the same product in float64, from which they may differ by one where a float32
is rounded to the other side. It needs what `python -m benchmarks.mcu` does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx import parser as onnx_text

import softq
from benchmarks.mcu.boards import BOARDS, Board, missing, version
from benchmarks.mcu.results import ProductRow, store_products
from benchmarks.mcu.running import run_model

MEASURED = ("m4", "m7", "m33", "m55", "m55 mve")
SIZES = ((50, 64, 192), (50, 64, 64), (50, 64, 256), (50, 256, 64))
"""Rows, length of the sums, columns."""

_SCALE, _OUT = 0.05, 0.5
"""Of the rows, and of the result's codes."""


@dataclass(frozen=True)
class Work:
    """What is done.

    Attributes:
        name: What tables call it.
        nodes: It, from int8 `a` with constants `b`, `scales`, `bias_scales` and `bias`.
        result: Type of the result.
    """

    name: str
    nodes: str
    result: str

    def model(self, rows: int, length: int, columns: int) -> onnx.ModelProto:
        """Return the model."""
        model = onnx_text.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        product (int8[{rows}, {length}] a) => ({self.result}[{rows}, {columns}] y)
        <float sa = {{{_SCALE}}}, float sy = {{{_OUT}}}, int8 z = {{0}}>
        {{ {self.nodes} }}
        """)
        arrays = constants(length, columns)
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
        return model


WORKS = (
    Work("to int32", "y = MatMulInteger(a, b)", "int32"),
    Work(
        "Gemm to int8",
        """ax = DequantizeLinear(a, sa, z)
        bx = DequantizeLinear <axis = 1> (b, scales, zeros)
        cx = DequantizeLinear <axis = 0> (bias, bias_scales, bias_zeros)
        p = Gemm(ax, bx, cx)
        y = QuantizeLinear(p, sy, z)""",
        "int8",
    ),
)


def constants(length: int, columns: int) -> dict[str, NDArray[Any]]:
    """Return weights and biases, with a scale for each column."""
    rng = np.random.default_rng(length + columns)
    scales = rng.uniform(0.01, 0.02, columns).astype(np.float32)
    return {
        "b": rng.integers(-127, 128, (length, columns), np.int8),
        "scales": scales,
        "zeros": np.zeros(columns, np.int8),
        "bias": rng.integers(-5000, 5001, columns, np.int32),
        "bias_scales": (scales * np.float32(_SCALE)).astype(np.float32),
        "bias_zeros": np.zeros(columns, np.int32),
    }


def measure(work: Work, size: tuple[int, int, int], board: Board, folder: Path) -> float:
    """Return the instructions per multiply-add of a product on a board, after its results were compared.

    Raises:
        AssertionError: they differ.
    """
    rows, length, columns = size
    a = np.random.default_rng(0).integers(-128, 128, (rows, length), np.int8)
    softq.build(work.model(*size), folder / "model", target=board.target)
    found = run_model(board, folder / "model", folder, [{"a": a}])
    given, output = constants(length, columns), found.outputs[0]["y"]
    sums = a.astype(np.int64) @ given["b"].astype(np.int64)
    if work.result == "int32":
        np.testing.assert_array_equal(output, sums, f"{work.name} {size} on {board.machine}")
    else:
        exact = (sums + given["bias"]) * (given["scales"].astype(np.float64) * np.float32(_SCALE)) / _OUT
        codes = np.clip(np.rint(exact), -128, 127)
        difference = np.abs(output.astype(np.int64) - codes.astype(np.int64))
        assert difference.max() <= 1, (work.name, size, board.machine)
        assert np.count_nonzero(difference) <= codes.size // 1000, (work.name, size, board.machine)
        assert len(np.unique(codes)) > 100, "nearly all codes occur, or nothing is compared"
    return found.instructions[0] / (rows * length * columns)


def main(arguments: Sequence[str]) -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcu.products", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), help="only these")
    chosen = parser.parse_args(arguments)
    rows: list[ProductRow] = []
    for work in WORKS:
        for size in SIZES:
            for name in chosen.boards or MEASURED:
                absent = missing(BOARDS[name])
                if absent:
                    print(f"{name}: needs {absent}", file=sys.stderr)
                    return 2
                with tempfile.TemporaryDirectory() as folder:
                    count = measure(work, size, BOARDS[name], Path(folder))
                rows.append(ProductRow(work.name, " x ".join(map(str, size)), name, round(count, 3)))
                print(json.dumps(asdict(rows[-1])), flush=True)
    if not chosen.boards:
        store_products(rows, sorted({version(BOARDS[name]) for name in MEASURED}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
