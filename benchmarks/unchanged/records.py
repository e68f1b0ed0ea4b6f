"""What was observed in two checkouts, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.unchanged.observe import CRASHED, REFUSED

TEXTS = "texts"

Kinds = Mapping[str, Mapping[str, str]]
"""Hashes by key by kind."""

TOLD = ("files", "bytes of deferred-log")
"""Kinds that are compared and may differ: what they are to do is held by others."""


@dataclass(frozen=True)
class Comparison:
    """A kind of observations in two checkouts.

    Attributes:
        kind: Its name.
        equal: How many are equal.
        different: The keys of those that are not, with both values; None where there is no second.
        added: How many only the newer checkout has.
        refused: How many of the equal ones are refusals or errors.
    """

    kind: str
    equal: int
    different: Mapping[str, tuple[str, str | None]]
    added: int
    refused: int

    @property
    def held(self) -> bool:
        """Whether nothing of it may differ."""
        return self.kind not in TOLD

    @property
    def passed(self) -> bool:
        """Whether it is as it has to be."""
        return not (self.held and self.different)


def compare(before: Kinds, now: Kinds, *, partial: bool = False) -> list[Comparison]:
    """Return the kinds of two records.

    Args:
        before: What the older checkout gives.
        now: What the newer one gives.
        partial: Whether the newer record is of a part only, so that what it lacks is not missing.
    """
    found: list[Comparison] = []
    for kind in sorted({*before, *now}):
        old, new = before.get(kind, {}), now.get(kind, {})
        wanted = {key: value for key, value in old.items() if key in new or not partial}
        if not wanted and not new:
            continue
        different = {key: (value, new.get(key)) for key, value in wanted.items() if new.get(key) != value}
        equal = [value for key, value in wanted.items() if key not in different]
        refused = sum(value.startswith((REFUSED, CRASHED)) for value in equal)
        found.append(Comparison(kind, len(equal), different, len(new.keys() - old.keys()), refused))
    return found


def table(found: list[Comparison], folder: Path, named: int = 5) -> str:
    """Return the comparison as text, with the first few of what differs in each kind.

    Args:
        found: The kinds.
        folder: The folder of the record, whose texts are named.
        named: How many differences of a kind are named.
    """
    rows = [["kind", "compared", "equal", "refused", "different", "added"]]
    for one in found:
        compared = one.equal + len(one.different)
        counts = (compared, one.equal, one.refused, len(one.different), one.added)
        rows.append([one.kind + ("" if one.held else " (may differ)"), *map(str, counts)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    name, *counts = widths
    lines = ["  ".join([row[0].ljust(name), *map(str.rjust, row[1:], counts)]) for row in rows]
    for one in found:
        if one.different:
            lines += ["", f"{one.kind}: {len(one.different)} {'differ' if one.held else 'may differ and do'}"]
            lines += [f"  {key}: {_difference(folder, *values)}" for key, values in list(one.different.items())[:named]]
    return "\n".join(lines) + "\n"


def _difference(folder: Path, before: str, now: str | None) -> str:
    if now is None:
        return "is missing"
    hashes = [value.removeprefix(REFUSED).removeprefix(CRASHED) for value in (before, now)]
    texts = [folder / TEXTS / f"{one[:20]}.txt" for one in hashes]
    if all(text.exists() for text in texts):
        return "diff " + " ".join(map(str, texts))
    return f"other bytes{''.join(f', now {how.strip()}' for how in (REFUSED, CRASHED) if now.startswith(how))}"
