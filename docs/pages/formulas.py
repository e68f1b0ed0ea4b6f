"""Formulas as docstrings write them, set as mathematics: text to MathML, which browsers draw without a library.

    w[c] = rint(2^(W-1) * 2^(-c / r))

`^` and `_` take the next name, number, sign or group; a bracket that touches a name is an index; `/` is a fraction of
the factors at its sides. What cannot be read as a formula stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<word>Q\d+\.\d+|[A-Za-z]+(?:-[A-Z]{3,})?\d*'?)|"
    r"(?P<operator><=|>=|!=|>>|<<|\+-|[-+*/=<>~^_()\[\]{},;:.|'`])"
)
_SHOWN = {"*": "·", "<=": "≤", ">=": "≥", "!=": "≠", ">>": "≫", "<<": "≪", "~": "≈", "-": "−", "+-": "±"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
FUNCTIONS = {
    "min",
    "max",
    "rint",
    "round",
    "floor",
    "ceil",
    "sum",
    "exp",
    "log",
    "log2",
    "mean",
    "sqrt",
    "div",
    "mod",
    "ln",
}


MATH = '<math displaystyle="true">{}</math>'


class UnreadableError(ValueError):
    """A text that is no formula."""


class _Reader:
    """Reads one formula from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise UnreadableError(text[at:])
            self.tokens.append((str(found.lastgroup), found[0]))
            at = found.end()
        self.at = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def row(self, end: str = "") -> str:
        """Read up to a closing bracket, or to the end."""
        parts: list[str] = []
        while self.peek()[1] != end or self.peek()[0] == "space":
            kind, text = self.peek()
            if kind == "end":
                raise UnreadableError(f"no {end}")
            if kind == "space":
                self.take()
                # Between words, and around a word, there is a space; signs bring their own.
                if self.peek()[0] in ("word", "number") and parts and not parts[-1].startswith("<mo"):
                    parts.append('<mspace width="0.25em"/>')
            elif text in "/":
                self.take()
                self._skip()
                if not parts:
                    raise UnreadableError("nothing above a fraction")
                above = parts.pop()
                parts.append(f"<mfrac>{_bare(above)}{_bare(self.factor())}</mfrac>")
            elif kind == "operator" and text not in _CLOSING:
                self.take()
                if text in ")]}^_":
                    # A half-open interval closes with the other bracket.
                    if text in ")]" and end in ")]" and end:
                        parts.append(_sign(text))
                        return _group(parts)
                    raise UnreadableError(text)
                parts.append(_sign(text))
            else:
                parts.append(self.factor())
        return _group(parts)

    def factor(self) -> str:
        """Read a name, a number or a group with what belongs to it: index, exponent, arguments."""
        kind, text = self.take()
        if kind == "number":
            return self._scripts(_number(text))
        if kind == "word":
            return self._word(text)
        if text == "-":
            return f"<mrow>{_sign('-')}{self.factor()}</mrow>"
        if text in _CLOSING:
            return self._scripts(self._bracketed(text))
        raise UnreadableError(text)

    def _bracketed(self, opening: str) -> str:
        inside = self.row(_CLOSING[opening])
        kind, text = self.take() if self.peek()[1] == _CLOSING[opening] else ("operator", "")
        closing = _sign(text) if kind == "operator" and text else ""
        return f'<mrow class="group">{_sign(opening)}{inside}{closing}</mrow>'

    def _word(self, text: str) -> str:
        if text == "sqrt" and self.peek()[1] == "(":
            self.take()
            inside = self.row(")")
            self.take()
            return f"<msqrt>{inside}</msqrt>"
        if text == "log2":
            name = "<msub><mi>log</mi><mn>2</mn></msub>"
        elif text in FUNCTIONS or len(text.rstrip("'0123456789")) > 1:
            name = f'<mi mathvariant="normal">{escape(text)}</mi>'
        else:
            letter, number = text[0], text[1:].rstrip("'")
            name = f"<msub><mi>{letter}</mi><mn>{number}</mn></msub>" if number else f"<mi>{letter}</mi>"
            name = f"<msup>{name}<mo>′</mo></msup>" if text.endswith("'") else name
        name = self._scripts(name)
        if self.peek()[1] == "(" and (text in FUNCTIONS or len(text) == 1):
            self.take()
            name = f"<mrow>{name}{self._bracketed('(')}</mrow>"
        return name

    def _scripts(self, base: str) -> str:
        below = above = ""
        while True:
            text = self.peek()[1]
            if text == "_" and not below:
                self.take()
                below = _bare(self.factor_alone())
            elif text == "[" and not below and not above:
                self.take()
                below = self.row("]")
                self.take()
            elif text == "^" and not above:
                self.take()
                above = _bare(self.factor())
            else:
                break
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if below:
            return f"<msub>{base}{below}</msub>"
        return f"<msup>{base}{above}</msup>" if above else base

    def factor_alone(self) -> str:
        """Read a name or a group without what stands above it."""
        kind, text = self.take()
        if kind == "word":
            return f"<mi>{escape(text)}</mi>"
        if kind == "number":
            return _number(text)
        if text == "(":
            return self._bracketed(text)
        raise UnreadableError(text)

    def _skip(self) -> None:
        while self.peek()[0] == "space":
            self.take()


