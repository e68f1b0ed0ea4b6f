"""Built models with normalizations, against onnxruntime or onnx's reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.built import check

pytest.importorskip("tvm")

F32 = np.float32


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_layer_gives_its_statistics(axis: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shape = "5, 4" if axis == 1 else "4"
    lengths = (5, 4) if axis == 1 else (4,)
    check(
        f"""g (float[N, 5, 4] x, float[{shape}] scale, float[{shape}] bias)
            => (float[N, 5, 4] y, float[N, A, 1] mean, float[N, A, 1] reciprocal) {{
            y, mean, reciprocal = LayerNormalization<axis = {axis}, epsilon = 0.01>(x, scale, bias)
        }}""",
        [
            {
                "x": (5 + rng.standard_normal((n, 5, 4))).astype(F32),
                "scale": rng.standard_normal(lengths).astype(F32),
                "bias": rng.standard_normal(lengths).astype(F32),
            }
            for n in (1, 3)
        ],
        tmp_path,
        relative=1e-5,
        absolute=1e-5,
    )


def test_a_batch_gives_its_running_statistics(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    feeds = {"x": rng.standard_normal((4, 3, 7)).astype(F32)}
    feeds |= {name: rng.random(3).astype(F32) for name in "sbmv"}
    check(
        """g (float[N, 3, M] x, float[3] s, float[3] b, float[3] m, float[3] v)
            => (float[N, 3, M] y, float[3] mean, float[3] variance) {
            y, mean, variance = BatchNormalization<training_mode = 1, momentum = 0.7>(x, s, b, m, v)
        }""",
        [feeds],
        tmp_path,
        relative=1e-5,
        absolute=1e-5,
        reference=True,
    )


@pytest.mark.parametrize(("p", "axis"), [(1, 0), (2, -1)])
def test_rows_of_norm_one(p: int, axis: int, tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((5, 7)).astype(F32)
    x[2], x[:, 3] = 0, 0
    check(
        f"g (float[N, M] x) => (float[N, M] y) {{ y = LpNormalization<p = {p}, axis = {axis}>(x) }}",
        [{"x": x}],
        tmp_path,
    )


def test_a_layer_of_a_length_that_is_not_known_has_no_bias(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    check(
        "g (float[N, M] x, float[M] scale) => (float[N, M] y) { y = LayerNormalization (x, scale) }",
        [{"x": rng.standard_normal((2, n)).astype(F32), "scale": rng.standard_normal(n).astype(F32)} for n in (5, 3)],
        tmp_path,
    )
