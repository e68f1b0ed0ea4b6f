"""Words that depend on a number."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: `1 softmax`, `2 softmaxes`; `several` is `one` with an s if it is not given."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def softmaxes(number: int) -> str:
    """Return so many softmaxes."""
    return counted(number, "softmax", "softmaxes")
