"""What a core takes in a Lattice ECP5, before synthesis: an estimate from what its modules are made of.

Flip-flops, blocks of memory, multipliers and chains of carries are counted (cells.py), by what the device has:

* a block of memory is 16,384 words of 1 bit to 1,024 of 18, or 512 of 36, the fewest of these that hold it. It has
  a register for each bit it gives, so that one after it in the design takes no flip-flops, by the script NAME_ecp5.ys.
  One that is read where it is written reads by the port of the write;
* a multiplier takes factors of up to 18 bits; its registers stay unused, as Yosys leaves them;
* distributed memory comes in pieces of 16 words of 4 bits.

Tables of four inputs depend on what synthesis makes of the logic, which it optimizes, and which it makes fast or small.
The estimate is `TABLES_FACTOR` times the tables into which gates are packed as they come, and `TABLES_BESIDE`: the two
numbers have the least squares of relative errors over the cores in benchmarks/fpga.json, which yosys synthesized. In
all it has the tables of chains and of distributed memory, too, by what nextpnr takes for them.

docs/fpga.md has the errors, on these cores and on others, from `python -m benchmarks.fpga.estimate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from softq.codegen.verilog.cells import BlockRead, Cells
from softq.codegen.verilog.module import Memory
from softq.codegen.verilog.storage import BLOCKS, count_blocks
from softq.wording import counted

FAMILY = "ECP5"

TABLES_FACTOR, TABLES_BESIDE = 0.957, 11.3
"""Fitted on the 30 cores without a scan that benchmarks/fpga.json had then; `python -m benchmarks.fpga.estimate` tells
what all that it has give."""

_PIECE_BITS, _PIECE_WORDS = 4, 16
"""Of distributed memory."""

_TABLES_OF_CARRY = 2
"""Of a cell of carries, which adds two bits."""

_TABLES_OF_CHAIN = 4
"""That nextpnr takes for the ends of a chain, where it gets its first carry and gives its last one."""

_TABLES_OF_PIECE = 6
"""Of a piece of distributed memory: four that remember, two beside them that take what is written."""


@dataclass(frozen=True)
class Resources:
    """What a core takes.

    Attributes:
        lut4: Tables of four inputs that compute.
        lut4_in_all: These, and those that carry and that are distributed memory.
        ff: Flip-flops, without those in blocks of memory.
        bram: Blocks of memory of 18 kilobits.
        mult18: Multipliers of 18 by 18 bits.
    """

    lut4: int
    lut4_in_all: int
    ff: int
    bram: int
    mult18: int

    @property
    def text(self) -> str:
        """It as one line."""
        return (
            f"estimated for {FAMILY}: {self.lut4} LUT4 ({self.lut4_in_all} in all), {self.ff} flip-flops, "
            f"{counted(self.bram, 'block')} of memory, {counted(self.mult18, 'multiplier')}"
        )


def estimate(cells: Sequence[Cells]) -> Resources:
    """Return what modules that are made of these take together."""
    lut4 = round(TABLES_FACTOR * sum(map(count_tables, cells)) + TABLES_BESIDE)
    beside = [memory for each in cells for memory in each.read_beside]
    pieces = sum(_pieces(memory) for memory in beside if not memory.block)
    blocks = [memory for memory in beside if memory.block]
    chains = [bits for each in cells for bits in each.chains]
    carries = sum(-(-bits // 2) for bits in chains)
    return Resources(
        lut4,
        lut4 + _TABLES_OF_CARRY * carries + _TABLES_OF_CHAIN * len(chains) + _TABLES_OF_PIECE * pieces,
        # A register that takes what is read under a condition is in the block, too.
        sum(map(_count_registers, cells)) - sum(memory.width for memory in blocks),
        sum(map(_count_blocks, cells)) + sum(count_blocks(memory.depth, memory.width) for memory in blocks),
        sum(each.products for each in cells),
    )


def describe_estimate(resources: Resources, latency: int, interval: float) -> dict[str, object]:
    """Return an estimate as plain values, with the clocks of the longest row and from one to the next."""
    return {"family": FAMILY, **asdict(resources), "latency": latency, "interval": interval}


def count_tables(cells: Cells) -> int:
    """Return the tables that logic is packed into, and those that choose between parts of memories."""
    distributed = sum(_choice(-(-m.depth // _PIECE_WORDS), m.width) for m in cells.read_beside if not m.block)
    return cells.tables + distributed + sum(_choice(_rows(r.memory), r.memory.width) for r in _with_blocks(cells))


def _choice(parts: int, width: int) -> int:
    """Return the tables that choose one of so many parts, a power of two, and say which one is written."""
    return 0 if parts == 1 else width * (1 if parts == 2 else 4 * (parts - 1) // 3) + parts


def _shape(memory: Memory) -> tuple[int, int]:
    """Return the bits and words of the blocks that a memory takes: the fewest, then those of the most words."""
    return min(BLOCKS, key=lambda block: (-(-memory.width // block[0]) * -(-memory.depth // block[1]), block[0]))


def _rows(memory: Memory) -> int:
    return -(-memory.depth // _shape(memory)[1])


def _with_blocks(cells: Cells) -> list[BlockRead]:
    """Return the reads that take blocks of their own."""
    alone = {read.name for read in cells.reads if not read.beside_write}
    return [read for read in cells.reads if not (read.beside_write and read.name in alone)]


def _count_blocks(cells: Cells) -> int:
    return sum(-(-r.memory.width // _shape(r.memory)[0]) * _rows(r.memory) for r in _with_blocks(cells))


def _count_registers(cells: Cells) -> int:
    count = cells.registers
    for read in cells.reads:
        bits, parts = _shape(read.memory)[0], _rows(read.memory)
        if parts > 1:
            count += (parts - 1).bit_length()  # Which part was read has to be known when it gives the word.
            continue
        # The registers of one block are in use or not; where one of them cannot be, all are beside it.
        for low in range(0, read.memory.width, bits):
            own = {bit for bit in read.bits if low <= bit < low + bits}
            count -= len(own) if own <= read.moved else 0
    return count


def _pieces(memory: Memory) -> int:
    return -(-memory.width // _PIECE_BITS) * -(-memory.depth // _PIECE_WORDS)
