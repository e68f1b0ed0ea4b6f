"""Logic as tables of four inputs: gates are put into one table as long as it has inputs, and equal ones are one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from softq.codegen.verilog.rules import LOGIC_INPUTS

_MOST_WIDE = 7
"""Inputs of a function that tables of four inputs and the choices beside them, which take no table, give together."""


class Bit:
    """A bit: a constant, something that is no logic (a leaf), or a gate.

    Attributes:
        of: What a leaf is; of a gate its operator and arguments.
        support: The leaves that a gate follows from, four at most; a leaf itself; of a constant none.
    """

    __slots__ = ("of", "support")

    def __init__(self, of: Hashable, support: frozenset[Bit] | None) -> None:
        self.of = of
        self.support = frozenset((self,)) if support is None else support

    @property
    def is_leaf(self) -> bool:
        """Whether it is no gate and no constant."""
        return len(self.support) == 1 and self in self.support


class Packing:
    """Bits that are made from each other."""

    def __init__(self) -> None:
        self.zero, self.one = Bit(0, frozenset()), Bit(1, frozenset())
        self._known: dict[Hashable, Bit] = {}

    def constant(self, value: int) -> Bit:
        """Return 0 or 1."""
        return self.one if value & 1 else self.zero

    def leaf(self, of: Hashable) -> Bit:
        """Return a leaf, the same one for the same thing."""
        return self._known.setdefault(of, Bit(of, None))

    def table(self, bit: Bit) -> Bit:
        """Return a bit as a leaf: a gate is the output of a table then."""
        return bit if bit.is_leaf or not bit.support else self.leaf(("table", bit))

    def invert(self, bit: Bit) -> Bit:
        """Return the opposite."""
        if not bit.support:
            return self.constant(1 - int(bit is self.one))
        if isinstance(bit.of, tuple) and bit.of[0] == "not":
            found = bit.of[1]
            assert isinstance(found, Bit)
            return found
        return self._gate("not", (bit,))

    def both(self, a: Bit, b: Bit) -> Bit:
        """Return a and b."""
        if a is self.zero or b is self.zero or a is self.one:
            return self.zero if self.zero in (a, b) else b
        return a if b is self.one or a is b else self._gate("and", (a, b))

    def either(self, a: Bit, b: Bit) -> Bit:
        """Return a or b."""
        if a is self.one or b is self.one or a is self.zero:
            return self.one if self.one in (a, b) else b
        return a if b is self.zero or a is b else self._gate("or", (a, b))

    def differ(self, a: Bit, b: Bit) -> Bit:
        """Return whether two bits differ."""
        for x, y in ((a, b), (b, a)):
            if not x.support:
                return y if x is self.zero else self.invert(y)
        return self.zero if a is b else self._gate("xor", (a, b))

    def choose(self, condition: Bit, yes: Bit, no: Bit) -> Bit:
        """Return one of two bits."""
        if not condition.support:
            return yes if condition is self.one else no
        if yes is no:
            return yes
        if not yes.support:
            return self.either(condition, no) if yes is self.one else self.both(self.invert(condition), no)
        if not no.support:
            return self.both(condition, yes) if no is self.zero else self.either(self.invert(condition), yes)
        return self._gate("choose", (condition, yes, no), ordered=True)

    def look_up(self, entries: Sequence[int], address: Sequence[Bit]) -> Bit:
        """Return a bit of a table in logic: entries of 0 and 1, and the position, its lowest bit first.

        A choice between two functions of the same lowest bits is one beside their tables, up to seven inputs.
        """
        if not address:
            return self.constant(entries[0])
        half = 1 << (len(address) - 1)
        if len(entries) <= half:
            return self.look_up(entries, address[:-1])
        no, yes = self.look_up(entries[:half], address[:-1]), self.look_up(entries[half:], address[:-1])
        if LOGIC_INPUTS < len(address) <= _MOST_WIDE and yes is not no and yes.support and no.support:
            return self.leaf(("beside", self.table(address[-1]), self.table(yes), self.table(no)))
        return self.choose(address[-1], yes, no)

    def _gate(self, operator: str, args: tuple[Bit, ...], ordered: bool = False) -> Bit:
        for key in ((operator, *args), *(() if ordered else ((operator, *reversed(args)),))):
            if key in self._known:
                return self._known[key]
        key = (operator, *args)
        # What has the most inputs is a table of its own, until the rest fits into one.
        support = frozenset[Bit]().union(*(arg.support for arg in args))
        fitted = list(args)
        while len(support) > LOGIC_INPUTS:
            widest = max(fitted, key=lambda arg: len(arg.support))
            fitted[fitted.index(widest)] = self.table(widest)
            support = frozenset[Bit]().union(*(arg.support for arg in fitted))
        found = Bit(key, support)
        self._known[key] = found
        return found
