"""How each operator is emitted: from operands that are there to an expression in the type that its value has."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr

from softq.codegen.common import carriers
from softq.codegen.cpu.rows import float_bits, floats, integers, mve
from softq.codegen.cpu.rows.emission import Emission, Rule
from softq.codegen.cpu.rows.tir import BOOL, F32, F64, bits_of, broadcast, cast, extreme, fence, lane_numbers, type_name
from softq.rowprog.ops import Rules
from softq.rowprog.program import Node, number_of, param_of

# Leaves


def _param(e: Emission, node: Node) -> Expr:
    param, memory = param_of(node), e.kernel.params[param_of(node).name]
    at = e.kernel.head if param.scope == "head" else tirx.const(0, e.kernel.index)
    x = memory.load(at, 1)
    if type_name(node.dtype) == BOOL:
        return tirx.NE(x, tirx.const(0, memory.name))
    return x if memory.name == F32 else e.convert(x, memory.name, e.type_of(node))


def _index(e: Emission, node: Node) -> Expr:
    assert e.at is not None
    positions = lane_numbers(e.at, e.kernel.index, e.lanes)
    if e.masked and e.counted is not None:
        positions = e.share(tirx.Select(e.counted.get(), positions, e.const(0, e.kernel.index)), e.kernel.index)
    return cast(positions, e.kernel.index, e.type_of(node), e.lanes)


def _length(e: Emission, node: Node) -> Expr:
    return cast(e.kernel.length, e.kernel.index, "int32", 1)


def _at_hand(e: Emission, node: Node) -> Expr:
    raise AssertionError(f"{node.op} is no computation")


# Arithmetic


def hidden(e: Emission, node: Node, at: int) -> Expr:
    """Return a float operand; TVM must not see what it takes for integers'.

    That is x * 0, 0 / x, x / constant, x - x, and (x + y) - y.
    """
    x, arg = e.operand(node, at), node.args[at]
    hide = arg.op == "const" and (number_of(arg) == 0 or (node.op == "divide" and at == 1))
    hide |= at == 1 and arg is node.args[0]
    hide |= at == 0 and node.op == "sub" and arg.op == "add" and node.args[1] in arg.args
    return fence(x, F32, e.lanes) if hide else x


def _arithmetic(constructor: Callable[[Expr, Expr], Expr]) -> Rule:
    def rule(e: Emission, node: Node) -> Expr:
        name = e.modular(node)
        if name == F32:
            return constructor(hidden(e, node, 0), hidden(e, node, 1))
        return e.convert(constructor(*(e.operand(node, at, name) for at in (0, 1))), name, e.type_of(node))

    return rule


def _mul(e: Emission, node: Node) -> Expr:
    wide = integers.product(e, node, e.modular(node)) if node.dtype.is_integer else None
    if wide is not None:
        return e.convert(wide, e.modular(node), e.type_of(node))
    product = _arithmetic(tirx.Mul)(e, node)
    return fence(product, F32, e.lanes) if node in e.kernel.fenced else product


def _divide(e: Emission, node: Node) -> Expr:
    return _arithmetic(tirx.Div)(e, node) if node.dtype.is_float else integers.divide(e, node)


def _extreme(first: int, second: int) -> Rule:
    def rule(e: Emission, node: Node) -> Expr:
        name = e.common(node)
        a, b = e.operand(node, 0, name), e.operand(node, 1, name)
        if node.args[0] in e.kernel.starts:
            return a
        if name == F32 and e.processor.has_extremes and node.args[1].op == "const":
            return extreme(first == 1, a, b)  # Where the first is NaN, it is the number.
        if name == F32 and e.processor.calls_for_floats and first == 1 and _is_not_negative(node.args[1]):
            return tirx.Select(float_bits.above(e, a, number_of(node.args[1])), a, b)
        chosen = tirx.Select(tirx.LT((a, b)[first], (a, b)[second]), a, b)
        return chosen if node.dtype.is_float else e.convert(chosen, name, e.type_of(node))

    return rule


def _is_not_negative(node: Node) -> bool:
    return node.op == "const" and number_of(node) >= 0


# Logic


def _compare(constructor: Callable[[Expr, Expr], Expr]) -> Rule:
    def rule(e: Emission, node: Node) -> Expr:
        name = e.common(node)
        a, b = e.operand(node, 0, name), _right(e, node, name)
        if name == BOOL:
            yes, no = e.const(1, "int8"), e.const(0, "int8")
            a, b = tirx.Select(a, yes, no), tirx.Select(b, yes, no)
        elif node.args[0] is node.args[1] and name == F32:
            # The test for NaN. TVM takes a number for equal to itself, so it is asked for its bound instead.
            if e.processor.has_mve and node.op != "lt":
                return tirx.EQ(fence(a, F32, e.lanes), a)  # where a bound takes two comparisons
            infinity = e.const(float("inf"), F32)
            a, b = (a, infinity) if node.op != "lt" else (infinity, infinity)
            return tirx.LE(a, b) if node.op != "lt" else tirx.LT(a, b)
        return constructor(a, b)

    return rule


def _right(e: Emission, node: Node, name: str) -> Expr:
    """Return what is compared with: a number that no element reaches may be too wide for the elements' type."""
    bound = carriers.limit(node, e.kernel.proof) if e.bits else None
    if bound is None:
        return e.operand(node, 1, name)
    wide = type_name(node.args[1].dtype)
    x, most = e.of_row(node.args[1]), tirx.const(bound, wide)
    return broadcast(cast(tirx.Select(tirx.LT(x, most), x, most), wide, name, 1), e.lanes)


