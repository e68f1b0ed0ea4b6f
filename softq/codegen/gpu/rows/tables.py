"""The tables of a program in a kernel: as shifts, as constants of the module, or as parameters in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from softq.codegen.common.patterns import as_shift, everything
from softq.codegen.gpu.dialect.text import F32, U32, Text, literal
from softq.codegen.gpu.rows.emission import KernelContext
from softq.rowprog.program import Node, Number, Program, param_of, table_of
from softq.rowprog.types import DType, Kind

_SHARED_ENTRIES = 1024
"""Tables up to this size are copied into each block's own memory."""


def held(dtype: DType) -> str:
    """Return the type that a parameter or an entry of a table has in memory."""
    return "u8" if dtype is DType.BOOL else dtype.value


def constants(program: Program, symbol: str) -> str:
    """Return the constant tables of a kernel, to stand before it."""
    lines: list[str] = []
    for k, node in enumerate(_literal_tables(program)):
        name, values = _entries(node)
        entries = ", ".join(literal(value, name) for value in values)
        lines.append(f"CONSTANT {name} {symbol}_table{k}[{len(values)}] = {{{entries}}};\n")
    return "".join(lines)


def read_tables(kernel: KernelContext, program: Program, symbol: str, threads: int) -> None:
    """Write what makes a program's tables ready for a block, and let the kernel know how entries are read.

    Tables of a head are read by the number `head`, which has to be there where they are.
    """
    copied = False
    literals = _literal_tables(program)
    for node in _looked_up(program):
        kind = held(node.dtype)
        if node.op == "param":
            param = param_of(node)
            assert param.size is not None
            pointer, size = f"param_{param.name}", param.size
            if param.scope == "head":
                kernel.tables[node] = lambda at, p=pointer, n=size: f"{p}[head * {n} + {at}]"
                continue
        elif node in literals:
            pointer, size = f"{symbol}_table{literals.index(node)}", len(table_of(node))
        else:
            kernel.tables[node] = _shifted(node)
            continue
        if node.op == "table":
            kind = _entries(node)[0]
        if size <= _SHARED_ENTRIES:
            pointer, copied = _copied(kernel.text, kind, pointer, size, threads), True
        bits = kind == U32 and node.dtype.is_float
        kernel.tables[node] = lambda at, p=pointer, b=bits: f"FLOAT({p}[{at}])" if b else f"{p}[{at}]"
    if copied:
        kernel.text.line("BARRIER();")


def _copied(text: Text, kind: str, pointer: str, size: int, threads: int) -> str:
    name = text.name("table")
    text.line(f"SHARED {kind} {name}[{size}];")
    with text.block(f"for (i32 i = THREAD; i < {size}; i += {threads})"):
        text.line(f"{name}[i] = {pointer}[i];")
    return name


def _looked_up(program: Program) -> list[Node]:
    """Return the tables, each once."""
    return list(dict.fromkeys(node for node in everything(program) if node.kind is Kind.TABLE))


def _literal_tables(program: Program) -> list[Node]:
    """Return the constant tables that are no shifts."""
    return [node for node in _looked_up(program) if node.op == "table" and as_shift(table_of(node)) is None]


def _entries(node: Node) -> tuple[str, Sequence[Number]]:
    """Return the entries of a constant table and their type: floats as their bits, infinities being no literals."""
    values = table_of(node)
    if not node.dtype.is_float:
        return held(node.dtype), values
    return U32, [int(x) for x in np.array(values, np.float32).view(np.uint32)]


def _shifted(node: Node) -> Callable[[str], str]:
    shift = as_shift(table_of(node))
    assert shift is not None
    first = literal(shift.first, f"u{shift.bits}")
    if node.dtype.is_float:
        return lambda at: f"((f32)({first} >> {at}) * {literal(shift.scale, F32)})"
    return lambda at: f"(({node.dtype.value})({first} >> {at}))"
