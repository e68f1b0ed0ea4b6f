"""What the product of weights with the rows of V is made of, before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from softq.codegen.verilog.module import Port
from softq.codegen.verilog.plan import CorePlan, Field
from softq.codegen.verilog.signals import shape
from softq.errors import RefusalError, UsageError
from softq.rowprog.ranges.interval import Interval

VALUE_BITS = 8
"""Bits of an element of V, two's complement."""

MOST_FRACTION = 16
WIDEST = 4096
SUMS, AVERAGES, NORMALIZER = "sums", "averages", "normalizer"


@dataclass(frozen=True)
class ValueSettings:
    """What the product with V is built for.

    Attributes:
        width: Elements of a row of V, and of a result.
        lanes: Elements of a beat of V; they divide the width.
        fraction: Bits of an average behind the point.
        multipliers: Whether products are written as such, which tools map to multipliers; else as shifts and adders.
        outputs: What the core gives: `sums` or `averages`, and `normalizer` of each row beside.
    """

    width: int
    lanes: int = 1
    fraction: int = 0
    multipliers: bool = False
    outputs: tuple[str, ...] = (AVERAGES,)

    def __post_init__(self) -> None:
        """Refuse what no core can be built for."""
        if not 1 <= self.width <= WIDEST:
            raise UsageError(f"values is {self.width}; allowed is 1 to {WIDEST} elements of a row of V")
        if self.lanes < 1 or self.width % self.lanes:
            raise UsageError(
                f"value lanes is {self.lanes}; allowed is what divides {self.width}, the elements of a row"
            )
        if not 0 <= self.fraction <= MOST_FRACTION:
            raise UsageError(f"fraction is {self.fraction}; allowed is 0 to {MOST_FRACTION} bits")
        unknown = [name for name in self.outputs if name not in (SUMS, AVERAGES, NORMALIZER)]
        if unknown or (SUMS in self.outputs) == (AVERAGES in self.outputs):
            given = ", ".join(self.outputs) or "none"
            raise UsageError(f"outputs with V are {given}; allowed is sums or averages, with normalizer or without")

    @property
    def chunks(self) -> int:
        """Beats of a row of V."""
        return self.width // self.lanes


class WeightedPlan:
    """A core of weights and their product with V.

    Args:
        rows: The core of the weights; its row is what says which weight an element has, its only number, if there is
            one, the normalizer.
        entries: The weight of each value of that row; None where it is the weight.
        is_sum: Whether the normalizer is the sum of the weights.
        settings: What the product is for.

    Raises:
        RefusalError: the program's weights may be negative, or it gives no averages.
    """

    def __init__(self, rows: CorePlan, entries: Sequence[int] | None, is_sum: bool, settings: ValueSettings) -> None:
        self.rows = rows
        self.settings = settings
        self.position: Field = rows.field(rows.row)
        self.entries = None if entries is None else tuple(entries)
        known = rows.simplified.intervals[rows.row]
        weights = Interval(min(entries), max(entries)) if entries is not None else known
        name = rows.source.name
        if self.position.signed or weights.low < 0:
            raise RefusalError(
                f"program {name}: its weights may be negative; a product with V takes those of 0 and more"
            )
        if AVERAGES in settings.outputs and not is_sum:
            raise RefusalError(
                f"program {name}: averages are divided by the sum of the weights, which it does not give"
            )
        self.greatest = int(weights.high)

    @property
    def divides(self) -> bool:
        """Whether sums are divided."""
        return AVERAGES in self.settings.outputs

    @property
    def gives_normalizer(self) -> bool:
        """Whether the normalizer leaves the core."""
        return NORMALIZER in self.settings.outputs

    @cached_property
    def normalizer(self) -> Field | None:
        """What sums are divided by."""
        return next((self.rows.field(node) for node in self.rows.numbers.values()), None)

    @property
    def shifts(self) -> tuple[int, ...] | None:
        """By how much V is shifted for each weight of a table of powers of two, -1 for a weight of 0; else None."""
        if self.entries is None or not self.greatest or any(entry & (entry - 1) for entry in self.entries):
            return None
        return tuple(entry.bit_length() - 1 for entry in self.entries)

    @cached_property
    def sum_bits(self) -> int:
        """Bits of a sum of the longest row, two's complement."""
        most = self.greatest * self.rows.settings.length
        return shape(Interval(-(most << (VALUE_BITS - 1)), most << (VALUE_BITS - 1)))[0]

    @property
    def result_bits(self) -> int:
        """Bits of an element that the core gives."""
        return VALUE_BITS + self.settings.fraction if self.divides else self.sum_bits

    @property
    def result_name(self) -> str:
        """What the core gives of each element."""
        return AVERAGES if self.divides else SUMS

    @property
    def padded(self) -> int:
        """Bits that a result takes in its stream: whole bytes."""
        return -(-self.result_bits // 8) * 8

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """The ports beside clock and reset."""
        given = [port for port in self.rows.ports if port.name[:7] not in ("m_axis_", "n_axis_")]
        numbers = [port for port in self.rows.ports if port.name.startswith("n_axis_")] if self.gives_normalizer else []
        point = f", {self.settings.fraction} bits behind the point" if self.divides and self.settings.fraction else ""
        return (
            *given,
            Port("v_axis_tdata", VALUE_BITS * self.settings.lanes, False, "V, two's complement: a row of each score"),
            Port("v_axis_tvalid", 1, False, "V is offered"),
            Port("v_axis_tready", 1, True, "V is taken"),
            Port("o_axis_tdata", self.padded, True, f"{self.result_name}, two's complement{point}"),
            Port("o_axis_tvalid", 1, True, "a result is offered"),
            Port("o_axis_tready", 1, False, "a result is taken"),
            Port("o_axis_tlast", 1, True, "the row of results ends with this beat"),
            *numbers,
        )
