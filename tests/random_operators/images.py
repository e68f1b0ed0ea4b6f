"""Operators that read between the elements of images, and transforms of signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_graph import DOUBLE, FLOAT, NOTHING, Draw, Drawn, Graph


def _resize(g: Graph) -> None:
    x = g.pick((FLOAT,), rank=g.rng.choice((3, 4)))
    if min(x.shape[2:]) < 2:
        return
    # The place of "nearest" jumps where rounding of a scale decides: it takes scales that are powers of two.
    mode = g.rng.choice(("nearest", "linear", "cubic"))
    transformation = g.rng.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    if mode == "cubic" and len(x.shape) != 4:
        return
    if mode == "nearest":
        scales = [1.0, 1.0, *(g.rng.choice((0.5, 1.0, 2.0)) for _ in x.shape[2:])]
        transformation = "asymmetric"
    else:
        scales = [1.0, 1.0, *(g.rng.choice((0.6, 1.0, 2.0, 1.7)) for _ in x.shape[2:])]
    lengths = [int(d * s) for d, s in zip(x.shape, scales, strict=True)]
    if transformation == "align_corners" and min(lengths[2:]) < 2:
        return
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "nearest":
        options["nearest_mode"] = g.rng.choice(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    g.add("Resize", [x, NOTHING, g.constant(scales, FLOAT)], **options)


def _resize_to_sizes(g: Graph) -> None:
    x = g.input(FLOAT, (1, 2, 4, 6), fixed=g.rng.random() < 0.5)
    sizes = [1, 2, *(g.rng.choice((3, 5, 8)) for _ in range(2))]
    known = g.rng.random() < 0.5
    lengths = g.ints(*sizes) if known else g.given(np.array(sizes))
    g.add("Resize", [x, NOTHING, NOTHING, lengths], mode="linear")


def _any_resize(g: Graph) -> None:
    (_resize if g.rng.random() < 0.7 else _resize_to_sizes)(g)


def _grid_sample(g: Graph) -> None:
    x = g.input(FLOAT, (2, 3, 4, 5), g.fix(0))
    grid = g.given(g.data(FLOAT, (2, 3, 4, 2)) * np.float32(0.7))
    # "nearest" is left out: rounding decides its place.
    g.add(
        "GridSample", [x, grid], mode=g.rng.choice(("linear", "cubic")), align_corners=g.rng.randint(0, 1),
        padding_mode=g.rng.choice(("zeros", "border", "reflection")),
    )  # fmt: skip


def _affine_grid(g: Graph) -> None:
    space = g.rng.random() < 0.3
    theta = g.input(FLOAT, (2, 3, 4) if space else (2, 2, 3), fixed=True)
    size = g.ints(2, 1, 3, 4, 5) if space else g.ints(2, 3, 4, 5)
    g.add("AffineGrid", [theta, size], align_corners=g.rng.randint(0, 1))


def _roi_align(g: Graph) -> None:
    x = g.input(FLOAT, (2, 3, 6, 7), fixed=g.rng.random() < 0.5)
    rois = g.given(np.sort(np.abs(g.data(FLOAT, (3, 2, 2))) * 2, axis=1).reshape(3, 4).astype(np.float32))
    # onnxruntime's maximum is another than ONNX's, and both say so.
    mode, batches = "avg", g.given(np.array([0, 1, 0]))
    g.add(
        "RoiAlign", [x, rois, batches], mode=mode, output_height=2, output_width=3, sampling_ratio=2, spatial_scale=1.0,
        coordinate_transformation_mode=g.rng.choice(("half_pixel", "output_half_pixel")),
    )  # fmt: skip


def _fourier(g: Graph) -> None:
    x = g.input(g.rng.choice((FLOAT, FLOAT, DOUBLE)), (2, g.rng.choice((5, 8)), g.rng.choice((1, 2))), fixed=True)
    length = [g.constant(np.array(g.rng.choice((4, 8))))] if g.rng.random() < 0.4 else [NOTHING]
    onesided = x.shape[-1] == 1 and g.rng.random() < 0.5
    axis: list[Drawn] = [g.constant(np.array(g.rng.choice((1, -2))))]
    inverse = 0 if onesided or x.shape[-1] == 1 else g.rng.randint(0, 1)
    g.add("DFT", [x, *length, *axis], onesided=int(onesided), inverse=inverse)


def _short_fourier(g: Graph) -> None:
    signal = g.input(FLOAT, (2, 20, 1), fixed=g.rng.random() < 0.5)
    window = g.constant(np.hanning(8).astype(np.float32)) if g.rng.random() < 0.5 else NOTHING
    g.add("STFT", [signal, g.constant(np.array(4)), window, g.constant(np.array(8))], onesided=g.rng.randint(0, 1))


def _mel_weights(g: Graph) -> None:
    numbers = (np.array(8), np.array(32), np.array(8000), np.float32(20), np.float32(3000))
    g.add("MelWeightMatrix", [g.constant(number) for number in numbers], output_datatype=FLOAT)


OPERATORS: dict[str, Draw] = {
    "Resize": _any_resize,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "RoiAlign": _roi_align,
    "DFT": _fourier,
    "MelWeightMatrix": _mel_weights,
    "STFT": _short_fourier,
}
