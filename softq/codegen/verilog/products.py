"""Products in pieces: by a constant as sums of shifted values, of wide values as products that one multiplier takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from softq.codegen.verilog.signals import Signal, literal

MULTIPLIER_BITS = 18
"""Bits of the factors that one multiplier takes, two's complement: 18 in the devices of Lattice, 18 and more of AMD."""


@dataclass(frozen=True)
class Term:
    """A part of a sum.

    Attributes:
        value: It.
        shift: How far it stands to the left.
        minus: Whether it is subtracted.
    """

    value: Signal
    shift: int
    minus: bool = False


def terms_of_constant(value: Signal, factor: int) -> list[Term]:
    """Return a product by a constant as few shifted values: its digits 1, 0 and -1, no two beside each other not 0
    (canonical signed digits, Avizienis 1961)."""
    found: list[Term] = []
    shift, rest = 0, abs(factor)
    while rest:
        if rest & 1:
            digit = 2 - (rest & 3)
            found.append(Term(value, shift, (digit < 0) != (factor < 0)))
            rest -= digit
        rest >>= 1
        shift += 1
    # The first term is not subtracted if any is not.
    return sorted(found, key=lambda term: (term.minus, term.shift))


def pieces(value: Signal) -> Iterator[tuple[Signal, int]]:
    """Yield parts of a value that one multiplier takes, and how far they stand to the left."""
    low = 0
    while value.width - low > MULTIPLIER_BITS - (not value.signed):
        part = replace(
            value,
            width=MULTIPLIER_BITS - 1,
            signed=False,
            lowest=value.lowest + low,
            whole=value.whole or value.width,
        )
        yield part, low
        low += MULTIPLIER_BITS - 1
    yield value.drop(low), low


def shifted(term: Term, width: int) -> str:
    """Return a term in `width` bits, without its sign."""
    if term.shift >= width:
        return literal(0, width)
    kept = term.value.to_width(width - term.shift)
    return f"{{{kept}, {literal(0, term.shift)}}}" if term.shift else kept


def joined(a: Term, b: Term, width: int) -> str:
    """Return the sum of two terms in `width` bits; the first is not subtracted."""
    assert not a.minus, a
    return f"{shifted(a, width)} {'-' if b.minus else '+'} {shifted(b, width)}"