def _number(text: str) -> str:
    digits, _, exponent = text.partition("e")
    if not exponent:
        return f"<mn>{digits}</mn>"
    power = f"<mrow>{_sign('-')}<mn>{exponent[1:]}</mn></mrow>" if exponent[0] == "-" else f"<mn>{exponent}</mn>"
    return f"<mrow><mn>{digits}</mn><mo>·</mo><msup><mn>10</mn>{power}</msup></mrow>"


def _sign(text: str) -> str:
    fixed = ' stretchy="false"' if text in "()[]{}|" else ""
    return f"<mo{fixed}>{escape(_SHOWN.get(text, text))}</mo>"


def _group(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def _bare(text: str) -> str:
    """Return a group without its round brackets: a fraction and an exponent need none."""
    found = re.fullmatch(
        r'<mrow class="group"><mo stretchy="false">\(</mo>(.*)<mo stretchy="false">\)</mo></mrow>', text, re.DOTALL
    )
    return found[1] if found else text


def to_mathml(text: str) -> str | None:
    """Return a formula as the inside of a `math` element, or None where it cannot be read as one."""
    try:
        reader = _Reader(text)
        return reader.row()
    except UnreadableError:
        return None


def set_lines(lines: list[str]) -> str:
    """Return the indented lines of a docstring as HTML: a formula per line, or a table where they are columns."""
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines]
    if len(cells) > 2 and len({len(row) for row in cells}) == 1 and len(cells[0]) > 2 and "=" not in "".join(lines):
        rows = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in cells)
        return f'<div class="formulas"><table>{rows}</table></div>'
    # A table may follow formulas.
    shown = "".join(f"<p>{_spread(map(_cell, row))}</p>" for row in cells)
    return f'<div class="formulas">{shown}</div>'


def _spread(cells: Iterable[str]) -> str:
    return '<span class="gap"></span>'.join(cells)


def _cell(text: str) -> str:
    """Return a part of a line as mathematics, if it is none as text."""
    words = re.findall(r"(?<![\w^_])[a-z]{2,}(?!\w*[(\[])", text)
    prose = [word for word in words if word not in FUNCTIONS]
    most = 9 if "=" in text else 4
    if len(prose) > most or "`" in text or (text.endswith(":") and "=" not in text):
        return with_formulas(escape(text, quote=False))
    label, colon, rest = text.partition(": ")
    if colon and label.replace(" ", "").isalpha():
        return f"{label}: {_cell(rest)}"
    inside = to_mathml(text)
    return with_formulas(escape(text, quote=False)) if inside is None else MATH.format(inside)


_NAME = r"(?:[A-Za-z]'?|\d+(?:\.\d+)?|[A-Za-z]+\d?)(?:\[\w+\])?"
_GROUP = r"\((?:[^()]|\([^()]*\))*\)"
_INLINE = re.compile(rf"(?<![\w.]){_NAME}\^(?:-?\w+(?:\[\w+\])?|{_GROUP})|(?<![\w.])[A-Za-z]_(?:[a-z0-9]\b|{_GROUP})")


def with_formulas(text: str, protect: Callable[[str], str] = lambda text: text) -> str:
    """Return prose (as HTML) with its powers and indices set as mathematics; `protect` gets the rest of it."""
    pieces: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        inside = to_mathml(found[0])
        if inside is not None:
            pieces += [protect(text[at : found.start()]), f"<math>{inside}</math>"]
            at = found.end()
    return "".join([*pieces, protect(text[at:])])
