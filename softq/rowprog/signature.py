"""How an operator is described: what it takes and gives, what it costs, and what has to be proved of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from softq.errors import UsageError
from softq.rowprog.types import DType, Kind

Group = Literal["leaf", "arithmetic", "logic", "conversion", "lookup", "float", "reduction", "group", "loop", "proof"]
Cost = Literal["free", "cheap", "dear"]

_CLASSES = {"T": "numbers", "I": "integers", "E": "values"}
"""What stands for any one number type, any one integer type, and any one type with bool among them."""


@dataclass(frozen=True)
class Operand:
    """What an operator takes at one position.

    Attributes:
        kind: The only kind allowed; None: rows and scalars.
        type: Name of the only type allowed, or of a class of types; operands of one class have one type.
    """

    kind: Kind | None
    type: str

    @staticmethod
    def parse(text: str) -> Operand:
        """Return the operand that a part of a signature stands for: `T`, `row T`, `table E`."""
        first, _, rest = text.partition(" ")
        kind = next((kind for kind in Kind if rest and kind.value == first), None)
        return Operand(kind, rest if kind else text)

    def takes(self, dtype: DType, kind: Kind) -> bool:
        """Say whether a value of this type and kind is allowed here."""
        if self.kind is not kind and (self.kind is not None or kind is Kind.TABLE):
            return False
        if self.type in _CLASSES:
            return dtype is not DType.BOOL if self.type == "T" else dtype.is_integer or self.type == "E"
        return dtype.value == self.type


@dataclass(frozen=True)
class Demand:
    """What has to be proved before an operator is emitted: an interval, and no NaN.

    Attributes:
        text: The demand as the documentation has it.
        operand: Position of the operand that it is about; None: the result.
        what: What messages call that.
        interval: Its ends, by the type of the result and the size of the table; None: the operator's rule proves it.
        integers: Whether it is asked of integer results only.
    """

    text: str
    operand: int | None = None
    what: str = "the result"
    interval: Callable[[DType, int], tuple[float, float]] | None = None
    integers: bool = False


@dataclass(frozen=True)
class Op:
    """An operator.

    Attributes:
        name: Its name in printed programs.
        group: What kind of operator it is.
        signature: Argument and result types; `T` is any one number type, `I` any one integer type, `E` any one type.
        meaning: Its one meaning, the same on every backend.
        demands: What range analysis has to prove before it is emitted.
        cost: Of one element: nothing, one operation on numbers, or more than a store and a load.
        modular: Whether integer results are right in any width that holds them, whatever is cut off the operands.
        of_empty_row: What a reduction of a type gives where there are no elements, and begins with.
    """

    name: str
    group: Group
    signature: str
    meaning: str
    demands: tuple[Demand, ...] = ()
    cost: Cost = "cheap"
    modular: bool = False
    of_empty_row: Callable[[DType], float] = lambda dtype: 0

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What it takes, by position."""
        taken = self.signature.partition("->")[0].strip()
        return tuple(Operand.parse(part) for part in taken.split(", ")) if taken else ()

    @cached_property
    def result(self) -> Operand:
        """What it gives."""
        return Operand.parse(self.signature.partition("-> ")[2])

    @property
    def has_common_type(self) -> bool:
        """Whether two of its operands, or one and the result, have the same type of a class: kernels compute in it."""
        types = [o.type for o in (*self.operands, self.result) if o.kind is None and o.type in _CLASSES]
        return len(set(types)) < len(types)

    def type_of(self, given: Sequence[tuple[DType, Kind]]) -> tuple[DType | None, Kind]:
        """Return the type and kind of the result; the type is None where operands do not decide it.

        Raises:
            UsageError: there are too few or too many operands, or one has another type or kind than the operator takes.
        """
        if len(given) != len(self.operands):
            raise UsageError(f"{self.name} takes {len(self.operands)} operands, not {len(given)}")
        types: dict[str, DType] = {}
        for operand, (dtype, kind) in zip(self.operands, given, strict=True):
            if not operand.takes(dtype, kind):
                raise UsageError(f"{self.name} {_refusal(operand, dtype, kind)}")
            first = types.setdefault(operand.type, dtype)
            if first is not dtype:
                raise UsageError(
                    f"{self.name} of {first.value} and {dtype.value}: cast one of them, nothing is promoted"
                )
        rows = any(kind is Kind.ROW for _, kind in given)
        dtype = types.get(self.result.type) or next((d for d in DType if d.value == self.result.type), None)
        return dtype, self.result.kind or (Kind.ROW if rows else Kind.SCALAR)


def _refusal(operand: Operand, dtype: DType, kind: Kind) -> str:
    wanted = _CLASSES.get(operand.type, operand.type)
    if operand.kind is not None:
        return f"takes a {operand.kind.value} of {wanted}, not a {kind.value} of {dtype.value}"
    if kind is Kind.TABLE:
        return "takes rows and scalars; a table is only looked up"
    return f"takes {wanted}, not {dtype.value}"
