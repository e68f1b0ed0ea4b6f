"""Built models on signals, sequences and patches of images, against onnxruntime or ONNX's reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.built import Array, check

pytest.importorskip("tvm")

F32 = np.float32


def noise(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F32)


@pytest.mark.parametrize(
    ("attributes", "parts", "axis", "length"),
    [("", 2, 1, None), ("onesided = 1", 1, 1, 12), ("inverse = 1", 2, 0, None), ("inverse = 1", 2, 1, 9)],
)
def test_transforms(attributes: str, parts: int, axis: int, length: int | None, tmp_path: Path) -> None:
    operator = f"DFT<{attributes}>" if attributes else "DFT"
    check(
        f"""g (float[N, M, {parts}] x) => (float[N, A, 2] y)
            <int64 axis = {{{axis}}}, int64 length = {{{length or 0}}}> {{
            y = {operator}(x, {"length" if length else ""}, axis)
        }}""".replace("N, A, 2", "A, M, 2" if axis == 0 else "N, A, 2"),
        [{"x": noise(n, 11, parts)} for n in (1, 4)],
        tmp_path,
        relative=1e-5,
        absolute=1e-5,
        reference=True,  # onnxruntime's transform of a prime length is off by 1e-5.
    )


def test_short_transforms_of_a_signal(tmp_path: Path) -> None:
    check(
        """g (float[B, L, 1] x, float[8] window) => (float[B, F, 5, 2] y) <int64 step = {3}> {
            y = STFT(x, step, window)
        }""",
        [{"x": noise(b, n, 1), "window": noise(8)} for b, n in ((2, 20), (1, 8))],
        tmp_path,
        relative=1e-5,
        absolute=1e-5,
    )


@pytest.mark.parametrize("batch", [0, 1])
def test_sequences_are_reversed(batch: int, tmp_path: Path) -> None:
    shape = (3, 5, 2) if batch == 0 else (5, 3, 2)
    check(
        f"""g (float[A, B, C] x, int64[3] lengths) => (float[A, B, C] y) {{
            y = ReverseSequence<batch_axis = {batch}, time_axis = {1 - batch}>(x, lengths)
        }}""",
        [{"x": noise(*shape), "lengths": np.array([5, 1, 3])}],
        tmp_path,
    )


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_is_written(mode: str, tmp_path: Path) -> None:
    check(
        f"""g (float[B, 2, 6, 3] cache, float[B, 2, N, 3] update, int64[B] first) => (float[B, 2, 6, 3] y) {{
            y = TensorScatter<mode = "{mode}">(cache, update, first)
        }}""",
        [
            {"cache": noise(2, 2, 6, 3), "update": noise(2, 2, n, 3), "first": np.array([2, 5 if n == 1 else 1])}
            for n in (1, 4)
        ],
        tmp_path,
        opset=24,
        reference=True,
    )


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_n_grams_are_counted(mode: str, tmp_path: Path) -> None:
    check(
        f"""g (int64[N, 12] x) => (float[N, 7] y) {{
            y = TfIdfVectorizer<
                mode = "{mode}", min_gram_length = 1, max_gram_length = 2, max_skip_count = 3, ngram_counts = [0, 4],
                ngram_indexes = [0, 1, 2, 3, 4, 5, 6], weights = [2.0, 1.0, 3.0, 1.0, 0.5, 1.0, 7.0],
                pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]>(x)
        }}""",
        [{"x": np.random.default_rng(n).integers(1, 9, (n, 12))} for n in (1, 5)],
        tmp_path,
    )


def test_patches_become_an_image(tmp_path: Path) -> None:
    check(
        """g (float[N, 18, 12] x) => (float[N, 3, 7, 6] y) <int64[2] image = {7, 6}, int64[2] block = {2, 3}> {
            y = Col2Im<strides = [2, 2], pads = [0, 1, 1, 0], dilations = [1, 1]>(x, image, block)
        }""",
        [{"x": noise(2, 18, 12)}],
        tmp_path,
        relative=1e-5,
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_at_places_that_data_give(groups: int, tmp_path: Path) -> None:
    offsets = 2 * groups * 9
    check(
        f"""g (float[N, 4, 7, 6] x, float[6, {4 // groups}, 3, 3] w, float[N, {offsets}, 4, 3] o, float[6] b,
            float[N, {offsets // 2}, 4, 3] m) => (float[N, 6, 4, 3] y) {{
            y = DeformConv<group = {groups}, offset_group = {groups}, strides = [2, 2], pads = [1, 1, 1, 1],
                kernel_shape = [3, 3]>(x, w, o, b, m)
        }}""",
        [
            {
                "x": noise(2, 4, 7, 6),
                "w": noise(6, 4 // groups, 3, 3),
                "o": 2 * noise(2, offsets, 4, 3),
                "b": noise(6),
                "m": noise(2, offsets // 2, 4, 3),
            }
        ],
        tmp_path,
        relative=1e-4,
        absolute=1e-4,
    )


def test_what_pooling_took_goes_back(tmp_path: Path) -> None:
    check(
        """g (float[N, 2, 2, 2] x, int64[N, 2, 2, 2] at) => (float[N, 2, 4, 4] y) {
            y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, at)
        }""",
        [{"x": noise(1, 2, 2, 2), "at": np.array([5, 7, 13, 15, 16, 19, 24, 26]).reshape(1, 2, 2, 2)}],
        tmp_path,
    )


@pytest.mark.parametrize(
    ("mode", "ratio", "centred"), [("avg", 0, "half_pixel"), ("max", 0, "output_half_pixel"), ("max", 2, "half_pixel")]
)
def test_regions_of_images(mode: str, ratio: int, centred: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    corners = rng.uniform(-4, 20, (7, 2)).astype(F32)
    check(
        f"""g (float[N, 3, 9, 8] x, float[R, 4] regions, int64[R] images) => (float[R, 3, 4, 5] y) {{
            y = RoiAlign<mode = "{mode}", sampling_ratio = {ratio}, coordinate_transformation_mode = "{centred}",
                spatial_scale = 0.5, output_height = 4, output_width = 5>(x, regions, images)
        }}""",
        [
            {
                "x": noise(2, 3, 9, 8),
                "regions": np.concatenate([corners, corners + rng.uniform(0, 12, (7, 2)).astype(F32)], 1),
                "images": rng.integers(0, 2, 7),
            }
        ],
        tmp_path,
        relative=1e-4,
        absolute=1e-5,
    )


def test_weights_of_mel_bands(tmp_path: Path) -> None:
    """Their numbers are constants, or inputs that the run knows."""
    scalars = "int64 n, int64 d, int64 r, float low, float high"
    graph = f"g ({scalars}) => (float[A, B] w) {{ w = MelWeightMatrix(n, d, r, low, high) }}"
    numbers = ((8, 64, 16000, 0.0, 8000.0), (40, 512, 8000, 20.0, 3800.0), (3, 16, 100, 0.0, 50.0))
    feeds = [
        {
            name: np.array(v, np.float32 if isinstance(v, float) else np.int64)
            for name, v in zip(("n", "d", "r", "low", "high"), row, strict=True)
        }
        for row in numbers
    ]
    check(graph, feeds, tmp_path, absolute=1e-6)
    graph = """g (float[N, 33] x) => (float[N, 8] y)
        <int64 n = {8}, int64 d = {64}, int64 r = {16000}, float low = {0}, float high = {8000}> {
        w = MelWeightMatrix(n, d, r, low, high) y = MatMul(x, w) }"""
    check(graph, [{"x": np.random.default_rng(0).random((3, 33), np.float32)}], tmp_path, absolute=1e-5)
