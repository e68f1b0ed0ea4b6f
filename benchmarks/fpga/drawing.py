"""Boxes with arrows, and waves of signals, as SVG on a white ground: pages may be dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_SIZE, _LINE, _PAD, _GAP = 12, 16, 10, 34
_LETTER = 6.9
"""Width of a letter of this size in a monospaced face, rounded up."""

_STYLE = f"""\
<style>
text {{ font: {_SIZE}px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }}
.name {{ font-weight: bold; }}
.faint {{ fill: #59636e; }}
.page {{ fill: #ffffff; }}
.box {{ fill: #eef4fb; stroke: #4a6fa5; }}
.memory {{ fill: #fdf3e1; stroke: #a5763c; }}
.line {{ fill: none; stroke: #1f2328; }}
.grid {{ stroke: #d1d9e0; }}
.taken {{ fill: #d8efdc; stroke: #1f2328; }}
.offered {{ fill: #ffffff; stroke: #1f2328; }}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0L8 4L0 8z" fill="#1f2328"/></marker></defs>"""


@dataclass(frozen=True)
class Box:
    """A rectangle of a drawing: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height


class Drawing:
    """An SVG that grows.

    Args:
        title: What it shows, for readers who cannot see it.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._width = self._height = self._row = 0.0

    def text(self) -> str:
        """Return the file."""
        width, height = self._width + _PAD, self._height + _PAD
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img"><title>{escape(self._title)}</title>'
        )
        page = f'<rect class="page" width="{width:g}" height="{height:g}"/>'
        return "\n".join([head, _STYLE, page, *self._parts, "</svg>", ""])

    # Boxes from left to right

    def arrow_in(self, name: str, under: str) -> Box:
        """Draw what comes from outside; return where it ends, for the first box."""
        self._write(name, _PAD, _PAD + _SIZE - 4, "name")
        self._write(under, _PAD, _PAD + 2 * _SIZE, "faint")
        return Box(_PAD, _PAD, _LETTER * max(len(name), len(under)), 0)

    def box(self, before: Box, name: str, lines: Sequence[str], *, memory: bool = False) -> Box:
        """Draw a box to the right of another one, and an arrow between them."""
        box = self._frame(before.right + _GAP, _PAD, name, lines, "memory" if memory else "box")
        self._row = max(self._row, box.bottom)
        middle = 2 * _PAD + _SIZE - 2
        self._line([(before.right + 2, middle), (box.x, middle)])
        return box

    def box_below(self, above: Box, name: str, lines: Sequence[str]) -> Box:
        """Draw a box to the right of another one and below all of the row, and an arrow between them."""
        turn, top = above.x + above.width / 2, self._row + _GAP / 2
        box = self._frame(turn + _GAP / 2, top, name, lines, "box")
        self._line([(turn, above.bottom), (turn, top + _PAD), (box.x, top + _PAD)])
        return box

    def arrow_up(self, below: Box, above: Box) -> None:
        """Draw an arrow from a box below to one of the row to its right."""
        turn, middle = max(above.x + _PAD, below.right + _PAD), below.y + _PAD
        self._line([(below.right, middle), (turn, middle), (turn, above.bottom)])

    def arrow_out(self, before: Box, name: str, under: str) -> None:
        """Draw what goes outside."""
        middle, x = before.y + _PAD + _SIZE - 2, before.right
        self._line([(x, middle), (x + _GAP, middle)])
        self._write(name, x + _GAP + 4, middle - 2, "name")
        self._write(under, x + _GAP + 4, middle + _LINE - 2, "faint")

    def _frame(self, x: float, y: float, name: str, lines: Sequence[str], kind: str) -> Box:
        width = 2 * _PAD + _LETTER * max(map(len, (name, *lines)))
        box = Box(x, y, round(width), _PAD + _LINE * (1 + len(lines)) + 4)
        shape = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="4"'
        self._parts.append(f'<rect class="{kind}" {shape}/>')
        for at, line in enumerate((name, *lines)):
            self._write(line, x + _PAD, y + _PAD + _SIZE - 2 + at * _LINE, "" if at else "name")
        self._reach(box.right, box.bottom)
        return box

    # Waves

    def waves(self, name: str, values: Sequence[int | None], clock: float, y: float, *, is_clock: bool = False) -> None:
        """Draw a signal of one bit."""
        x, top = self._label(name, y), y + _PAD
        high, low = top, top + 12
        points: list[tuple[float, float]] = []
        for at, value in enumerate(values):
            left = x + at * clock
            if is_clock:
                points += [(left, low), (left, high), (left + clock / 2, high), (left + clock / 2, low)]
                self._parts.append(
                    f'<text class="faint" x="{left + 3:g}" y="{top - 2:g}" style="font-size:8px">{at}</text>'
                )
            else:
                level = high if value else low
                points += [(left, level), (left + clock, level)]
        self._line(points, arrow=False)
        self._reach(x + len(values) * clock, low + 2)

    def words(self, name: str, values: Sequence[int | None], taken: Sequence[bool], clock: float, y: float) -> None:
        """Draw values that are there in some clocks; those in which one is taken have a colour."""
        x, top = self._label(name, y), y + _PAD
        self._parts.append(f'<path class="grid" d="M{x:g} {top + 6:g}H{x + len(values) * clock:g}"/>')
        for at, (value, is_taken) in enumerate(zip(values, taken, strict=True)):
            if value is None:
                continue
            kind, left = "taken" if is_taken else "offered", x + at * clock
            self._parts.append(
                f'<rect class="{kind}" x="{left:g}" y="{top - 2:g}" width="{clock:g}" height="16"/>'
                f'<text x="{left + clock / 2:g}" y="{top + 10:g}" text-anchor="middle" '
                f'style="font-size:{10 if len(str(value)) < 4 else 7}px">{value}</text>'
            )
        self._reach(x + len(values) * clock, top + 14)

    def _label(self, name: str, y: float) -> float:
        self._write(name, _PAD, y + _PAD + 10, "")
        return _PAD + 14 * _LETTER

    def _write(self, text: str, x: float, y: float, kind: str) -> None:
        of_kind = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text{of_kind} x="{x:g}" y="{y:g}">{escape(text)}</text>')
        self._reach(x + _LETTER * len(text), y)

    def _line(self, points: Sequence[tuple[float, float]], *, arrow: bool = True) -> None:
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        head = ' marker-end="url(#head)"' if arrow else ""
        self._parts.append(f'<path class="line" d="M{path}"{head}/>')
        self._reach(*map(max, zip(*points, strict=True)))

    def _reach(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)
