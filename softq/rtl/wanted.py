"""What the cores of a model are built for, from the texts of a target's options."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from softq.codegen.verilog.plan import Settings
from softq.errors import UsageError
from softq.rowprog import DType
from softq.rtl.arguments import SCORES
from softq.rtl.constraints import SPEED, check_clock
from softq.vectors.making import scores_type

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Wanted:
    """What cores of a model are built for.

    Attributes:
        lanes: Elements of a beat.
        length: Elements of the longest row; None: as the model says.
        scores: Type of the scores; None: that of their quantizer in the model, else i8.
        step: Real value of one unit of the scores; None: as their quantizer or the method's options say.
        outputs: What cores give, as for `rtl`.
        clock: Megahertz that constraints ask for.
        reset: Whether there is a synchronous reset.
        packed: Whether results of at most 4 bits share bytes.
        cut: Whether rows that are too long are cut and marked.
        products: How products of elements are computed: parallel or serial.
        constants: Whether a number that is the same for every row is in the stream of numbers.
        registers: Whether tables are written through a port, with a set for each head that has numbers of its own.
    """

    lanes: int = 1
    length: int | None = None
    scores: DType | None = None
    step: float | None = None
    outputs: tuple[str, ...] = ()
    clock: float = SPEED
    reset: bool = True
    packed: bool = False
    cut: bool = False
    products: str = "parallel"
    constants: bool = True
    registers: bool = False

    def settings(self, length: int, heads: int = 1) -> Settings:
        """Return the settings of a core whose longest row has so many elements."""
        return Settings(length, self.lanes, self.reset, heads, self.packed, self.cut, self.products, self.constants)


def parse_wanted(texts: Mapping[str, str]) -> Wanted:
    """Return what texts by the names of `Wanted` ask for; an empty one leaves it to the model.

    Raises:
        UsageError: a text is none of those that are allowed.
    """
    found = Wanted(
        lanes=_number(texts, "lanes", int),
        length=_number(texts, "length", int) if texts["length"] else None,
        scores=scores_type(texts["scores"], SCORES) if texts["scores"] else None,
        step=_number(texts, "step", float) if texts["step"] else None,
        outputs=tuple(name for name in texts["outputs"].split("+") if name),
        clock=_number(texts, "clock", float),
        reset=_truth(texts, "reset"),
        packed=_truth(texts, "packed"),
        cut=_truth(texts, "cut"),
        products=texts["products"],
        constants=_truth(texts, "constants"),
        registers=_truth(texts, "registers"),
    )
    if found.step is not None and not 0 < found.step < math.inf:
        raise UsageError(f"step is {texts['step']}; it must be a number above 0")
    check_clock(found.clock)
    found.settings(1 if found.length is None else found.length)  # Refuses before the work what no core is built for.
    return found


def _number(texts: Mapping[str, str], name: str, kind: Callable[[str], T]) -> T:
    try:
        return kind(texts[name])
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{name} is {texts[name]!r}; expected {what}") from None


def _truth(texts: Mapping[str, str], name: str) -> bool:
    if texts[name] not in ("yes", "no"):
        raise UsageError(f"{name} is {texts[name]!r}; allowed is yes or no")
    return texts[name] == "yes"
