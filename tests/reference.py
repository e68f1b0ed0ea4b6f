"""Row programs as combinational Verilog for rows of a fixed length: what a core is proved to be equal to.

Every value has 64 bits and a sign, and each operator is what `softq.rowprog.ops` says, so nothing is shared with the
generator of cores but the program; that is the method's own, before it is tabulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from softq.rowprog import Kind, Program
from softq.rowprog.program import Node, number_of, table_of

WIDTH = 64

_OPERATORS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "add": lambda a: f"{a[0]} + {a[1]}",
    "sub": lambda a: f"{a[0]} - {a[1]}",
    "mul": lambda a: f"{a[0]} * {a[1]}",
    "min": lambda a: f"{a[0]} < {a[1]} ? {a[0]} : {a[1]}",
    "max": lambda a: f"{a[1]} < {a[0]} ? {a[0]} : {a[1]}",
    "shl": lambda a: f"{a[0]} <<< {a[1]}",
    "shr": lambda a: f"{a[0]} >>> {a[1]}",
    "lt": lambda a: f"{a[0]} < {a[1]} ? 1 : 0",
    "le": lambda a: f"{a[0]} <= {a[1]} ? 1 : 0",
    "eq": lambda a: f"{a[0]} == {a[1]} ? 1 : 0",
    "and": lambda a: f"{a[0]} & {a[1]}",
    "or": lambda a: f"{a[0]} | {a[1]}",
    "not": lambda a: f"{a[0]} == 0 ? 1 : 0",
    "select": lambda a: f"{a[0]} != 0 ? {a[1]} : {a[2]}",
    "cast": lambda a: a[0],
    "assume": lambda a: a[0],
}

_JOINS: Mapping[str, Callable[[str, str], str]] = {
    "row_sum": lambda a, b: f"({a} + {b})",
    "row_max": lambda a, b: f"({a} > {b} ? {a} : {b})",
    "row_min": lambda a, b: f"({a} < {b} ? {a} : {b})",
}


def reference(program: Program, name: str, length: int) -> str:
    """Return a module that computes a program of one row: `scores` and `valid` in, an output for each of the program's.

    An output per element holds all of them, the first one lowest.
    """
    bits = program.scores.bits
    ports = [f"input wire [{bits * length - 1}:0] scores", f"input wire [{length - 1}:0] valid"]
    lines: list[str] = []
    names: dict[Node, list[str]] = {}
    for at, node in enumerate(program.nodes()):
        if node.kind is Kind.TABLE:
            names[node] = [f"v{at}"]
            lines += _table(f"v{at}", [int(entry) for entry in table_of(node)])
            continue
        elements = range(length) if node.kind is Kind.ROW else range(1)
        names[node] = [f"v{at}_{element}" for element in elements]
        for element, wire in zip(elements, names[node], strict=True):
            given = [names[arg][element if arg.kind is Kind.ROW else 0] for arg in node.args]
            text = _expression(program, node, given, [names[arg] for arg in node.args], element, length)
            lines.append(f"wire signed [{WIDTH - 1}:0] {wire} = {text};")
    for output, node in program.outputs.items():
        wires = names[node]
        ports.append(f"output wire [{WIDTH * len(wires) - 1}:0] {output}")
        lines.append(f"assign {output} = {{{', '.join(reversed(wires))}}};")
    head = f"module {name} ({', '.join(ports)});"
    return "\n".join([head, *(f"    {line}" for line in lines), "endmodule", ""])


def _expression(
    program: Program, node: Node, given: Sequence[str], rows: Sequence[Sequence[str]], element: int, length: int
) -> str:
    bits = program.scores.bits
    if node.op == "input":
        part = f"scores[{bits * element + bits - 1}:{bits * element}]"
        if node.attrs["name"] == "valid":
            return f"valid[{element}] ? 1 : 0"
        return f"$signed({part})" if program.scores.is_signed else f"$signed({{1'b0, {part}}})"
    if node.op == "const":
        value = int(number_of(node))
        return f"-64'sd{-value}" if value < 0 else f"64'sd{value}"
    if node.op in ("length", "index"):
        return f"64'sd{length if node.op == 'length' else element}"
    if node.op == "lut":
        return f"{given[0]}({given[1]})"
    if node.op in _JOINS:
        found = rows[0][0]
        for other in rows[0][1:]:
            found = _JOINS[node.op](found, other)
        return found
    return _OPERATORS[node.op](given)


def _table(name: str, entries: Sequence[int]) -> list[str]:
    cases = [f"{at}: {name} = {entry};" for at, entry in enumerate(entries)]
    return [
        f"function signed [{WIDTH - 1}:0] {name}(input signed [{WIDTH - 1}:0] at);",
        f"    case (at) {' '.join(cases)} default: {name} = 64'bx; endcase",
        "endfunction",
    ]
