"""Names and messages as text that a terminal shows and does not obey."""

from __future__ import annotations

import json
from collections.abc import Iterable


def visible(text: str) -> str:
    r"""Return a text as one line: what is not printable stands there as in JSON, so that JSON stays JSON.

    Not printable is what `str.isprintable` says: control characters (ESC is `\u001b`, a line's end `\n`), marks that
    change the direction of the text, blanks other than the usual one, lone surrogates.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def lines(texts: Iterable[str]) -> str:
    """Return texts as lines, visible, without blanks at their ends."""
    return "".join(f"{visible(text).rstrip()}\n" for text in texts)


def visible_value(value: object) -> object:
    """Return a value of a page, visible if it is text; lines and markup (a subclass of str) stay."""
    return "\n".join(map(visible, value.split("\n"))) if type(value) is str else value
