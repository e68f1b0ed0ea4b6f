"""Range analysis: the interval of every value of a program, hence its width, hence a proof that nothing overflows."""

from softq.rowprog.ranges.interval import Interval
from softq.rowprog.ranges.parts import intervals_in_parts
from softq.rowprog.ranges.proof import Proof, largest_length, prove

__all__ = ["Interval", "Proof", "intervals_in_parts", "largest_length", "prove"]
