"""MatMulNBits beside onnxruntime: weights of 4 bits stay packed, those of 8 are dequantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import softq
from softq.errors import RefusalError
from tests.built import Array
from tests.test_build_contrib import floats, node_model, same

pytest.importorskip("tvm")

RNG = np.random.default_rng(9)


def weights(columns: int, inner: int, block: int, bits: int, zeros: str) -> dict[str, Array | None]:
    blocks = -(-inner // block)
    given: dict[str, Array | None] = {
        "B": RNG.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
        "S": np.abs(floats(columns, blocks)) / 8,
    }
    if zeros == "packed":
        given["Z"] = RNG.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
    elif zeros == "floats":
        given["Z"] = floats(columns, blocks) + 8
    return given


@pytest.mark.parametrize(
    ("shape", "columns", "block", "bits", "zeros"),
    [
        ((1, 96), 70, 32, 4, ""),
        ((2, 5, 112), 33, 16, 4, "packed"),
        ((3, 48), 9, 16, 4, "floats"),
        ((3, 100), 64, 32, 4, ""),
        ((2, 64), 20, 32, 8, ""),
    ],
)
def test_products(shape: tuple[int, ...], columns: int, block: int, bits: int, zeros: str, tmp_path: Path) -> None:
    inner = shape[-1]
    given: dict[str, Array | None] = {"x": floats(*shape), **weights(columns, inner, block, bits, zeros)}
    model, feeds = node_model("MatMulNBits", given, [len(shape)], K=inner, N=columns, bits=bits, block_size=block)
    # Sums of 112 products of numbers up to 10.
    same(model, feeds, tmp_path, 1e-4)


def test_weights_stay_packed(tmp_path: Path) -> None:
    given: dict[str, Array | None] = {"x": floats(1, 512), **weights(512, 512, 32, 4, "")}
    model, _ = node_model("MatMulNBits", given, [2], K=512, N=512, bits=4, block_size=32)
    softq.build(model, tmp_path / "built", target="cpu")
    # Half a byte each, and two floats for 32 of them.
    assert sum(f.stat().st_size for f in (tmp_path / "built").rglob("*weights*")) < 512 * 512 * 0.8


def test_what_has_no_kernel_is_refused_by_name(tmp_path: Path) -> None:
    given: dict[str, Array | None] = {"x": floats(1, 32), **weights(8, 32, 32, 2, "")}
    model, _ = node_model("MatMulNBits", given, [2], K=32, N=8, bits=2, block_size=32)
    with pytest.raises(RefusalError, match="MatMulNBits 'y0' has 2 bits"):
        softq.build(model, tmp_path / "x", target="cpu")
