"""Mutants that are drawn: one operator, number, name or statement of softq is another one.

`draw` takes lines of softq evenly, by a seed, and one change of each. Lines that mean nothing to a program stay:
documentation, annotations, texts of errors and of help, and what only type checkers read.
"""

from __future__ import annotations

import ast
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, ...]] = {
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Lt: (">=", "<="), ast.LtE: (">", "<"), ast.Gt: ("<=", ">="),
    ast.GtE: ("<", ">"), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|",
}  # fmt: skip
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TYPES = {
    "int64": "int32", "int32": "int64", "int16": "int8", "int8": "uint8", "uint8": "int8", "uint16": "int16",
    "uint32": "int32", "uint64": "int64", "float32": "float64", "float64": "float32", "float16": "bfloat16",
    "bfloat16": "float16",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][\w.:-]*")
_UNSEEN = {"help", "metavar", "summary", "source", "unit", "because", "message", "frozen", "maxsize", "strict"}
"""Keywords of texts that people read, and those that change no result of a program that is right."""


@dataclass(frozen=True, order=True)
class Change:
    """One change of a file.

    Attributes:
        file: Relative to the root of the repository.
        line: The line that it begins in, from 1.
        end: The last line of what is replaced.
        start: Byte of the file that it begins at.
        length: Bytes that are replaced.
        text: What takes their place.
        kind: A few words.
    """

    file: str
    line: int
    end: int
    start: int
    length: int
    text: str
    kind: str

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text.encode() + source[self.start + self.length :]


def draw(root: Path, files: Sequence[str], seed: str, count: int) -> list[Change]:
    """Return changes of as many lines, drawn evenly from all lines that can be changed, in the order drawn."""
    by_line: dict[tuple[str, int], list[Change]] = {}
    for file in sorted(files):
        for change in changes(file, (root / file).read_bytes()):
            by_line.setdefault((file, change.line), []).append(change)
    rng = random.Random(seed)
    drawn: list[Change] = []
    for line in rng.sample(sorted(by_line), len(by_line)):
        of_line = sorted(by_line[line])
        rng.shuffle(of_line)
        drawn += [change for change in of_line if _compiles(change, root)][:1]
        if len(drawn) == count:
            break
    return drawn


def changes(file: str, source: bytes) -> Iterator[Change]:
    """Yield every change of a file; few of them make no program."""
    return _Changes(file, source).all()


def _compiles(change: Change, root: Path) -> bool:
    try:
        compile(change.apply((root / change.file).read_bytes()), change.file, "exec")
    except SyntaxError:
        return False
    return True


class _Changes:
    """The walk over a file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def all(self) -> Iterator[Change]:
        tree = ast.parse(self.source)
        skipped = set(_find_unchanged(tree))
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            if node in skipped:
                continue
            yield from self._of(node)
            # A raise goes as a whole; its text is for people.
            if not isinstance(node, ast.Raise | ast.JoinedStr):
                stack += ast.iter_child_nodes(node)

    def _of(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for other in _COMPARISONS[type(op)]:
                    yield from self._between(left, right, other, "comparison")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(left, right):
                yield from self._between(left, right, _ARITHMETIC[type(op)], "arithmetic")
            case ast.BoolOp(op=op, values=[first, second, *_]):
                yield from self._between(first, second, "or" if isinstance(op, ast.And) else "and", "and/or")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield self._change(node, self._text(operand), "not or sign dropped")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield self._change(test, f"(not ({self._text(test)}))", "condition inverted")
            case ast.comprehension(ifs=[test, *_]):
                yield self._change(test, f"(not ({self._text(test)}))", "condition inverted")
            case ast.Constant(value=value):
                yield from (self._change(node, text, "constant") for text in _other_constants(value))
            case ast.Call(func=ast.Name(id=name) as function) if name in _FUNCTIONS:
                yield self._change(function, _FUNCTIONS[name], "function")
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._change(value, "None", "result dropped")
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
                yield self._change(node, "pass", "statement dropped")
            case ast.Continue() | ast.Break():
                yield self._change(node, "pass", "statement dropped")
            case _:
                return

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.expr) -> str:
        first, last = self._span(node)
        return self.source[first:last].decode()

    def _change(self, node: ast.expr | ast.stmt, text: str, kind: str) -> Change:
        first, last = self._span(node)
        return Change(self.file, node.lineno, node.end_lineno or node.lineno, first, last - first, text, kind)

    def _between(self, left: ast.expr, right: ast.expr, text: str, kind: str) -> Iterator[Change]:
        """Replace the operator between two operands, also around parentheses, unless a comment is there."""
        first, last = self._span(left)[1], self._span(right)[0]
        between = self.source[first:last].decode()
        operator = re.search(r"is\s+not|not\s+in|<<|>>|//|\*\*|[=!<>]=|[-+*/%&|^<>]|\b(is|in|and|or)\b", between)
        if operator is not None and "#" not in between:
            start = first + len(between[: operator.start()].encode())
            line = bisect_right(self.starts, start)
            yield Change(self.file, line, line, start, len(operator[0]), text, kind)


def _find_unchanged(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that mean nothing to a program, with what is in them."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield from (
                s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
            )  # documentation
        match node:
            case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                yield annotation
            case ast.FunctionDef(returns=ast.expr() as annotation):
                yield annotation
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Import() | ast.ImportFrom():
                yield node
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                yield node
            case ast.keyword(arg=name) if name in _UNSEEN:
                yield node
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType")):
                yield node
            case _:
                pass


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(x, ast.JoinedStr) or (isinstance(x, ast.Constant) and isinstance(x.value, str)) for x in operands
    )


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _other_constants(value: object) -> Sequence[str]:
    match value:
        case bool():
            return (str(not value),)
        case int():
            return (str(value + 1), str(value - 1))
        case float():
            return (repr(value * 2) if value else "1.0",)
        case str() if value in _TYPES:
            return (repr(_TYPES[value]),)
        case str() if _WORD.fullmatch(value):
            return (repr(value + "X"),)
        case _:
            return ()
