"""Reductions: what accumulators begin with, how an element is added, and how lanes become one number."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import marked
from softq.codegen.cpu.rows import planes
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.float_bits import WORD, magnitude, magnitude_of
from softq.codegen.cpu.rows.lanes import Combine, halve, reduce_lanes, reduce_parts, reduce_rows
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.tir import (
    BOOL,
    F32,
    Local,
    bits_of,
    cast,
    const,
    dtype_of,
    extreme,
    intrinsic,
    is_signed,
    reinterpret,
    shuffle,
    type_name,
)
from softq.rowprog.ops import OPS, Rules
from softq.rowprog.program import Node

_TESTED_BYTES = 16
"""Bytes that one instruction tests for zero; of wider lanes LLVM finds it by itself."""


# Only sums must not take in an element twice. A comparison has the accumulator first where it may be kept, so that it
# is one instruction on x86.
REDUCTIONS: Rules[Combine] = Rules(
    "the CPU emitter",
    {
        "row_max": lambda a, x: tirx.Select(tirx.LT(a, x), x, a),
        "row_min": lambda a, x: tirx.Select(tirx.LT(x, a), x, a),
        "row_sum": tirx.Add,
    },
)


def _combine_of(node: Node, place: Emission) -> Combine:
    """Return what joins two values of a reduction; an extreme of elements of which one is NaN may be any."""
    if node.op in ("row_max", "row_min") and place.type_of(node) == F32 and place.processor.has_extremes:
        return lambda a, x: extreme(node.op == "row_max", x, a)
    if node.op in ("row_max", "row_min") and place.type_of(node) == F32 and place.processor.has_mve:
        name = f"llvm.{node.op.removeprefix('row_')}num"
        return lambda a, x: intrinsic(name, F32, place.lanes, x, a)
    return REDUCTIONS[node.op]


class Accumulators:
    """The accumulators of one reduction in one pass: `count` vectors.

    Args:
        node: The reduction.
        place: Where elements of this many lanes are computed; gives the type.
        count: Number of accumulators.
    """

    def __init__(self, node: Node, place: Emission, count: int) -> None:
        self.node = node
        self._combine = _combine_of(node, place)
        self._in_c = place.processor.machine.in_c
        self.condition = marked(node)
        self._number = None if self.condition is None else _tested_bits(self.condition, place.processor)
        self.name = place.type_of(node)
        if self.condition is not None:
            # All bits of a mark are set: what a comparison gives, or one instruction makes of a mask, the narrower the
            # better.
            self.name = "int8" if place.processor.masks or not place.bits else f"int{place.bits}"
        if self._number is not None:
            self.name, self._combine = WORD, lambda a, x: tirx.Select(tirx.LT(a, x), x, a)
        self.lanes = place.lanes
        self._least_word = place.processor.has_least_word
        self._tests = place.processor.tests_vectors
        self._is_mve = place.processor.has_mve
        self._fresh = False
        held = dtype_of(self.name)
        empty = OPS[node.op].of_empty_row(node.dtype) if self.condition is None else 0
        start = empty if held.is_float else min(max(empty, held.low), held.high)
        self.starts_empty = start == empty or node in place.kernel.starts
        """Whether they begin with what the reduction is, or is taken for, of a row without elements."""
        start = place.kernel.starts.get(node, start)
        first, count = place.const(start, self.name), 1 if self.condition else count
        self.parts = [Local.of(first, self.name, self.lanes) for _ in range(count)]

    def add(self, places: Sequence[Emission], first: bool = False) -> None:
        """Take in the elements of places, each into an accumulator of its own as far as there are accumulators.

        Args:
            places: The places.
            first: Whether nothing was taken in before, and every accumulator has its place.
        """
        if self._number is not None:
            greatest = self.parts[0]
            for e in places:
                x = magnitude(e, e.arg(self._number, F32))
                greatest.set(_where_counted(e, self._combine(greatest.get(), x), greatest))
            return
        if self.condition is not None:
            # Of many conditions the disjunction is one instruction each, and tests for NaN are one for two vectors.
            any_of = functools.reduce(tirx.Or, [e.arg(self.condition, BOOL) for e in places])
            e, part = places[0], self.parts[0]
            x = tirx.Select(any_of, e.const(-1, self.name), e.const(0, self.name))
            if self._in_c and not first:
                # One instruction under a condition, where there are no vectors.
                part.set(tirx.Select(any_of, e.const(-1, self.name), part.get()))
            else:
                joined = x if first else script.bitwise_or(part.get(), x)
                part.set(_where_counted(e, joined, part))
            self._fresh = first  # made of a comparison's result, whose test LLVM knows
            return
        for i, e in enumerate(places):
            x, part = e.arg(self.node.args[0], self.name), self.parts[i % len(self.parts)]
            if e.counted is not None and e.left is None and self.node.op == "row_sum":
                x = tirx.Select(e.counted.get(), x, e.const(0, self.name))
            part.set(x if first else _where_counted(e, self._combine(part.get(), x), part))

    def take(self, x: Expr) -> None:
        """Take in one value of the type of the accumulators."""
        self.parts[0].set(self._combine(self.parts[0].get(), x))

    def whole(self) -> Local:
        """Return all accumulators in one vector."""
        return self.parts[0] if self.condition is not None else reduce_parts(self.parts, self._combine)

    def result(self) -> Expr:
        """Return the reduction of all accumulators in the type that the program names."""
        whole, name = self.whole(), type_name(self.node.dtype)
        if self.condition is not None:
            return tirx.Select(self._is_marked(whole.get()), const(1, name), const(0, name))
        extreme = _extreme_of_lanes(whole, self.node.op, self._combine, self._least_word, self._is_mve)
        if self._is_mve and self.node.op == "row_sum" and whole.lanes > 1 and whole.name != F32:
            return cast(intrinsic("llvm.vector.reduce.add", self.name, 1, whole.get()), self.name, name, 1)
        x = reduce_lanes(whole, self._combine) if extreme is None else extreme
        return cast(x, self.name, name, 1)

    def results(self, wholes: Sequence[Local]) -> Expr:
        """Return the reductions of several rows side by side, of the vectors that are `whole` there."""
        count, name = len(wholes), type_name(self.node.dtype)
        if self.condition is None:
            return cast(reduce_rows(wholes, self._combine), self.name, name, count)
        # Hardly ever does a row hold what is asked for: one question for all of them.
        any_of = functools.reduce(script.bitwise_or, [marks.get() for marks in wholes])
        found = Local.of(const(0, name, count), name, count)
        with script.If(self._is_marked(any_of)), script.Then():
            yes, no = const(1, name), const(0, name)
            each = [tirx.Select(self._is_marked(marks.get()), yes, no) for marks in wholes]
            found.set(shuffle([Local.of(x, name, 1).get() for x in each], range(count)))
        return found.get()

    def _is_marked(self, marks: Expr) -> Expr:
        """Say whether a lane is not zero."""
        if self._tests and not self._fresh and (bits_of(self.name), self.lanes) == (8, _TESTED_BYTES):
            words = Local.of(reinterpret(marks, "int64", 2), "int64", 2).get()
            return tirx.EQ(intrinsic("llvm.x86.sse41.ptestz", "int32", 1, words, words), const(0, "int32"))
        if self._number is not None:
            most = intrinsic("llvm.vector.reduce.umax", self.name, 1, marks) if self.lanes > 1 else marks
            return tirx.LT(const(magnitude_of(math.inf), self.name), most)
        # Of words that are 0 or all set, of which MVE finds the greatest in one instruction.
        how = "llvm.vector.reduce.umax" if self._is_mve else "llvm.vector.reduce.or"
        whole = intrinsic(how, self.name, 1, marks) if self.lanes > 1 else marks
        return tirx.NE(whole, const(0, self.name))


def _tested_bits(condition: Node, processor: Processor) -> Node | None:
    """Return the float that a condition says is NaN, where the greatest bits tell it in less; else None."""
    if not processor.compares_bits or condition.op != "not":
        return None
    equal = condition.args[0]
    same = equal.op == "eq" and equal.args[0] is equal.args[1] and equal.args[0].dtype.is_float
    return equal.args[0] if same else None


def _where_counted(e: Emission, x: Expr, part: Local) -> Expr:
    """Return what an accumulator becomes, in lanes that hold no element what it was: one instruction under a mask."""
    return x if e.left is None or e.counted is None else tirx.Select(e.counted.get(), x, part.get())


def _extreme_of_lanes(vector: Local, op: str, combine: Combine, least_word: bool, is_mve: bool) -> Expr | None:
    """Return the least or greatest of integers, for which processors have instructions of their own; else None."""
    if op == "row_sum" or vector.lanes == 1:
        return None
    if vector.name == F32:
        name = f"llvm.vector.reduce.f{op.removeprefix('row_')}"
        return intrinsic(name, F32, 1, vector.get()) if is_mve else None
    if least_word and bits_of(vector.name) == 8 and vector.lanes >= _WORDS * 2:
        return _extreme_byte(vector, op, combine)
    kind = ("s" if is_signed(vector.name) else "u") + op.removeprefix("row_")
    return intrinsic(f"llvm.vector.reduce.{kind}", vector.name, 1, vector.get())


_WORDS = 8
"""Unsigned words of which x86 finds the least in one instruction."""


def _extreme_byte(vector: Local, op: str, combine: Combine) -> Expr:
    """Return the least or greatest byte by the least of unsigned words: of each two bytes the lesser one."""
    lanes = _WORDS * 2
    x = halve(vector, combine, lanes)
    # What is extreme comes first among unsigned bytes.
    mask = (0x80 if is_signed(vector.name) else 0) ^ (0xFF if op == "row_max" else 0)

    def turned(y: Expr, size: int) -> Expr:
        return script.bitwise_xor(y, const(mask, planes.U8, size)) if mask else y

    first = Local.of(turned(reinterpret(x, planes.U8, lanes), lanes), planes.U8, lanes).get()
    words = script.shift_right(reinterpret(first, "uint16", _WORDS), const(8, "uint16", _WORDS))
    upper = Local.of(reinterpret(words, planes.U8, lanes), planes.U8, lanes).get()
    lesser = Local.of(tirx.Select(tirx.LT(first, upper), first, upper), planes.U8, lanes).get()
    least = intrinsic("llvm.x86.sse41.phminposuw", "uint16", _WORDS, reinterpret(lesser, "uint16", _WORDS))
    whole = Local.of(reinterpret(least, planes.U8, lanes), planes.U8, lanes).get()
    back = Local.of(reinterpret(turned(whole, lanes), vector.name, lanes), vector.name, lanes).get()
    return shuffle([back], [0])
