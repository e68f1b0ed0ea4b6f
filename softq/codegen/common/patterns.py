"""What emitters look for in a program: scans, products to be rounded, conditions, rounded codes, tables of shifts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from softq.errors import UsageError
from softq.rowprog.onnx.interface import INTERFACE
from softq.rowprog.program import Node, Number, Program, ScanBody, body_of, number_of, walk
from softq.rowprog.ranges import Proof
from softq.rowprog.types import DType, Kind

NIBBLE = 15
"""The greatest number of four bits."""

_LEAST_NORMAL = 2.0**-126


def output_type(program: Program, name: str) -> DType:
    """Return the element type of an output as kernels write it."""
    return DType.F32 if name in INTERFACE else program.outputs[name].dtype


INTEGERS = "integers"
"""The output that `with_integers` adds."""


def with_integers(program: Program, dtype: DType) -> Program:
    """Return a program with an output more: its weights, which are integers, in a type that is written."""
    integers = Node("cast", (program.outputs["weights"],), dtype, Kind.ROW)
    return replace(program, outputs={**program.outputs, INTEGERS: integers})


def check_nibbles(program: Program, name: str, proof: Proof) -> None:
    """Refuse to write an output two elements per byte that is no row of u8, or has greater numbers than four bits hold.

    Raises:
        UsageError: it is such an output, or there is none of this name.
    """
    node = program.outputs.get(name)
    if node is None or node.kind is not Kind.ROW or output_type(program, name) is not DType.U8:
        raise UsageError(f"output {name} of {program.name} is no row of u8; two elements per byte are written of those")
    interval = proof.filled[node]
    if interval.high > NIBBLE:
        raise UsageError(f"output {name} of {program.name} goes up to {interval.high}; four bits hold at most {NIBBLE}")


def everything(program: Program) -> Iterator[Node]:
    """Yield the program's nodes and those of the steps of its scans."""
    for node in program.nodes():
        yield node
        if node.op == "scan":
            yield from inner_nodes(body_of(node), node.args)


def inner_nodes(body: ScanBody, captured: Sequence[Node]) -> list[Node]:
    """Return the nodes of a step that are not computed outside, arguments first."""
    return list(walk((*body.next, *body.outputs), {*body.states, *body.elements, *captured}))


def group(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return the scans among the nodes, those of one loop together, in the order of the first of each."""
    groups: dict[tuple[int, ...], list[Node]] = {}
    for node in nodes:
        if node.op == "scan":
            groups.setdefault((id(body_of(node)), *map(id, node.args)), []).append(node)
    return list(groups.values())


Loop = TypeVar("Loop")


def order_steps(rows: Sequence[Node], loops: Mapping[Node, Loop]) -> list[Node | Loop]:
    """Return what to do for an element: row values, and each loop of scans where its first result stands or at last."""
    return list(dict.fromkeys([*(loops.get(node, node) for node in rows), *loops.values()]))


def fenced(program: Program) -> frozenset[Node]:
    """Return the products that are added to something and must be rounded before."""
    if program.contract:
        return frozenset()
    found: set[Node] = set()
    for node in everything(program):
        if node.op in ("add", "sub") and node.dtype.is_float:
            for arg in node.args:
                while arg.op in ("assume", "exp_minus", "round_to"):
                    arg = arg.args[-1]
                found.add(arg)
    return frozenset(node for node in found if node.op == "mul")


def marked(node: Node) -> Node | None:
    """Return the condition of a maximum over numbers that are 1 where it holds, else 0."""
    if node.op != "row_max" or node.args[0].op != "select":
        return None
    condition, yes, no = node.args[0].args
    marks = yes.op == no.op == "const" and (number_of(yes), number_of(no)) == (1, 0)
    return condition if marks and condition.kind is Kind.ROW else None


def rounded(node: Node) -> tuple[Node, list[Node]] | None:
    """Return what is rounded, and the clamps from the outermost one on, of a float that is rounded and then clamped.

    Rounding keeps the order and whole bounds, so that clamping may come before it; a NaN ends as the same bound. None
    if the node is nothing of the kind.
    """
    bounds: list[Node] = []
    while node.op in ("min", "max") and node.args[1].op == "const" and float(number_of(node.args[1])).is_integer():
        bounds.append(node)
        node = node.args[0]
    return (node, bounds) if node.op == "rint" and bounds else None


@dataclass(frozen=True)
class Shift:
    """A table of shifts of one number, where a shift takes the place of a load: entry[c] = (first >> c) * scale.

    Attributes:
        first: The unsigned number that is shifted.
        bits: Width of the unsigned type, 32 or 64.
        scale: Power of two that the shifted number is multiplied with.
    """

    first: int
    bits: int
    scale: float


def as_shift(values: Sequence[Number]) -> Shift | None:
    """Return the shift that gives every entry exactly, or None."""
    if any(isinstance(value, bool) or not 0 <= value < math.inf or math.copysign(1, value) < 0 for value in values):
        return None
    mantissa, exponent = math.frexp(min((value for value in values if value > 0), default=0))
    scale = 1.0 if all(isinstance(value, int) for value in values) else math.ldexp(1.0, exponent - 1)
    if scale != 1.0 and (mantissa != 0.5 or scale < _LEAST_NORMAL):
        return None  # the least entry of a table of shifts is a power of two; some runtimes take subnormals for 0
    first = values[0] / scale if scale != 1.0 else values[0]
    # A float carries the shifted number exactly only if it is a power of two or below 2^24.
    if first != int(first) or (scale != 1.0 and math.frexp(first)[0] != 0.5):
        return None
    for bits in (32, 64):
        if 0 < first < 2**bits and len(values) <= bits:
            exact = all(value == (int(first) >> c) * scale for c, value in enumerate(values))
            return Shift(int(first), bits, scale) if exact else None
    return None
