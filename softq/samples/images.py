"""Images of a folder as a model's input."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from softq.data import LABEL, Array
from softq.errors import InputError, UsageError
from softq.samples.inputs import Input

if TYPE_CHECKING:
    from PIL import Image

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB"}
"""What Pillow calls images of so many channels."""


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
    arrays = [_numbers(_open(path, layout, options.fit), dtype, layout, options) for path in paths]
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


def _open(path: Path, layout: _Layout, fit: str) -> Image.Image:
    from PIL import Image, ImageOps

    size = (layout.width, layout.height)
    try:
        with Image.open(path) as image:
            # What a camera held upright is upright.
            upright = ImageOps.exif_transpose(image).convert(_MODES[layout.channels])
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if upright.size == size:
        return upright
    if fit == "stretch":
        return upright.resize(size, Image.Resampling.BILINEAR)
    return ImageOps.fit(upright, size, Image.Resampling.BILINEAR)


def _numbers(image: Image.Image, dtype: np.dtype[np.generic], layout: _Layout, options: ImageOptions) -> Array:
    pixels = np.asarray(image).reshape(layout.height, layout.width, layout.channels)
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
