"""Values as bits: how wide, with a sign or not, and how one is written where another width is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softq.rowprog.ranges.interval import Interval


@dataclass(frozen=True)
class Signal:
    """A value in a module.

    Attributes:
        base: The name that holds it, or a literal.
        width: Its bits, at least 1.
        signed: Whether these are two's complement.
        value: The number, if it is the same in every row.
        lowest: Position of its lowest bit in what the name holds.
        whole: Bits that the name holds; 0: those of the value.
    """

    base: str
    width: int
    signed: bool
    value: int | None = None
    lowest: int = 0
    whole: int = 0

    @property
    def name(self) -> str:
        """The value as an expression."""
        return self._bits(self.width)

    def to_width(self, width: int) -> str:
        """Return an expression of `width` bits: extended by the sign or by zeros, or without the bits above."""
        if self.value is not None:
            return literal(self.value, width)
        if width <= self.width:
            return self._bits(width)
        return f"{{{{{width - self.width}{{{self.to_bit(self.width)}}}}}, {self.name}}}"

    def to_bit(self, at: int) -> str:
        """Return one bit of the value in as many bits as that takes, the lowest at 0."""
        if self.value is not None:
            return literal(self.value >> at & 1, 1)
        if at < self.width:
            return self._bit(at)
        return self._bit(self.width - 1) if self.signed else "1'b0"

    def drop(self, bits: int) -> Signal:
        """Return the value without its lowest bits: the floor of the value over 2^bits."""
        if self.value is not None:
            return number(self.value >> bits, max(self.width - bits, 1), self.signed)
        if bits >= self.width:
            if not self.signed:
                return number(0, 1, False)
            bits = self.width - 1
        return replace(self, width=self.width - bits, lowest=self.lowest + bits, whole=self.whole or self.width)

    def _bits(self, width: int) -> str:
        """Return the lowest bits of the value."""
        if width == (self.whole or self.width) or self.value is not None:
            return self.base
        return self._bit(0) if width == 1 else f"{self.base}[{self.lowest + width - 1}:{self.lowest}]"

    def _bit(self, at: int) -> str:
        return self.base if (self.whole or self.width) == 1 else f"{self.base}[{self.lowest + at}]"


def literal(value: int, width: int) -> str:
    """Return a number as a literal of `width` bits, which hold it but for its sign."""
    return f"{width}'h{value & ((1 << width) - 1):x}"


def number(value: int, width: int, signed: bool) -> Signal:
    """Return a constant."""
    return Signal(literal(value, width), width, signed, value)


def constant(value: int) -> Signal:
    """Return a constant in the fewest bits."""
    return number(value, *shape(Interval(value, value)))


def shape(interval: Interval) -> tuple[int, bool]:
    """Return the fewest bits that hold an interval of integers, and whether they have a sign."""
    return interval.bits, interval.low < 0


def common(a: Signal, b: Signal) -> tuple[int, bool]:
    """Return bits that hold either of two values, and whether they have a sign."""
    if a.signed == b.signed:
        return max(a.width, b.width), a.signed
    plain, other = (b, a) if a.signed else (a, b)
    return max(plain.width + 1, other.width), True
