"""What to say of a name that is not known."""

from __future__ import annotations

from collections.abc import Collection

_FEW = 8
"""So many names are told all."""

_NEAREST = 3


def unknown(noun: str, name: str, known: Collection[str], listed_by: str = "") -> str:
    """Return a sentence on a name that is not known: those nearest to it, or all if they are few.

    Args:
        noun: What it is a name of.
        name: The name.
        known: What there is.
        listed_by: The command that lists what there is; without one all names are told.
    """
    told = f"unknown {noun} {name!r}"
    if not known:
        return f"{told}; there are none"
    near = nearest(name, known)
    if len(known) <= _FEW or not listed_by:
        return f"{told}; there are: {', '.join(known)}"
    all_of_them = f"{listed_by} lists all {len(known)}"
    return f"{told}; nearest: {', '.join(near)}; {all_of_them}" if near else f"{told}; {all_of_them}"


def nearest(name: str, known: Collection[str]) -> list[str]:
    """Return at most three names that resemble one, the nearest first: few letters differ, or one holds the other."""
    from difflib import get_close_matches  # Few names are wrong.

    wanted = _folded(name)
    folded = {one: _folded(one) for one in known}
    close = get_close_matches(wanted, folded.values(), _NEAREST, 0.6)
    found = [one for text in close for one, other in folded.items() if other == text]
    found += [one for one, text in folded.items() if min(len(wanted), len(text)) > 2 and _nested(wanted, text)]
    return list(dict.fromkeys(found))[:_NEAREST]


def _nested(one: str, other: str) -> bool:
    return one in other or other in one


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")
