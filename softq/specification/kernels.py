"""A method for one type of scores, and what range analysis proves of its program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from softq.errors import ProofError, UsageError
from softq.methods import Method, Options
from softq.rowprog import DType, Node, Program
from softq.rowprog.program import body_of, walk
from softq.rowprog.ranges import Proof, largest_length, prove

SCALE = 0.0625
"""Real value of one unit of integer scores where a method leaves it to the user: 255 units reach e^-15.9, 1.2e-7."""


@dataclass(frozen=True)
class Kernel:
    """A method with its default options for one type of scores.

    Attributes:
        options: The options; of integer scores without a default scale, with `step` = `SCALE`.
        program: The program without a mask.
        length: The length asked for, of rows.
    """

    options: Options
    program: Program
    length: int

    @cached_property
    def proof(self) -> Proof | None:
        """What is proved for rows of this length; None where no proof reaches that far.

        Raises:
            UsageError: the length is not one that an i32 holds.
        """
        try:
            return prove(self.program, max_length=self.length)
        except ProofError:
            return None

    @property
    def widest_bits(self) -> int | None:
        """Bits of the widest integer; None without a proof."""
        return None if self.proof is None else self.proof.widest_bits

    @cached_property
    def largest_length(self) -> int:
        """The greatest length of a row for which nothing overflows."""
        return largest_length(self.program)

    @property
    def is_integer(self) -> bool:
        """Whether no value between the scores and the outputs is a float."""
        return all(node.dtype is not DType.F32 for node in _all_nodes(self.program))


@lru_cache(maxsize=256)
def kernel(method: Method, scores: DType, length: int) -> Kernel:
    """Return the method for scores of this type, and rows of up to `length` elements.

    Raises:
        UsageError: the method takes no scores of this type.
    """
    options = method.resolve(method.configure({}), False)
    try:
        program = method.program(options, scores=scores)
    except UsageError:
        if scores.is_float or "step" not in method.options.specs():
            raise
        options = method.resolve(method.configure({"step": SCALE}), False)
        program = method.program(options, scores=scores)
    return Kernel(options, program, length)


def kernels(method: Method, length: int) -> dict[DType, Kernel]:
    """Return the method for float scores and, if it takes them, for 8-bit integers."""
    types = (DType.F32, DType.I8) if method.integer_scores else (DType.F32,)
    return {scores: kernel(method, scores, length) for scores in types}


def _all_nodes(program: Program) -> Iterator[Node]:
    for node in program.nodes():
        yield node
        if node.op == "scan":
            yield from walk((*body_of(node).next, *body_of(node).outputs))
