"""Sizes known only at run time: TVM's integer expressions, and the built program's.

Shape arithmetic of exported models (Shape, Gather, Concat, Mul, Div, ...) is computed while importing, on arrays whose
elements are numbers or TVM expressions over the dimensions of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import tvm
from tvm import tirx
from tvm.ir import Expr

from softq.artifact.program import Op, Operator, Size, evaluate
from softq.errors import RefusalError

T = TypeVar("T")
Dim: TypeAlias = "int | Expr"
"""A number or TVM's int64 expression."""


def plain(dim: Dim) -> Dim:
    """Return a constant as `int`, anything else as it is."""
    return int(dim.value) if isinstance(dim, tirx.IntImm) else dim


def expression(dim: Dim) -> Expr:
    """Return a dimension as TVM's int64 expression."""
    return tirx.IntImm("int64", dim) if isinstance(dim, int) else dim


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product; constants are multiplied first."""
    constant, rest = _factors(dims)
    result: Dim = constant
    if constant == 0:
        return 0
    for factor in rest:
        result = factor if isinstance(result, int) and result == 1 else expression(result) * factor
    return result


def quotient(dividend: Sequence[Dim], divisor: Sequence[Dim]) -> Dim:
    """Return the product of `dividend` over that of `divisor`, which divides it; common factors are cancelled."""
    above, numerators = _factors(dividend)
    below, denominators = _factors(divisor)
    left: list[Expr] = []
    for factor in numerators:
        same = next((d for d in denominators if equal(d, factor)), None)
        if same is None:
            left.append(factor)
        else:
            denominators.remove(same)
    if below and above % below == 0:
        above, below = above // below, 1
    top, bottom = product([above, *left]), product([below, *denominators])
    if isinstance(top, int) and isinstance(bottom, int):
        return top // bottom if bottom else 0
    if isinstance(bottom, int) and bottom in (0, 1):
        return top if bottom else 0  # TVM refuses to divide by a 0 that it sees.
    return simplified(tirx.floordiv(expression(top), expression(bottom)))


def _factors(dims: Iterable[Dim]) -> tuple[int, list[Expr]]:
    constant, rest = 1, []
    todo = [plain(d) for d in dims]
    while todo:
        dim = plain(todo.pop(0))
        if isinstance(dim, int):
            constant *= dim
        elif isinstance(dim, tirx.Mul):
            todo = [dim.a, dim.b, *todo]
        else:
            rest.append(dim)
    return constant, rest


def equal(a: Dim, b: Dim) -> bool:
    """Say whether two dimensions are the same expression after simplification."""
    a, b = plain(a), plain(b)
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a.same_as(b) or plain(simplified(a - b)) == 0


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Say whether two shapes are equal, axis by axis."""
    return len(a) == len(b) and all(map(equal, a, b))


def simplified(dim: Dim) -> Dim:
    """Return a simpler form of the same value, for dimensions that are not negative."""
    if isinstance(dim, int):
        return dim
    analyzer = tvm.sym.Analyzer()
    for var in tirx.analysis.undefined_vars(tirx.Evaluate(dim), []):
        analyzer.update(var, tvm.sym.ConstIntBound(0, 1 << 40))
    return plain(analyzer.simplify(dim))


def least(dim: Dim, shortest: int = 0) -> int:
    """Return a number that a dimension is never below, where no dimension in it is below `shortest`."""
    if isinstance(dim, int):
        return dim
    analyzer = tvm.sym.Analyzer()
    for var in tirx.analysis.undefined_vars(tirx.Evaluate(dim), []):
        analyzer.update(var, tvm.sym.ConstIntBound(shortest, 1 << 40))
    return int(analyzer.const_int_bound(dim).min_value)


_OPERATORS: Mapping[type, Operator] = {
    tirx.Add: "add",
    tirx.Sub: "sub",
    tirx.Mul: "mul",
    tirx.FloorDiv: "floordiv",
    tirx.FloorMod: "floormod",
    tirx.Min: "min",
    tirx.Max: "max",
}


_KINDS: Mapping[Operator, type] = {"room": tirx.Max, **{operator: kind for kind, operator in _OPERATORS.items()}}


def size(dim: Dim, known: Mapping[int, Size] | None = None) -> Size:
    """Return a dimension as the built program has it.

    Args:
        dim: The dimension.
        known: What variables stand for, by `key`; the others stand for the dimension of their name.

    Raises:
        RefusalError: it is computed by something other than sums, products, floors of quotients, least and greatest.
    """
    dim = plain(dim)
    if isinstance(dim, int):
        return dim
    if isinstance(dim, tirx.Var):
        return (known or {}).get(key(dim), str(dim.name))
    if isinstance(dim, tirx.Cast):
        return size(dim.value, known)
    operator = _OPERATORS.get(type(dim))
    if operator is None:
        raise RefusalError(f"a size is computed by {dim}, which a built model cannot")
    return Op(operator, size(dim.a, known), size(dim.b, known))


def resolve(size: Size, names: Callable[[str], T], combine: Callable[[Operator, T | int, T | int], T | int]) -> T | int:
    """Return a size in other terms: `names` replaces a dimension, `combine` an operation."""
    if isinstance(size, Op):
        return combine(size.operator, resolve(size.a, names, combine), resolve(size.b, names, combine))
    return names(size) if isinstance(size, str) else size


def operate(operator: Operator, a: Dim, b: Dim) -> Expr:
    """Return an operation on two dimensions."""
    return _KINDS[operator](expression(a), expression(b))


def same_size(a: Size, b: Size) -> bool:
    """Say whether two sizes of the built program are proved to be equal."""
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    names: dict[str, Expr] = {}
    x, y = (resolve(s, lambda name: names.setdefault(name, tirx.Var(name, "int64")), operate) for s in (a, b))
    return equal(x, y) or quotient([x], [y]) == quotient([y], [x]) == 1


def key(var: tirx.Var) -> int:
    """Return what tells variables apart: names may be alike."""
    return hash(var.__chandle__())


def computed(operator: Operator, a: Size, b: Size) -> Size:
    """Return an operation on two sizes of the built program, as a number if both are."""
    return evaluate(Op(operator, a, b), {}) if isinstance(a, int) and isinstance(b, int) else Op(operator, a, b)


def ceiling(a: Size, b: Size) -> Size:
    """Return how many parts of size `b` cover `a`."""
    above = b - 1 if isinstance(b, int) else Op("sub", b, 1)
    return computed("floordiv", computed("add", a, above), b)


def multiplied(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes of the built program."""
    result: Size = 1
    for factor in sizes:
        if isinstance(result, int) and isinstance(factor, int):
            result *= factor
        elif result != 1 and factor != 1:
            result = Op("mul", result, factor)
        elif factor != 1:
            result = factor
    return result


def is_number(expr: object) -> bool:
    """Say whether an argument of a TIR function is a number, which no tensor has as its size."""
    return isinstance(getattr(expr, "ty", None), tvm.ir.PrimType) and not isinstance(expr, tvm.ir.GenericConst)
