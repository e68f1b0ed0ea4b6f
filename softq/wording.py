"""Words that depend on a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_NAMED = 3
"""So many of several sites are named."""


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: `1 softmax`, `2 softmaxes`; `several` is `one` with an s if it is not given."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def kind_of(value: object) -> str:
    """Return the kind of a value with its article: `an int`, `a list`; None stays."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def in_units(number: float, shown: str = "") -> str:
    """Return a number of units: `1 unit`, `0.5 units`; `shown` is how it is written, by default with 4 digits."""
    text = shown or f"{number:.4g}"
    return f"{text} unit" if text == "1" else f"{text} units"


def softmaxes(number: int) -> str:
    """Return so many softmaxes."""
    return counted(number, "softmax", "softmaxes")


def by_reason(reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield which sites have the same reason, as `site a` or `3 sites (a, b, c)`, and the reason.

    Args:
        reasons: A reason for each site, by its id.
    """
    alike: dict[str, list[str]] = {}
    for site, why in reasons.items():
        alike.setdefault(why, []).append(site)
    for why, sites in alike.items():
        more = f" and {len(sites) - _NAMED} more" if len(sites) > _NAMED else ""
        shown = f"{len(sites)} sites ({', '.join(sites[:_NAMED])}{more})"
        yield shown if len(sites) > 1 else f"site {sites[0]}", why