def _logic(constructor: Callable[[Expr, Expr], Expr]) -> Rule:
    return lambda e, node: constructor(e.operand(node, 0), e.operand(node, 1))


def _select(e: Emission, node: Node) -> Expr:
    name = e.common(node)
    condition, a, b = e.operand(node, 0), e.operand(node, 1, name), e.operand(node, 2, name)
    if name == BOOL:
        return tirx.Or(tirx.And(condition, a), tirx.And(tirx.Not(condition), b))
    chosen = tirx.Select(condition, a, b)
    return chosen if node.dtype.is_float else e.convert(chosen, name, e.type_of(node))


# Conversion and lookup


def _cast(e: Emission, node: Node) -> Expr:
    arg = node.args[0]
    old, new, x = e.type_of(arg), e.type_of(node), e.operand(node, 0)
    if old == new:
        return x
    if new == F32:
        return floats.from_integer(e, x, old)
    return floats.to_integer(e, node, x, new) if old == F32 else e.convert(x, old, new)


def _lut(e: Emission, node: Node) -> Expr:
    table, at = e.kernel.tables[node.args[0]], e.type_of(node.args[1])
    result = e.type_of(node)
    held = "uint8" if result == BOOL else result
    if e.processor.has_mve and e.counted is not None and not table.is_shift(at) and bits_of(held) * e.lanes == mve.BITS:
        lanes = cast(e.operand(node, 1), at, f"int{bits_of(held)}", e.lanes)
        found = mve.gather(table.memory, table.start, lanes, e.counted.get(), held, e.lanes)
        return tirx.NE(found, e.const(0, held)) if result == BOOL else found
    x = table.look_up(e.operand(node, 1), at, held, e.lanes, e.processor.is_x86 and result not in (BOOL, F64))
    return tirx.NE(x, e.const(0, held)) if result == BOOL else x


RULES: Rules[Rule] = Rules(
    "the CPU emitter",
    {
        "input": _at_hand,
        "param": _param,
        "const": _at_hand,
        "table": _at_hand,
        "index": _index,
        "length": _length,
        "add": _arithmetic(tirx.Add),
        "sub": _arithmetic(tirx.Sub),
        "mul": _mul,
        "divide": _divide,
        "min": _extreme(0, 1),
        "max": _extreme(1, 0),
        "shl": integers.shift,
        "shr": integers.shift,
        "lt": _compare(tirx.LT),
        "le": _compare(tirx.LE),
        "eq": _compare(tirx.EQ),
        "and": _logic(tirx.And),
        "or": _logic(tirx.Or),
        "not": lambda e, node: tirx.Not(e.operand(node, 0)),
        "select": _select,
        "cast": _cast,
        "rint": floats.rint,
        "lut": _lut,
        "exp2i": floats.exp2i,
        "normalize": integers.normalize,
        "log2": floats.log2,
        "sqrt": floats.sqrt,
        "exp_minus": floats.exp_minus,
        "round_to": lambda e, node: e.operand(node, 1),
        "assume": lambda e, node: e.operand(node, 0, e.type_of(node)),
    },
)
"""All operators of elements and scalars; reductions and scans are in `REDUCTIONS` and `scan`."""
