"""Two passes in one loop: a step of the first one over a row, then a step of the second one over an earlier row.

So the memory brings a row while another one is computed, and what waits for the end of a pass is done a row later.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.block_loop import BlockLoop
from softq.codegen.cpu.rows.pipeline import Pipeline, Place

_NEAR_BYTES = 2**13
"""Bytes of a row of scores up to which the second pass is two rows behind the first one: measured; in longer rows the
end of a pass is little, and three of them are more than a cache holds."""

_AHEAD_BYTES = 2**13
"""How far ahead the first pass asks for scores: measured."""


class JointPasses(Pipeline):
    """The emitter of all rows; see `Pipeline` for the arguments."""

    def is_possible(self) -> bool:
        """Say whether there are two passes, in blocks under masks, whose steps are of as many elements.

        Of more passes the later ones would read again what the first one has driven out of the nearest cache.
        """
        if len(self.stages) != 2 or not self.kernel.processor.masks:
            return False
        loops = [self.open(number, self.number(0)).loop.blocks() for number in range(2)]
        return None not in loops and len({loop.step_size for loop in loops if loop is not None}) == 1

    def emit_jointly(self) -> None:
        """Emit the rows."""
        count = self.rows.count
        behind = self.choose(self.rows_have(_NEAR_BYTES), self.number(2), self.number(1))
        alone = self.choose(tirx.LT(behind, count), behind, count)
        with script.serial(alone) as turn:
            self._emit_turn({0: turn})
        with script.serial(tirx.Sub(count, alone)) as turn:
            self._emit_turn({0: tirx.Add(turn, alone), 1: turn})
        with script.serial(alone) as turn:
            self._emit_turn({1: tirx.Add(turn, tirx.Sub(count, alone))})

    def _emit_turn(self, done: dict[int, Expr]) -> None:
        """Emit passes by their numbers, step by step in turns, over rows that are so far from the first one."""
        open_: list[tuple[int, Place, BlockLoop]] = []
        for number, at in done.items():
            place = self.open(number, self.position(at))
            loop = place.loop.blocks()
            assert loop is not None
            open_.append((number, place, loop))
        for _, _, loop in open_:
            loop.begin()
            if not loop.is_ordered:
                # Its long chain of operations is done while the steps are.
                loop.remainder()
        with script.serial(open_[0][2].groups()) as g:
            for number, _, loop in open_:
                loop.step(g, None if number else self.number(_AHEAD_BYTES * 8 // self.rows.score_bits))
        for number, place, loop in open_:
            if loop.is_ordered:
                loop.remainder()
            # Reductions of no element are what accumulators begin with.
            for node, x in loop.results().items():
                place.scalars.keep(node, x)
            self.close(number, place)
            self.rows.next(number)
