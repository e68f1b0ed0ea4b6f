"""A row program as a function in C++: a loop for each pass over the row, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softq.codegen.hls.rules import RULES, Value, compare, type_of
from softq.codegen.verilog.simplification import simplify
from softq.errors import RefusalError
from softq.rowprog.ops import names_of
from softq.rowprog.phases import Phase, phases
from softq.rowprog.program import Node, Program, ScanBody, body_of, number_of, result_of, table_of, walk
from softq.rowprog.ranges import prove
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.text import node_to_text, to_text
from softq.rowprog.types import Kind

_OWN = names_of("leaf", "reduction", "loop", "proof") | {"lut", "normalize", "cast"}
_LINE = 110

_NORMALIZE = """\
/* Leading zeros of a number above 0. */
inline ap_uint<5> leading_zeros(ap_uint<32> x) {
    ap_uint<5> zeros = 0;
    for (int bit = 0; bit < 32; ++bit) {
#pragma HLS UNROLL
        if (x[bit]) zeros = 31 - bit;
    }
    return zeros;
}
"""


@dataclass(frozen=True)
class Argument:
    """An argument of the function.

    Attributes:
        name: Its name.
        type: Its type in C++, or that of its elements.
        interval: What its values lie in.
        output: Whether the function writes it.
        row: Whether there is one for each element.
    """

    name: str
    type: str
    interval: Interval
    output: bool
    row: bool


@dataclass(frozen=True)
class Function:
    """A function in C++.

    Attributes:
        name: Its name, and its namespace's.
        text: The header that it stands in.
        arguments: Its arguments behind the length of the row, in their order.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]

    def argument(self, name: str) -> Argument | None:
        """Return an argument by its name; None if there is none."""
        return next((each for each in self.arguments if each.name == name), None)


def write_function(program: Program, name: str, length: int, head: Sequence[str] = ()) -> Function:
    """Return a function `name::run(length, scores, ..., outputs...)` for rows of 1 to `length` elements.

    Args:
        program: An integer program.
        name: The name of the function's namespace and header.
        length: Elements of the longest row.
        head: Lines of comment before it.

    Raises:
        RefusalError: the program has a value that integers cannot compute; the message names it.
        ProofError: the program has no proof for rows of this length.
    """
    return _Writer(program, name, length).write(head)


