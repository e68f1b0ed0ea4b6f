"""Programs as text, for people: `softq methods NAME` and the documentation print it."""

from __future__ import annotations

from softq.rowprog.program import Node, Program, body_of, number_of, param_of, table_of, walk
from softq.rowprog.types import Kind


def to_text(program: Program) -> str:
    """Return the program, one value per line; the same program always gives the same text."""
    inputs = [f"scores: row {program.scores.value}"] + (["valid: row bool"] if program.masked else [])
    results = [f"{name}: {node.kind.value} {node.dtype.value}" for name, node in program.outputs.items()]
    title = f"program {program.name} {program.structure}".rstrip()
    lines = [f"{title}({', '.join(inputs)}) -> ({', '.join(results)}){' contract' if program.contract else ''}"]
    names: dict[int, str] = {}
    _write_block(program.nodes(), names, lines, "  ")
    lines += [f"  return {name} = {_name_of(node, names)}" for name, node in program.outputs.items()]
    return "\n".join(lines) + "\n"


def node_to_text(program: Program, node: Node) -> str:
    """Return one value of the program as a line, named as in the program's text."""
    names: dict[int, str] = {}
    _write_block(program.nodes(), names, [], "")
    if id(node) not in names:
        return _name_of(node, names)
    return f"{names[id(node)]}: {node.kind.value} {node.dtype.value} = {_to_expression(node, names)}"


def _write_block(nodes: tuple[Node, ...], names: dict[int, str], lines: list[str], indent: str) -> None:
    for node in nodes:
        if id(node) in names or node.op in ("const", "input", "table", "index", "length"):
            continue
        if node.op == "scan":
            body = body_of(node)
            if not any(id(n) in names for n in body.next):
                lines.append(f"{indent}step {', '.join(_name_of(n, names) for n in (*body.states, *body.elements))}:")
                _write_block(tuple(walk((*body.next, *body.outputs))), names, lines, indent + "  ")
                lines.append(f"{indent}  next {', '.join(_name_of(n, names) for n in (*body.next, *body.outputs))}")
        names[id(node)] = f"%{len(names)}"
        lines.append(f"{indent}{names[id(node)]}: {node.kind.value} {node.dtype.value} = {_to_expression(node, names)}")


def _to_expression(node: Node, names: dict[int, str]) -> str:
    args = [_name_of(arg, names) for arg in node.args]
    if node.op == "param":
        param = param_of(node)
        size = "" if param.size is None else f"[{param.size}]"
        return f"param {param.name}{size} a {param.scope}, in [{param.low!r}, {param.high!r}]: {param.meaning}"
    if node.op == "assume":
        low, high = repr(number_of(node, "low")), repr(number_of(node, "high"))
        return f"assume {args[0]} in [{low}, {high}] because {node.attrs['because']}"
    if node.op == "exp_minus":
        return f"exp_minus {args[0]} by {args[1]}"
    if node.op == "round_to":
        return f"round_to {node.attrs['format']} {args[0]} by {args[1]}"
    if node.op == "group_max":
        args.append(f"size={node.attrs['size']}")
    if node.op == "scan":
        args.append(f"result={node.attrs['result']}")
    if node.op == "normalize":
        args.append(str(node.attrs["part"]))
    return f"{node.op} {', '.join(args)}"


def _name_of(node: Node, names: dict[int, str]) -> str:
    if node.op == "const":
        return repr(number_of(node))
    if node.op == "table":
        values = table_of(node)
        shown = [repr(v) for v in (values if len(values) <= 16 else (*values[:6], *values[-2:]))]
        if len(values) > 16:
            shown.insert(6, "...")
        return f"[{' '.join(shown)}]"
    if node.op == "input":
        return str(node.attrs["name"])
    if node.op in ("index", "length"):
        return node.op
    assert node.kind is not Kind.TABLE or node.op == "param", node
    return names[id(node)]
