"""The axes and formulas of Resize, as expressions of float32: places along an axis, what is nearest, and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from softq.compiler.tir.symbolic import Dim
from softq.errors import RefusalError


@dataclass(frozen=True)
class Axis:
    """An axis that is resized.

    Attributes:
        number: Which one.
        place: Where its scale, and the beginning of its region, are.
        before: Its length.
        after: Its new length.
        scale: What it is multiplied by, if that is known.
    """

    number: int
    place: int
    before: Dim
    after: Dim
    scale: float | None

    @property
    def factor(self) -> float | None:
        """What it is multiplied by, also where the lengths say it."""
        if self.scale is None and isinstance(self.before, int) and isinstance(self.after, int) and self.before:
            return float(np.float32(self.after) / np.float32(self.before))
        return self.scale


def _f(value: float) -> Any:
    return tirx.FloatImm("float32", value)


def coordinate(form: str, at: Any, scale: Any, before: Any, after: Any, region: tuple[Any, Any]) -> Any:
    """Return the place along an axis of which an element of the result is made.

    Args:
        form: ONNX's name of how the axes lie upon each other.
        at: The element's place, an integer.
        scale: What the axis is multiplied by, float32.
        before: The axis' length, an integer.
        after: The length of the result's.
        region: Beginning and end of what is resized, as parts of the axis.
    """
    x, old, new = at.astype("float32"), before.astype("float32"), after.astype("float32")
    half = (x + _f(0.5)) / scale - _f(0.5)
    alone = after <= 1
    if form == "half_pixel":
        return half
    if form == "pytorch_half_pixel":
        return tirx.Select(alone, _f(0), half)
    if form == "half_pixel_symmetric":
        return old / _f(2) * (_f(1) - new / (scale * old)) + half
    if form == "asymmetric":
        return x / scale
    if form == "tf_half_pixel_for_nn":
        return (x + _f(0.5)) / scale
    last = tirx.max(new - _f(1), _f(1))
    if form == "align_corners":
        return tirx.Select(alone, _f(0), x * (old - _f(1)) / last)
    if form == "tf_crop_and_resize":
        start, end = region
        inside = start * (old - _f(1)) + x * (end - start) * (old - _f(1)) / last
        return tirx.Select(alone, _f(0.5) * (start + end) * (old - _f(1)), inside)
    raise RefusalError(f"Resize has no coordinates {form!r}")


def nearest(mode: str, place: Any) -> Any:
    """Return the whole number that a place stands for, as float32."""
    below = tirx.floor(place)
    if mode == "floor":
        return below
    if mode == "ceil":
        return tirx.ceil(place)
    if mode == "round_prefer_floor":
        return below + tirx.Select(place - below > _f(0.5), _f(1), _f(0))
    if mode == "round_prefer_ceil":
        return below + tirx.Select(place - below >= _f(0.5), _f(1), _f(0))
    raise RefusalError(f"Resize has no nearest element by {mode!r}")


_REPEATING = {
    ("asymmetric", "floor"),
    *((form, f"round_prefer_{way}") for form in ("half_pixel", "pytorch_half_pixel") for way in ("floor", "ceil")),
}


def repeats(form: str, rounding: str, scales: Sequence[float | None]) -> bool:
    """Say whether nearest elements along axes amount to each element s times, s being the axis' scale.

    Element i is i // s of the input then. No quotient by s is so near to a whole number, or to one and a half, that
    rounding it to float32 gives another one, up to lengths of 2^24.

    Args:
        form: ONNX's name of how the axes lie upon each other.
        rounding: Its name of what is nearest.
        scales: What the axes are multiplied by, None where that is not known.
    """
    whole = all(scale is not None and scale >= 1 and scale == int(scale) for scale in scales)
    return whole and (form, rounding) in _REPEATING


def kernel(reach: int, distance: Any, slope: float) -> Any:
    """Return the weight of an element at a distance, before weights are brought to a sum of 1.

    Args:
        reach: 1 for linear, 2 for cubic interpolation.
        distance: Of the element.
        slope: The cubic kernel's, at a distance of 1.
    """
    t = tirx.Select(distance < _f(0), -distance, distance)
    if reach == 1:
        return tirx.max(_f(1) - t, _f(0))
    near = (_f(slope + 2) * t - _f(slope + 3)) * t * t + _f(1)
    far = ((_f(slope) * t - _f(5 * slope)) * t + _f(8 * slope)) * t - _f(4 * slope)
    return tirx.Select(t <= _f(1), near, tirx.Select(t < _f(2), far, _f(0)))