class _Writer:
    def __init__(self, program: Program, name: str, length: int) -> None:
        for node in program.nodes():
            if node.op not in RULES and node.op not in _OWN:
                raise RefusalError(f"program {program.name}: {node_to_text(program, node)} has no form in integers")
        self._source, self._name, self._length = program, name, length
        self._simplified = simplify(program, prove(program, max_length=length))
        self._program = self._simplified.program
        self._values: dict[Node, Value] = {}
        self._numbers: dict[Node, int] = {}
        self._tables: dict[tuple[str, tuple[int, ...]], str] = {}
        self._lines: list[str] = []
        self._normalizes = False

    def write(self, head: Sequence[str]) -> Function:
        program = self._program
        inputs = {str(n.attrs["name"]): n for n in walk(program.outputs.values()) if n.op == "input"}
        arguments = [self._argument(key, inputs[key], output=False) for key in ("scores", "valid") if key in inputs]
        arguments += [self._argument(key, node, output=True) for key, node in program.outputs.items()]
        passes = phases(program)
        for node in (n for phase in passes for n in phase.stored):
            self._line(1, f"{self._type(node)} stored_{self._number(node)}[{self._length}];")
        for phase in passes:
            self._write_phase(phase)
        for key, node in program.outputs.items():
            if node.kind is not Kind.ROW:
                self._line(1, f"{_local(key)} = {self._value(node).to_type(self._type(node))};")
        declared = ["int length"]
        for each in arguments:
            const = "" if each.output else "const "
            declared.append(
                f"{const}{each.type} {'' if each.row else '&'}{_local(each.name)}{'[]' if each.row else ''}"
            )
        guard = f"SOFTQ_{self._name.upper()}_H"
        comment = [*head, "The program:", "", *to_text(self._source).splitlines()]
        text = [
            *("// " + line if line else "//" for line in comment),
            *(
                "",
                f"#ifndef {guard}",
                f"#define {guard}",
                "",
                '#include "ap_int.h"',
                "",
                f"namespace {self._name} {{",
                "",
            ),
            *(self._tables_text()),
            *([_NORMALIZE] if self._normalizes else []),
            f"/* Of a row of 1 to {self._length} elements. */",
            f"inline void run({', '.join(declared)}) {{",
            *self._lines,
            *("}", "", "}", "", "#endif", ""),
        ]
        return Function(self._name, "\n".join(text), tuple(arguments))

    # Values

    def _argument(self, name: str, node: Node, *, output: bool) -> Argument:
        return Argument(name, self._type(node), self._interval(node), output, node.kind is Kind.ROW)

    def _interval(self, node: Node) -> Interval:
        return self._simplified.intervals[node]

    def _type(self, node: Node) -> str:
        return type_of(self._interval(node))

    def _number(self, node: Node) -> int:
        return self._numbers.setdefault(node, len(self._numbers))

    def _value(self, node: Node) -> Value:
        """Return a value that is at hand."""
        if node.op == "const":
            return Value(str(int(number_of(node))), self._interval(node), held=False)
        if node.op in ("index", "length"):
            return Value("at" if node.op == "index" else "length", self._interval(node), held=False)
        return self._values[node]

    def _line(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _let(self, depth: int, node: Node, expression: str) -> None:
        name = f"v{self._number(node)}"
        self._line(depth, f"const {self._type(node)} {name} = {expression};")
        self._values[node] = Value(name, self._interval(node))

    def _compute(self, depth: int, node: Node) -> None:
        if node.op in ("const", "table", "index", "length", "input"):
            return
        result = self._type(node)
        if node.op == "lut":
            table = self._table(node.args[0])
            text = f"{table}[{self._value(node.args[1]).text}]"
        elif node.op == "normalize":
            self._normalizes = True
            x = self._value(node.args[0]).text
            wide = f"ap_uint<32>({x})"
            text = f"leading_zeros({x})"
            if node.attrs["part"] == "mantissa":
                text = f"{wide} << {text}"
        else:
            text = RULES[node.op]([self._value(arg) for arg in node.args], result)
        self._let(depth, node, text)

    def _table(self, node: Node) -> str:
        entries = tuple(int(v) for v in table_of(node))
        kind = type_of(Interval(min(entries), max(entries)))
        return self._tables.setdefault((kind, entries), f"table_{len(self._tables)}")

    def _tables_text(self) -> Iterable[str]:
        for (kind, entries), name in self._tables.items():
            yield f"static const {kind} {name}[{len(entries)}] = {{"
            line = "   "
            for entry in entries:
                if len(line) + len(f" {entry},") > _LINE:
                    yield line
                    line = "   "
                line += f" {entry},"
            yield from (line, "};", "")

    # Passes

    def _write_phase(self, phase: Phase) -> None:
        for node in phase.setup:
            self._compute(1, node)
        plain = [node for node in phase.reductions if node.op != "scan"]
        scans = self._scans([*phase.rows, *phase.reductions])
        for node in plain:
            # An extreme begins with the first element, a sum with nothing.
            self._line(1, f"{self._type(node)} r{self._number(node)} = 0;")
        for scan in scans:
            # What a step leaves may need a bit more than what the next one finds: there is none behind the last.
            for state, pair, init in zip(scan.states, scan.pairs, scan.results[0].args, strict=False):
                self._line(1, f"{type_of(*map(self._interval, pair))} {state} = {self._value(init).text};")
        self._line(1, "for (int at = 0; at < length; ++at) {")
        self._lines += [f"#pragma HLS LOOP_TRIPCOUNT min=1 max={self._length}", "#pragma HLS PIPELINE II=1"]
        for node in phase.loads:
            name = _local(str(node.attrs["name"])) if node.op == "input" else f"stored_{self._number(node)}"
            self._let(2, node, f"{name}[at]")
        waiting = list(scans)
        for node in (*phase.rows, *phase.reductions):
            if node.op == "scan":
                for scan in [scan for scan in waiting if node in scan.results]:
                    self._step(scan)
                    waiting.remove(scan)
            elif node in plain:
                self._reduce(node)
            else:
                self._compute(2, node)
        for node in phase.stored:
            self._line(2, f"stored_{self._number(node)}[at] = {self._value(node).text};")
        for key in phase.outputs:
            node = self._program.outputs[key]
            self._line(2, f"{_local(key)}[at] = {self._value(node).to_type(self._type(node))};")
        self._line(1, "}")
        for node in plain:
            self._values[node] = Value(f"r{self._number(node)}", self._interval(node))
        for scan in scans:
            for node in scan.results:
                if result_of(node) < len(scan.states):
                    self._values[node] = Value(scan.states[result_of(node)], self._interval(node), held=False)
        for node in phase.scalars:
            self._compute(1, node)

    def _reduce(self, node: Node) -> None:
        name, value = f"r{self._number(node)}", self._value(node.args[0])
        if node.op == "row_sum":
            self._line(2, f"{name} += {value.text};")
            return
        better = compare(value, "<" if node.op == "row_min" else ">", Value(name, self._interval(node)))
        self._line(2, f"if (at == 0 || {better}) {name} = {value.text};")

    # Scans

    def _scans(self, nodes: Iterable[Node]) -> list[_Scan]:
        found: dict[tuple[ScanBody, tuple[Node, ...]], list[Node]] = {}
        for node in nodes:
            if node.op == "scan":
                found.setdefault((body_of(node), node.args), []).append(node)
        return [
            _Scan(body, [f"s{self._number(results[0])}_{at}" for at in range(len(body.states))], results)
            for (body, _), results in found.items()
        ]

    def _step(self, scan: _Scan) -> None:
        """Write the step of a scan at an element."""
        body = scan.body
        for holder, state in zip(body.states, scan.states, strict=True):
            self._let(2, holder, f"{self._type(holder)}({state})")
        for holder, arg in zip(body.elements, scan.results[0].args[len(body.states) :], strict=False):
            self._values[holder] = self._value(arg)
        for node in walk([*body.next, *body.outputs], self._values):
            self._compute(2, node)
        for state, node in zip(scan.states, body.next, strict=True):
            self._line(2, f"{state} = {self._value(node).text};")
        for node in scan.results:
            position = result_of(node) - len(body.states)
            if position >= 0:
                self._values[node] = self._value(body.outputs[position])


@dataclass(frozen=True)
class _Scan:
    """A scan of a pass: its step, the variables of its states, and those of its results that are wanted."""

    body: ScanBody
    states: list[str]
    results: list[Node]

    @property
    def pairs(self) -> tuple[tuple[Node, Node], ...]:
        """Each state before a step, and after it."""
        return tuple(zip(self.body.states, self.body.next, strict=True))


def _local(name: str) -> str:
    """Return the name of an argument; no name of the function's own is like it."""
    return f"{name}_"
