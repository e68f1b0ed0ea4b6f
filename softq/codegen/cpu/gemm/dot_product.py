"""How short integers are multiplied: several products are added up in each 32 bits of an instruction.

x86's VNNI multiplies four unsigned bytes by four signed ones, or two signed 16-bit numbers by two, and adds them to an
int32; Arm's dot products take four signed bytes by four, with the matrix extension unsigned by signed ones too.
Elsewhere the same sums are made by 32-bit arithmetic. They are integers, so that all give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.block import tile_of_block
from softq.codegen.cpu.gemm.tiles import broadcast, number, vector
from softq.codegen.cpu.rows.tir import cast, intrinsic, reinterpret

OFFSET = 128
"""How far signed and unsigned bytes are apart: added to signed ones, or taken from unsigned ones, the other kind."""


@dataclass(frozen=True)
class Dot:
    """One kind of product.

    Attributes:
        symbol: Name of the kernel.
        count: How many numbers are in 32 bits.
        left: Type of the rows' numbers.
        right: Type of the columns' numbers.
    """

    symbol: str
    count: int
    left: str
    right: str

    def left_offset(self, given: str) -> int:
        """Return what is added to bytes of a type to have those that the left operand holds, in any type."""
        if self.left == "int8":
            return -OFFSET if given == "uint8" else 0
        return OFFSET if given == "int8" else 0

    def right_offset(self, given: str) -> int:
        """Return what is added to bytes of a type to have those that the right operand holds."""
        return -OFFSET if given == "uint8" else 0


BYTES = Dot("softq_dot_bytes", 4, "uint8", "int8")
SIGNED = Dot("softq_dot_signed", 4, "int8", "int8")
WORDS = Dot("softq_dot_words", 2, "int16", "int16")

_INSTRUCTIONS = (
    ("avx512vnni", 16, BYTES, "llvm.x86.avx512.vpdpbusd.512"),
    ("avx512vnni", 16, WORDS, "llvm.x86.avx512.vpdpwssd.512"),
    ("i8mm", 4, BYTES, "llvm.aarch64.neon.usdot.v4i32.v16i8"),
    ("dotprod", 4, SIGNED, "llvm.aarch64.neon.sdot.v4i32.v16i8"),
)
"""What a processor may have, the 32-bit lanes of its vectors, and LLVM's name of the instruction."""


def dot_of(machine: Cpu) -> Dot:
    """Return the faster kind of product of bytes: without an instruction for them, their sums of words are."""
    return next((dot for dot in (BYTES, SIGNED) if _instruction(machine, dot)), WORDS)


def _instruction(machine: Cpu, dot: Dot) -> str | None:
    lanes = tile_of_block(machine).lanes
    found = (name for has, n, d, name in _INSTRUCTIONS if has in machine.requires and (n, d) == (lanes, dot))
    return next(found, None)


def product_of(machine: Cpu, dot: Dot, memory: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    """Return what adds the products of a group of a row and of a vector's columns to a sum."""
    a, panel, lanes, count = memory["a"], memory["panel"], tile_of_block(machine).lanes, dot.count
    pairs = dot is WORDS and lanes == 8 and "avx2" in machine.requires
    instruction = _instruction(machine, dot)

    def product(held: Any, left: Any, right: Any) -> Any:
        if pairs or instruction is not None:
            group = reinterpret(a[vector(left, count)], "int32", 1)
            repeated = reinterpret(broadcast(group, lanes), dot.left, lanes * count)
            others = panel[vector(right, lanes * count)]
            if pairs:
                return held + intrinsic("llvm.x86.avx2.pmadd.wd", "int32", lanes, repeated, others)
            return intrinsic(instruction, "int32", lanes, held, repeated, others)
        for i in range(count):
            one = broadcast(cast(a[left + number(i)], dot.left, "int32", 1), lanes)
            others = panel[right + number(i)]
            if lanes > 1:
                # Taken out of one vector: a load of every second number would be one for each lane.
                every = [tirx.const(lane * count + i, "int32") for lane in range(lanes)]
                others = tirx.Shuffle([panel[vector(right, lanes * count)]], every)
            held = held + one * cast(others, dot.right, "int32", lanes)
        return held

    return product
