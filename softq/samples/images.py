"""Images of a folder as a model's input."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from softq.address_space import ApartError, run_apart
from softq.data import LABEL, Array
from softq.errors import InputError, UsageError
from softq.files import open_regular
from softq.limits import current
from softq.samples.inputs import Input

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB"}
"""What Pillow calls images of so many channels."""

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""Formats of pixels: others, such as PostScript, start programs."""

_PIXEL = 8
"""Bytes that a pixel takes: four as it is decoded, and four turned upright or in the mode that is needed."""


@dataclass(frozen=True)
class ImageOptions:
    """How images become numbers.

    Attributes:
        mean: Is taken off each channel, once values are in [0, 1]; one number, or one per channel.
        std: What each channel is divided by then.
        fit: `crop` keeps the aspect ratio and cuts the middle out, `stretch` keeps all of the image.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    fit: str = "crop"


@dataclass(frozen=True)
class _Layout:
    channels: int
    height: int
    width: int
    channels_last: bool
    has_channels: bool = True


def read_images(
    inputs: Sequence[Input], folder: str, options: ImageOptions | None = None, *, count: int | None = None
) -> dict[str, Array]:
    """Return the images of a folder as the model's input, in the order of their names.

    Images in folders of the folder get the number of their folder, in the order of the names, as `label.class`.

    Args:
        inputs: What the model takes: one input [N,C,H,W], [N,H,W,C] or [N,H,W].
        folder: The folder.
        options: How images become numbers.
        count: So many images at most.

    Raises:
        InputError: there are no images, or one cannot be read.
        UsageError: the model has not one such input, its height and width are open, or Pillow is not installed.
    """
    if importlib.util.find_spec("PIL") is None:
        raise UsageError("images need Pillow: pip install 'softq[data]'")
    if len(inputs) != 1:
        raise UsageError(f"the model takes {', '.join(one.name for one in inputs)}; images serve a model of one input")
    layout, options = _layout(inputs[0]), options or ImageOptions()
    paths, labels = _list(Path(folder))
    paths, labels = paths[:count], labels[:count]
    dtype = np.dtype(inputs[0].dtype)
    arrays = [_numbers(pixels, dtype, layout, options) for pixels in _decode(paths, layout, options.fit)]
    made: dict[str, Array] = {inputs[0].name: np.stack(arrays)}
    if all(label is not None for label in labels):
        made[f"{LABEL}class"] = np.array(labels, np.int64)
    return made


def _layout(one: Input) -> _Layout:
    if len(one.shape) == 4 and one.shape[1] in _MODES:
        channels, height, width, last = one.shape[1], one.shape[2], one.shape[3], False
    elif len(one.shape) == 4 and one.shape[3] in _MODES:
        channels, height, width, last = one.shape[3], one.shape[1], one.shape[2], True
    elif len(one.shape) == 3:
        channels, height, width, last = 1, one.shape[1], one.shape[2], True
    else:
        raise UsageError(f"input {one.name!r} is {one}; images are [N,C,H,W], [N,H,W,C] or [N,H,W], C 1 or 3")
    if not (isinstance(height, int) and isinstance(width, int)):
        raise UsageError(f"input {one.name!r} is {one}; --input-shape '{one.name}:LENGTHS' says how large images are")
    return _Layout(channels, height, width, last, len(one.shape) == 4)


def _list(folder: Path) -> tuple[list[Path], list[int | None]]:
    """Return the images of a folder, or of the folders in it with their numbers."""
    if not os.path.isdir(folder):  # False, where Path's own raises: of a name that is too long
        raise InputError(f"{folder}: no such folder")
    here = _images_in(folder)
    if here:
        return here, [None] * len(here)
    paths: list[Path] = []
    labels: list[int | None] = []
    for number, inner in enumerate(sorted(path for path in folder.iterdir() if path.is_dir())):
        found = _images_in(inner)
        paths += found
        labels += [number] * len(found)
    if not paths:
        raise InputError(f"{folder}: holds no images; known are {', '.join(_ENDINGS)}")
    return paths, labels


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _ENDINGS and path.is_file())


def _decode(paths: Sequence[Path], layout: _Layout, fit: str) -> NDArray[np.uint8]:
    """Return images, [N, height, width, channels], decoded in a process of its own: small files may be large images."""
    shape, limits = (layout.height, layout.width, layout.channels), current()
    asked = {"paths": list(map(os.fspath, paths)), "size": [layout.width, layout.height], "fit": fit}
    asked |= {"mode": _MODES[layout.channels], "memory": limits.memory}
    try:
        pixels = run_apart(decode_images, json.dumps(asked).encode(), limits.memory, limits.seconds * len(paths))
    except ApartError as error:
        if not error.limit:
            raise
        path = paths[min(len(error.written) // max(1, math.prod(shape)), len(paths) - 1)]
        raise InputError(f"{path}: cannot be decoded within {error.limit}") from error
    return np.frombuffer(pixels, np.uint8).reshape(len(paths), *shape)


def decode_images(source: BinaryIO, out: BinaryIO) -> None:
    """Write the pixels of the images that a JSON text names, one after the other (`softq.address_space.Work`)."""
    asked = json.load(source)
    for path in asked["paths"]:
        out.write(_open(path, tuple(asked["size"]), asked["mode"], asked["fit"], asked["memory"]))
        out.flush()


def _open(path: str, size: tuple[int, int], mode: str, fit: str, memory: int) -> bytes:
    from PIL import Image, ImageOps

    try:
        with open_regular(path) as file, Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height * _PIXEL > memory:
                raise InputError(
                    f"{path}: has {image.width} x {image.height} pixels; {memory // _PIXEL} are decoded at most "
                    f"(--limit-memory is {_PIXEL} bytes for each)"
                )
            ImageOps.exif_transpose(image, in_place=True)
            upright = image if image.mode == mode else image.convert(mode)
            if upright.size == size:
                return upright.tobytes()
            if fit == "stretch":
                return upright.resize(size, Image.Resampling.BILINEAR).tobytes()
            return ImageOps.fit(upright, size, Image.Resampling.BILINEAR).tobytes()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _numbers(pixels: NDArray[np.uint8], dtype: np.dtype[np.generic], layout: _Layout, options: ImageOptions) -> Array:
    if dtype.kind == "f":
        mean, std = (_per_channel(name, getattr(options, name), layout.channels) for name in ("mean", "std"))
        values: Array = ((pixels / 255.0 - mean) / std).astype(dtype)
    elif dtype == np.uint8:
        if options != ImageOptions(fit=options.fit):
            raise UsageError("the model takes bytes of images; mean and std are for floats")
        values = pixels
    else:
        raise UsageError(f"the model takes images of type {dtype.name}; expected floats or uint8")
    if not layout.has_channels:
        return values[:, :, 0]
    return values if layout.channels_last else values.transpose(2, 0, 1)


def _per_channel(name: str, values: tuple[float, ...], channels: int) -> NDArray[np.float64]:
    if len(values) not in (1, channels):
        raise UsageError(f"{name} has {len(values)} numbers; the images have {channels} channels")
    return np.array(values, np.float64)
