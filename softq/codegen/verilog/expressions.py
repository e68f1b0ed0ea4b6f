"""The expressions of a module as trees: those of Verilog's forms that cores are written in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<literal>\d+'[sS]?[bdhBDH][0-9a-fA-FxX_]+)|(?P<number>\d+)|(?P<name>\$?[A-Za-z_]\w*)"
    r"|(?P<sign>>>>|<<|>>|<=|>=|==|!=|~\^|~\||~&|[-+*<>&|^~?:(){}\[\],]))"
)
_LEVELS = (("|",), ("^", "~^"), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>", ">>>"), ("+", "-"), ("*",))
"""Operators of two operands, those that bind least first."""

_BEFORE = ("~", "-", "&", "|", "^", "~|", "~&")
"""Operators of one operand; all but the first two join the bits of it."""

_BASES = {"b": 2, "d": 10, "h": 16}


@dataclass(frozen=True)
class Expression:
    """A part of an expression.

    Attributes:
        kind: `literal`, `name`, `slice`, `index`, `call`, `join`, `repeat`, `signed`, `choice`, or an operator: those
            of one operand have one argument.
        name: The name of what has one.
        high: Of a slice the highest bit, of a literal its bits, of a repetition how often.
        low: Of a slice the lowest bit, of a literal its value.
        args: Its operands; of a choice the condition first.
    """

    kind: str
    name: str = ""
    high: int = 0
    low: int = 0
    args: tuple[Expression, ...] = ()


def parse(text: str) -> Expression:
    """Return the tree of an expression.

    Raises:
        ValueError: it has a form that cores are not written in.
    """
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._tokens = text, 0, list[tuple[str, str]]()
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"{text[at : at + 20]!r} in {text!r} is no form that cores are written in")
            self._tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            at = found.end()

    def run(self) -> Expression:
        found = self._choice()
        if self._at < len(self._tokens):
            raise ValueError(f"{self._peek()!r} in {self._text!r} is not expected")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        found = self._peek()
        if not found or (expected and found != expected):
            raise ValueError(f"{found!r} in {self._text!r}; expected {expected or 'more'}")
        self._at += 1
        return found

    def _choice(self) -> Expression:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take()
        yes = self._choice()
        self._take(":")
        return Expression("choice", args=(condition, yes, self._choice()))

    def _binary(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            found = Expression(self._take(), args=(found, self._binary(level + 1)))
        return found

    def _unary(self) -> Expression:
        if self._peek() in _BEFORE:
            return Expression(self._take(), args=(self._unary(),))
        return self._primary()

    def _primary(self) -> Expression:
        kind, token = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        self._take()
        if kind == "literal":
            bits, _, rest = token.partition("'")
            # An unknown is whatever makes least: 0 here.
            digits = re.sub(r"[xX]", "0", rest.lstrip("sS")[1:])
            return Expression("literal", high=int(bits), low=int(digits, _BASES[rest.lstrip("sS")[0].lower()]))
        if kind == "number":
            return Expression("literal", high=32, low=int(token))
        if kind == "name":
            return self._named(token)
        if token == "(":
            found = self._choice()
            self._take(")")
            return found
        if token == "{":
            return self._braces()
        raise ValueError(f"{token!r} in {self._text!r} is not expected")

    def _named(self, name: str) -> Expression:
        if self._peek() == "(":
            self._take()
            given = self._choice()
            self._take(")")
            return Expression("signed" if name == "$signed" else "call", name, args=(given,))
        if self._peek() != "[":
            return Expression("name", name)
        self._take()
        first = self._choice()
        if self._peek() == ":":
            self._take()
            low = self._choice()
            self._take("]")
            return Expression("slice", name, first.low, low.low)
        self._take("]")
        if first.kind == "literal":
            return Expression("slice", name, first.low, first.low)
        return Expression("index", name, args=(first,))

    def _braces(self) -> Expression:
        first = self._choice()
        if self._peek() == "{":
            self._take()
            inner = self._list()
            self._take("}")
            return Expression("repeat", high=first.low, args=(Expression("join", args=inner),))
        parts = (first, *(self._list() if self._peek() == "," and self._take(",") else self._end()))
        return Expression("join", args=parts)

    def _list(self) -> tuple[Expression, ...]:
        parts = [self._choice()]
        while self._peek() == ",":
            self._take()
            parts.append(self._choice())
        self._end()
        return tuple(parts)

    def _end(self) -> tuple[Expression, ...]:
        self._take("}")
        return ()


def width_of(expression: Expression, known: Callable[[str], int]) -> int:
    """Return the bits that an expression has by itself; `known` says how many a name has."""
    kind, args = expression.kind, expression.args
    if kind == "literal":
        return expression.high
    if kind in ("name", "call"):
        return known(expression.name)
    if kind == "slice":
        return expression.high - expression.low + 1
    if kind == "index":
        return known(f"{expression.name}[]")
    if kind == "join":
        return sum(width_of(arg, known) for arg in args)
    if kind == "repeat":
        return expression.high * width_of(args[0], known)
    if kind in ("==", "!=", "<", "<=", ">", ">=") or (len(args) == 1 and kind in _BEFORE[2:]):
        return 1
    if kind in ("<<", ">>", ">>>", "signed"):
        return width_of(args[0], known)
    return max(width_of(arg, known) for arg in (args[1:] if kind == "choice" else args))


def is_signed(expression: Expression) -> bool:
    """Say whether an expression is of two's complement; no name in a core is."""
    kind, args = expression.kind, expression.args
    if kind == "signed":
        return True
    if kind in ("<<", ">>", ">>>", "~", "-") and args:
        return is_signed(args[0]) and (len(args) == 1 or kind != "-" or is_signed(args[1]))
    return kind in ("+", "*") and all(map(is_signed, args))
