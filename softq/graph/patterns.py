"""Patterns of operators as text, such as `Where(IsNaN(p), zero, p) | Where(Not(IsNaN(p)), p, zero)`.

A name stands for any value, the same one wherever it is repeated, and `name := Operator(...)` for the result of an
operator; `|` separates alternatives. Operators are those of the default domain, and may have more operands than the
pattern gives them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

import onnx_ir as ir

from softq.graph.queries import operand, producer

Bindings = Mapping[str, ir.Value]
"""What each name of a pattern stands for."""


def match(value: ir.Value | None, pattern: str) -> Bindings | None:
    """Return the first way in which `value` is a pattern, None if it is not."""
    return next(matches(value, pattern), None)


def matches(value: ir.Value | None, pattern: str) -> Iterator[Bindings]:
    """Yield every way in which `value` is a pattern."""
    return _match(value, _parse(pattern), {})


@cache
def _parse(pattern: str) -> ast.expr:
    return ast.parse(pattern, mode="eval").body


def _match(value: ir.Value | None, pattern: ast.expr, bound: Bindings) -> Iterator[Bindings]:
    if isinstance(pattern, ast.Name):
        if value is not None and bound.get(pattern.id, value) is value:
            yield {**bound, pattern.id: value}
    elif isinstance(pattern, ast.NamedExpr):
        for extended in _match(value, pattern.target, bound):
            yield from _match(value, pattern.value, extended)
    elif isinstance(pattern, ast.BinOp):
        yield from _match(value, pattern.left, bound)
        yield from _match(value, pattern.right, bound)
    else:
        assert isinstance(pattern, ast.Call) and isinstance(pattern.func, ast.Name), ast.unparse(pattern)  # noqa: PT018
        node = producer(value, pattern.func.id)
        if node is not None:
            yield from _match_operands(node, pattern.args, bound)


def _match_operands(node: ir.Node, patterns: list[ast.expr], bound: Bindings, index: int = 0) -> Iterator[Bindings]:
    if index == len(patterns):
        yield bound
        return
    for extended in _match(operand(node, index), patterns[index], bound):
        yield from _match_operands(node, patterns, extended, index + 1)
