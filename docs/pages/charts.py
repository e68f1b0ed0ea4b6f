"""Charts as SVG, drawn into a page so that they take its colours, light or dark."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 12, 44
COLOURS = ("currentColor", "var(--softq-1)", "var(--softq-2)", "var(--softq-3)")
DASHES = ("5 4", "", "", "")


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        name: What the legend says.
        points: x and y in the units of the axes.
        steps: Whether y stays until the next x.
        bars: Lower and upper ends of intervals, one pair per point, or none.
    """

    name: str
    points: Sequence[tuple[float, float]]
    steps: bool = False
    bars: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Axis:
    """An axis: what it says, its ends, and its ticks with their texts."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """Return a chart as a `figure` without blank lines, which Markdown leaves as it is; the first line is dashed."""
    wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def at_x(value: float) -> float:
        return round(_LEFT + wide * (value - x.low) / (x.high - x.low), 1)

    def at_y(value: float) -> float:
        value = min(max(value, y.low), y.high)
        return round(_TOP + high * (y.high - value) / (y.high - y.low), 1)

    parts = [f'<figure class="softq"><svg class="softq" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             f'aria-label="{escape(title)}">']  # fmt: skip
    for value, text in y.ticks:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at_y(value)}" y2="{at_y(value)}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at_y(value) + 4}" text-anchor="end">{escape(text)}</text>')
    for value, text in x.ticks:
        parts.append(f'<text x="{at_x(value)}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(text)}</text>')
    parts.append(f'<text x="{_LEFT + wide / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>')
    parts.append(
        f'<text transform="translate(12 {_TOP + high / 2}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'
    )
    for number, line in enumerate(lines):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        path = _path([(at_x(a), at_y(b)) for a, b in line.points], line.steps)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for (a, b), (low, top) in zip(line.points, line.bars, strict=False):
            parts.append(
                f'<line x1="{at_x(a)}" x2="{at_x(a)}" y1="{at_y(low)}" y2="{at_y(top)}" '
                f'stroke="{colour}" stroke-width="2"/>'
                f'<circle cx="{at_x(a)}" cy="{at_y(b)}" r="4" fill="{colour}"/>'
            )
    parts.append("</svg><figcaption>")
    parts += [
        f'<span style="color:{COLOURS[number % len(COLOURS)]}">{"╌" if DASHES[number % len(DASHES)] else "━"}</span> '
        f"{escape(line.name)} &ensp;"
        for number, line in enumerate(lines)
    ]
    parts.append("</figcaption></figure>")
    return "".join(parts)


def ticks(low: float, high: float, form: str) -> list[tuple[float, str]]:
    """Return 3 to 8 round numbers between the ends of an axis, as `form` writes them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [(n * step, format(n * step, form)) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    if not steps:
        return "M" + " L".join(f"{a} {b}" for a, b in points)
    parts = [f"M{points[0][0]} {points[0][1]}"]
    last = points[0][1]
    for a, b in points[1:]:
        if b != last:
            parts.append(f"H{a} V{b}")
            last = b
    return " ".join([*parts, f"H{points[-1][0]}"])


def bars(title: str, rows: Sequence[tuple[str, int]]) -> str:
    """Return horizontal bars with their labels above them and their numbers beside them."""
    line, most, y = 20, max(count for _, count in rows), 0
    parts: list[str] = []
    for label, count in rows:
        wide = round((WIDTH - 60) * count / most, 1)
        # On a phone the letters are half as large again, and a line has room for so many.
        for part in textwrap.wrap(label, 64):
            parts.append(f'<text x="0" y="{y + 14}">{escape(part)}</text>')
            y += line
        parts.append(f'<rect x="0" y="{y}" width="{wide}" height="14" fill="{COLOURS[1]}"/>')
        parts.append(f'<text x="{wide + 6}" y="{y + 12}">{count}</text>')
        y += 24
    head = f'<svg class="softq" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{escape(title)}">'
    return "".join(['<figure class="softq">', head, *parts, "</svg></figure>"])
