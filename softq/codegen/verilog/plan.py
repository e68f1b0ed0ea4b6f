"""What a core is made of, before it is written: its passes, what stands between them, and its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from softq.codegen.verilog.axi_lite import register_ports
from softq.codegen.verilog.module import Port
from softq.codegen.verilog.registers import place_tables
from softq.codegen.verilog.rules import RULES
from softq.codegen.verilog.signals import shape
from softq.codegen.verilog.simplification import Simplified, simplify
from softq.codegen.verilog.storage import choose_phases, values_kept
from softq.errors import RefusalError, UsageError
from softq.rowprog.ops import names_of
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, Param, Program, body_of, walk
from softq.rowprog.ranges import Interval, prove
from softq.rowprog.text import node_to_text
from softq.rowprog.types import DType, Kind

LANES = (1, 2, 4, 8)
PRODUCTS = ("parallel", "serial")
LONGEST = 1 << 16
MOST_HEADS = 256
_WIDEST_PACKED = 4

_OWN = frozenset(("mul", "divide", "lut", "normalize", "const", "table", "param", "input", "length", "scan"))
"""Operators that have a form of their own beside those of `RULES`."""


@dataclass(frozen=True)
class Settings:
    """What a core is built for.

    Attributes:
        length: Elements of the longest row.
        lanes: Elements of a beat.
        reset: Whether there is a synchronous reset; else registers begin with what the device is configured with.
        heads: Heads that have tables of their own behind the register port.
        packed: Whether results of at most 4 bits share bytes, in fields of 1, 2 or 4 bits.
        cut: Whether a row that is too long is cut and marked; without, the core waits for ever where one comes.
        products: `parallel`, where each product of elements has multipliers and an element comes each clock, or
            `serial`, where all products of the core share one unit that adds for a bit at a clock.
        constants: Whether a number that is the same for every row is in the stream of numbers.
    """

    length: int
    lanes: int = 1
    reset: bool = True
    heads: int = 1
    packed: bool = False
    cut: bool = False
    products: str = "parallel"
    constants: bool = True

    def __post_init__(self) -> None:
        """Refuse what no core can be built for."""
        if self.lanes not in LANES:
            raise UsageError(f"lanes is {self.lanes}; allowed is {', '.join(map(str, LANES))}")
        if self.products not in PRODUCTS:
            raise UsageError(f"products is {self.products!r}; allowed is {' or '.join(PRODUCTS)}")
        if self.is_serial and self.lanes > 1:
            raise UsageError(f"products=serial takes one element after the other; lanes is {self.lanes}, allowed is 1")
        if not 1 <= self.length <= LONGEST:
            raise UsageError(f"length is {self.length}; allowed is 1 to {LONGEST}")
        if not 1 <= self.heads <= MOST_HEADS:
            raise UsageError(f"heads is {self.heads}; allowed is 1 to {MOST_HEADS}")

    @property
    def is_serial(self) -> bool:
        """Whether all products share one unit."""
        return self.products == "serial"

    @property
    def beats(self) -> int:
        """Beats of the longest row."""
        return -(-self.length // self.lanes)

    @property
    def elements(self) -> int:
        """Elements that a row may have: a row is cut behind a whole beat."""
        return self.beats * self.lanes if self.cut else self.length


@dataclass(frozen=True)
class Field:
    """A value of each lane in a stream or a memory.

    Attributes:
        node: The value.
        width: Its bits.
        signed: Whether it has a sign.
    """

    node: Node
    width: int
    signed: bool

    @property
    def padded(self) -> int:
        """Bits that it takes in a stream: whole bytes."""
        return -(-self.width // 8) * 8


class CorePlan:
    """A core that can be written.

    Args:
        program: An integer program with one row among its outputs; numbers of the row may stand beside it.
        settings: What the core is for.
        tables: What its run-time parameters hold at first, for each head, by name.

    Raises:
        RefusalError: the program has a value that a core cannot compute; the message names it.
        ProofError: the program has no proof for rows of this length.
    """

    def __init__(
        self, program: Program, settings: Settings, tables: Mapping[str, Sequence[Sequence[int]]] | None = None
    ) -> None:
        self.settings = settings
        self.source = program
        self.head = _beside("head", settings.heads - 1, "head of the row") if settings.heads > 1 else None
        proof = prove(program, max_length=settings.elements)
        self.simplified: Simplified = simplify(program, proof, self.head)
        self.cut = _beside("cut", 1, "whether the row is too long") if settings.cut else None
        if self.cut is not None:
            self.simplified = replace(
                self.simplified, intervals={**self.simplified.intervals, self.cut: Interval(0, 1)}
            )
        self.program = self.simplified.program
        rows = {name: node for name, node in self.program.outputs.items() if node.kind is Kind.ROW}
        if len(rows) != 1:
            raise RefusalError(
                f"program {program.name}: a core gives one value of each element; outputs per element are "
                f"{', '.join(rows) or 'none'}"
            )
        ((self.row_name, self.row),) = rows.items()
        numbers = {name: node for name, node in self.program.outputs.items() if node.kind is not Kind.ROW}
        values = {name: self.simplified.constant(node) for name, node in numbers.items()}
        self.constants = {name: value for name, value in values.items() if value is not None}
        left_out = () if settings.constants else self.constants
        self.numbers = {name: node for name, node in numbers.items() if name not in left_out}
        self._refuse_operators()
        if settings.packed and self.field(self.row).width > _WIDEST_PACKED:
            raise UsageError(
                f"packed is for results of at most {_WIDEST_PACKED} bits; {self.row_name} of program {program.name} "
                f"are of {self.field(self.row).width}"
            )
        params = [node for node in self.program.nodes() if node.op == "param" and node is not self.head]
        self.registers = place_tables(params, tables or {})
        writable = {table.name: table for table in self.registers}
        self.phases = choose_phases(self.simplified, writable, settings.lanes, 1 << self.address_bits)
        if settings.is_serial:
            self._refuse_products()

    def _refuse_products(self) -> None:
        name, products = self.source.name, [node for phase in self.phases for node in phase.rows if node.op == "mul"]
        if any(node.op == "scan" for node in self.program.nodes()):
            raise RefusalError(f"program {name}: products=serial is for passes without a scan")
        if not products:
            raise RefusalError(f"program {name} has no product of elements, which products=serial is for")
        for node in products:
            if all(self.field(arg).signed for arg in node.args):
                raise RefusalError(
                    f"program {name}: {node_to_text(self.program, node)} has two factors that may be negative; "
                    "products=serial takes one"
                )

    def _refuse_operators(self) -> None:
        scans = [node for node in self.program.nodes() if node.op == "scan"]
        name, lanes = self.source.name, self.settings.lanes
        if scans and lanes > 1:
            raise RefusalError(
                f"program {name}: a scan takes one element after the other; lanes is {lanes}, allowed is 1"
            )
        for scan in scans:
            for start in scan.args[: len(body_of(scan).states)]:
                if self.simplified.constant(start) is None:
                    raise RefusalError(
                        f"program {name}: a scan that begins with {start.op}, which differs from row to row, has no "
                        "form in a core"
                    )
        steps = (body_of(node) for node in self.source.nodes() if node.op == "scan")
        inside = walk(node for step in dict.fromkeys(steps) for node in (*step.next, *step.outputs))
        for node in (*self.source.nodes(), *inside):
            if node.op in RULES or node.op in _OWN or node.op in names_of("proof") or node.op == "cast":
                continue
            if node.op not in names_of("reduction"):
                text = node_to_text(self.source, node) if node.op != "index" else node.op
                raise RefusalError(f"program {self.source.name}: {text} has no form in a core")

    def field(self, node: Node) -> Field:
        """Return a value with the bits that it takes."""
        return Field(node, *shape(self.simplified.intervals[node]))

    @cached_property
    def inputs(self) -> Mapping[str, Node]:
        """The rows that are given, by name: `scores`, and `valid` of a masked program."""
        found = {str(n.attrs["name"]): n for n in walk([self.row, *self.numbers.values()]) if n.op == "input"}
        if "scores" not in found:
            raise RefusalError(f"program {self.source.name}: its outputs do not follow from the scores")
        return found

    @cached_property
    def score_field(self) -> Field:
        """The scores."""
        signed = self.source.scores.is_signed
        return Field(self.inputs["scores"], self.source.scores.bits, signed)

    @property
    def beside(self) -> tuple[Node, ...]:
        """What goes through all passes beside a row."""
        return tuple(node for node in (self.head, self.cut) if node is not None)

    @property
    def result_bits(self) -> int:
        """Bits that a result takes in its stream: whole bytes, or a part of one that divides it."""
        field = self.field(self.row)
        return 1 << (field.width - 1).bit_length() if self.settings.packed else field.padded

    @property
    def gathered(self) -> int:
        """Beats of elements whose results are in one beat of the stream: as many as fill a byte, or 1."""
        return max(8 // (self.result_bits * self.settings.lanes), 1)

    @property
    def result_bytes(self) -> int:
        """Bytes of a beat of results."""
        return self.result_bits * self.settings.lanes * self.gathered // 8

    @property
    def results_end_early(self) -> bool:
        """Whether bytes at the end of a row's last beat of results may hold none."""
        return self.result_bytes * 8 > max(self.result_bits, 8)

    @property
    def address_bits(self) -> int:
        """Bits of a position in a memory between two passes: it holds the longest row twice."""
        return max((self.settings.beats - 1).bit_length(), 2) + 1

    @property
    def room(self) -> int:
        """Beats of which a memory between two passes is filled at most: three quarters, which three bits tell."""
        return 3 << (self.address_bits - 2)

    def is_last(self, number: int) -> bool:
        """Say whether no pass follows."""
        return number + 1 == len(self.phases)

    def has_numbers(self, number: int) -> bool:
        """Say whether a pass leaves something of a whole row: numbers, or the next pass."""
        return not self.is_last(number) or bool(self.numbers)

    def lengths(self, phase: Phase) -> list[Node]:
        """Return the length of a row, which the first pass finishes, where the program asks for it."""
        nodes = walk(self.program.outputs.values())
        return [node for node in nodes if node.op == "length"] if phase.number == 0 else []

    def kept(self, number: int) -> list[Field]:
        """Return the values of an element that the memory before a pass keeps."""
        return [self.field(node) for node in values_kept(self.phases, number, self.inputs.values())]

    def carried(self, number: int) -> list[Field]:
        """Return the numbers of a row that are known before a pass and that it, or what follows, needs."""
        known: dict[Node, None] = {}
        for phase in self.phases[:number]:
            known.update(dict.fromkeys((*self.lengths(phase), *phase.reductions, *phase.scalars)))
        needed: set[Node] = set(self.numbers.values())
        if 0 < number < len(self.phases):
            known.update(dict.fromkeys(self.beside))
            needed.update(self.beside)
        for phase in self.phases[number:]:
            there = {*known, *phase.loads}
            needed.update(arg for node in walk([*phase.rows, *phase.reductions], there) for arg in node.args)
            needed.update(arg for node in phase.scalars for arg in node.args)
        return [self.field(node) for node in known if node in needed]

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """The ports beside clock and reset: three AXI4-Streams, and the register port."""
        lanes, mask = self.settings.lanes, "valid" in self.inputs
        out, numbers = self.field(self.row), [self.field(node) for node in self.numbers.values()]
        signs = {True: "two's complement", False: "unsigned"}
        found = [
            Port("s_axis_tdata", self.score_field.width * lanes, False, f"scores, {signs[self.score_field.signed]}"),
            Port("s_axis_tvalid", 1, False, "scores are offered"),
            Port("s_axis_tready", 1, True, "scores are taken"),
            Port("s_axis_tlast", 1, False, "the row ends with this beat"),
        ]
        if lanes > 1:
            found.append(Port("s_axis_tkeep", lanes, False, "lanes that hold an element, from the lowest on"))
        if mask:
            found.append(Port("s_axis_tuser", lanes, False, "elements that take part"))
        if self.head is not None:
            found.append(Port("s_axis_tid", self.field(self.head).width, False, "head of the row"))
        found += [
            Port("m_axis_tdata", self.result_bytes * 8, True, f"{self.row_name}, {signs[out.signed]}"),
            Port("m_axis_tvalid", 1, True, "results are offered"),
            Port("m_axis_tready", 1, False, "results are taken"),
            Port("m_axis_tlast", 1, True, "the row ends with this beat"),
        ]
        if self.results_end_early:
            found.append(Port("m_axis_tkeep", self.result_bytes, True, "bytes that hold results"))
        if self.cut is not None:
            found.append(Port("m_axis_tuser", 1, True, "with the end of a row: it was too long, and is cut"))
        if self.head is not None:
            found.append(Port("m_axis_tid", self.field(self.head).width, True, "head of the row"))
        if numbers:
            names = ", ".join(f"{name} {signs[f.signed]}" for name, f in zip(self.numbers, numbers, strict=True))
            found += [
                Port("n_axis_tdata", sum(f.padded for f in numbers), True, f"of each row, lowest first: {names}"),
                Port("n_axis_tvalid", 1, True, "numbers of a row are offered"),
                Port("n_axis_tready", 1, False, "numbers of a row are taken"),
            ]
        if self.registers:
            found += register_ports(self.registers)
        return tuple(found)


def _beside(name: str, greatest: int, meaning: str) -> Node:
    """Return a number that goes beside a row through all passes."""
    param = Param(name, "site", DType.U32, 0, greatest, None, meaning)
    return Node("param", (), DType.U32, Kind.SCALAR, {"param": param})
