"""What was measured: in a file, as tables, and as the document that shows it."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "gpu.json"


@dataclass(frozen=True)
class Result:
    """One kernel beside its rival.

    Attributes:
        work: What it does.
        rival: What it is compared to.
        place: The rows or sequences.
        seconds: Its median.
        rival_seconds: The rival's.
        low: Lower quartile of the ratio, round by round.
        high: Upper quartile.
        share: What the bytes that it has to read and write take at the rate of a copy, over its time; None where
            arithmetic is the limit.
        rate: Floating-point operations a second of the products, None where there are none.
        error: The greatest difference from float64, as `measure` says.
        aim: The ratio that is aimed at, or None.
    """

    work: str
    rival: str
    place: str
    seconds: float
    rival_seconds: float
    low: float
    high: float
    share: float | None
    rate: float | None
    error: float
    aim: float | None

    @property
    def ratio(self) -> float:
        """Its time over the rival's."""
        return self.seconds / self.rival_seconds

    def line(self) -> str:
        """Return it as a line for whoever waits."""
        share = "" if self.share is None else f", {self.share:.0%} of a copy"
        return (
            f"{self.place:>12}  {self.work:48} {self.seconds * 1e6:9.1f} us  {self.ratio:.3f} of {self.rival} "
            f"({self.low:.3f}-{self.high:.3f}{share}; error {self.error:.1e})"
        )


def compared(
    times: Mapping[str, Sequence[float]], name: str, rival: str, *, work: str, place: str, error: float,
    share: float | None = None, rate: float | None = None, aim: float | None = None,
) -> Result:  # fmt: skip
    """Return how a call compares to its rival.

    Args:
        times: The seconds of each call in every round.
        name: The call.
        rival: The one to compare it to.
        work: What it does, as tables name it.
        place: The rows or sequences.
        error: Its greatest difference from float64.
        share: Seconds that a copy of its bytes takes, if memory is its limit.
        rate: Floating-point operations of it.
        aim: The ratio that is aimed at.
    """
    mine, others = times[name], times[rival]
    ratios = [a / b for a, b in zip(mine, others, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    seconds = statistics.median(mine)
    return Result(
        work, rival, place, seconds, statistics.median(others), low, high,
        None if share is None else share / seconds, None if rate is None else rate / seconds, error, aim,
    )  # fmt: skip


def table(results: Sequence[Result]) -> str:
    """Return results as a table, a line a kernel, a rival and a place."""
    lines = [
        "| work | place | time | against | ratio | aim | of a copy's rate | TFLOP/s | error |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        share = "" if r.share is None else f"{r.share:.0%}"
        rate = "" if r.rate is None else f"{r.rate / 1e12:.0f}"
        aim = "" if r.aim is None else f"{r.aim:g}"
        lines.append(
            f"| {r.work} | {r.place} | {r.seconds * 1e6:.1f} us | {r.rival} | {r.ratio:.2f} ({r.low:.2f}-{r.high:.2f}) "
            f"| {aim} | {share} | {rate} | {r.error:.1e} |"
        )
    return "\n".join(lines)


def store(section: str, command: str, card: str, results: Sequence[Result]) -> None:
    """Write a section's results, the other sections' staying."""
    held: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    held[section] = {"command": command, "card": card, "results": [dataclasses.asdict(r) for r in results]}
    RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


_TITLES = {
    "softmax": "Softmax of rows",
    "attention": "Attention",
    "models": "Attention of built models",
    "products": "Products of matrices",
}
"""Of the sections."""


def document(path: Path = RESULTS) -> str:
    """Return the tables for docs/speed-gpu.md; what was not measured is said to be so."""
    if not path.exists():
        return "**Not measured**: none of this has run on a GPU yet. `python -m benchmarks.gpu` measures it on one."
    held = json.loads(path.read_text(encoding="utf-8"))
    parts: list[str] = []
    for name, title in _TITLES.items():
        parts.append(f"## {title}")
        if name not in held:
            parts.append(f"**Not measured**: `python -m benchmarks.gpu --only {name}` measures it on a GPU.")
            continue
        section = held[name]
        parts.append(f"Measured on: {section['card']}.\n\n    {section['command']}")
        parts.append(table([Result(**one) for one in section["results"]]))
    return "\n\n".join(parts)
