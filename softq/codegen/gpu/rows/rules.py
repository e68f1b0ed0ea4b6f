"""How each operator is written: the text of its value, of the type that it has."""

from __future__ import annotations

from softq.codegen.common.patterns import rounded
from softq.codegen.gpu.dialect.text import BOOL, F32, I32, U32, bits_of, converted, literal, unsigned
from softq.codegen.gpu.rows.emission import Emission, Rule
from softq.rowprog.ops import Rules
from softq.rowprog.program import Node, number_of, param_of

_NEAREST = 1 << 22
"""`nearest` takes numbers up to this one."""

_LEAST_SCALE = 126
_MANTISSA_BITS = 23


def _param(p: Emission, node: Node) -> str:
    param = param_of(node)
    x = f"{p.kernel.params[param.name]}[{'head' if param.scope == 'head' else '0'}]"
    return f"{x} != 0" if node.dtype.value == BOOL else converted(x, node.dtype.value, p.kernel.type_of(node))


def _at_hand(p: Emission, node: Node) -> str:
    raise AssertionError(f"{node.op} is no computation")


def _arithmetic(sign: str) -> Rule:
    def rule(p: Emission, node: Node) -> str:
        name = p.kernel.type_of(node)
        if name == F32:
            a, b = p.arg(node.args[0]), p.arg(node.args[1])
            return f"PRODUCT({a}, {b})" if node in p.kernel.fenced else f"{a} {sign} {b}"
        # Whatever is cut off the operands, the result is right in any type that holds it; unsigned ones wrap.
        held = name if p.kernel.common(node) == name else unsigned(name)
        return converted(f"{p.arg(node.args[0], held)} {sign} {p.arg(node.args[1], held)}", held, name)

    return rule


def _divide(p: Emission, node: Node) -> str:
    name = p.kernel.common(node)
    a, b = p.arg(node.args[0], name), p.arg(node.args[1], name)
    return f"QUOTIENT({a}, {b})" if name == F32 else converted(f"{a} / {b}", name, p.kernel.type_of(node))


def _extreme(first: int, second: int, word: str) -> Rule:
    def rule(p: Emission, node: Node) -> str:
        name = p.kernel.common(node)
        a, b = p.arg(node.args[0], name), p.arg(node.args[1], name)
        if name == F32 and node.args[1].op == "const" and number_of(node.args[1]) == number_of(node.args[1]):
            return f"{word}({a}, {b})"
        chosen = f"{(a, b)[first]} < {(a, b)[second]} ? {a} : {b}"
        return chosen if name == F32 else converted(chosen, name, p.kernel.type_of(node))

    return rule


def _shift(sign: str) -> Rule:
    def rule(p: Emission, node: Node) -> str:
        name = p.kernel.common(node)
        if p.kernel.interval(node.args[1])[1] >= bits_of(name):
            name = "u64" if name[0] == "u" else "i64"
        amount = p.arg(node.args[1], I32)
        if sign == "<<":
            x = f"{p.arg(node.args[0], unsigned(name))} << {amount}"
            return converted(x, unsigned(name), p.kernel.type_of(node))
        return converted(f"{p.arg(node.args[0], name)} >> {amount}", name, p.kernel.type_of(node))

    return rule


def _compare(sign: str) -> Rule:
    def rule(p: Emission, node: Node) -> str:
        name = p.kernel.common(node)
        return f"{p.arg(node.args[0], name)} {sign} {p.arg(node.args[1], name)}"

    return rule


def _select(p: Emission, node: Node) -> str:
    name = p.kernel.common(node) if node.dtype.is_integer else p.kernel.type_of(node)
    condition, a, b = p.arg(node.args[0]), p.arg(node.args[1], name), p.arg(node.args[2], name)
    return converted(f"{condition} ? {a} : {b}", name, p.kernel.type_of(node))


def _cast(p: Emission, node: Node) -> str:
    arg, new = node.args[0], p.kernel.type_of(node)
    if not (arg.dtype.is_float and node.dtype.is_integer):
        return converted(p.arg(node.args[0]), p.kernel.type_of(arg), new)
    found = rounded(arg)
    low, high = p.kernel.interval(node)
    if found is None or low < -_NEAREST or high > _NEAREST:
        return f"({new})({p.arg(node.args[0])})"
    inner, bounds = found
    x = p.arg(inner.args[0])
    for bound in reversed(bounds):
        x = f"{'LESSER' if bound.op == 'min' else 'GREATER'}({x}, {literal(number_of(bound.args[1]), F32)})"
    return converted(f"nearest({x})", I32, new)


def _lut(p: Emission, node: Node) -> str:
    table = node.args[0]
    x = p.kernel.tables[table](p.arg(node.args[1]))
    return f"{x} != 0" if node.dtype.value == BOOL else converted(x, table.dtype.value, p.kernel.type_of(node))


def _exp2i(p: Emission, node: Node) -> str:
    return f"FLOAT((u32)({p.arg(node.args[0], I32)} + {_LEAST_SCALE + 1}) << {_MANTISSA_BITS})"


def _normalize(p: Emission, node: Node) -> str:
    x = p.arg(node.args[0], U32)
    if node.attrs["part"] == "shift":
        return converted(f"ZEROS({x})", I32, p.kernel.type_of(node))
    return converted(f"{x} << ZEROS({x})", U32, p.kernel.type_of(node))


def _call(word: str) -> Rule:
    return lambda p, node: f"{word}({p.arg(node.args[0])})"


RULES: Rules[Rule] = Rules(
    "the GPU emitter",
    {
        "input": _at_hand,
        "param": _param,
        "const": _at_hand,
        "table": _at_hand,
        "index": _at_hand,
        "length": lambda p, node: converted("length", I32, p.kernel.type_of(node)),
        "add": _arithmetic("+"),
        "sub": _arithmetic("-"),
        "mul": _arithmetic("*"),
        "divide": _divide,
        "min": _extreme(0, 1, "LESSER"),
        "max": _extreme(1, 0, "GREATER"),
        "shl": _shift("<<"),
        "shr": _shift(">>"),
        "lt": _compare("<"),
        "le": _compare("<="),
        "eq": _compare("=="),
        "and": lambda p, node: f"{p.arg(node.args[0])} && {p.arg(node.args[1])}",
        "or": lambda p, node: f"{p.arg(node.args[0])} || {p.arg(node.args[1])}",
        "not": lambda p, node: f"!{p.arg(node.args[0])}",
        "select": _select,
        "cast": _cast,
        "rint": _call("ROUND"),
        "lut": _lut,
        "exp2i": _exp2i,
        "normalize": _normalize,
        "log2": _call("LOG2"),
        "sqrt": _call("ROOT"),
        "exp_minus": _call("exp_minus"),
        "round_to": lambda p, node: p.arg(node.args[1]),
        "assume": _cast,
    },
)
"""All operators of elements and scalars; reductions and scans are written by the passes."""
