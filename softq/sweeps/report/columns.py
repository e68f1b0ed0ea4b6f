"""The numbers that settings have besides their metric: of each the heading, what it is, and where it comes from.

Of each less is better, so that each can take the place of the bits: the page draws the loss against any of them, and
its table sorts by them. A column that no setting has a number for is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softq.sweeps.report.interval import Interval

if TYPE_CHECKING:
    from softq.sweeps.records import Outcome
    from softq.sweeps.report.cost import Cost
    from softq.timing import TimeRatio


@dataclass(frozen=True)
class Column:
    """A number of settings, of which less is better.

    Attributes:
        name: Its key in `numbers`.
        title: Its heading.
        unit: Its unit; empty for counts and ratios.
        what: What it is, in a sentence.
    """

    name: str
    title: str
    unit: str
    what: str


@dataclass(frozen=True)
class _Source:
    column: Column
    number: Callable[[Outcome, Sequence[Cost]], Interval | None]


_ON = "@"
"""Stands between a number and the target that it was measured on; no cost of a target has it in its name."""


def _exact(value: float | None) -> Interval | None:
    return None if value is None else Interval(value, None, None)


def _greatest(values: Iterable[int]) -> Interval | None:
    return _exact(max(values, default=None))


def _sum(values: Sequence[int | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return _exact(sum(known)) if known and len(known) == len(values) else None


def _time(ratio: TimeRatio | None) -> Interval | None:
    return None if ratio is None else Interval(ratio.median, ratio.low, ratio.high)


_SOURCES = (
    _Source(
        Column("float_operations", "float operations on float scores", "per element",
               "Float operations per element when the scores are floats, at the site with the most."),
        lambda outcome, costs: _greatest(cost.float_operations for cost in costs),
    ),
    _Source(
        Column("widest_integer_bits", "widest integer", "bits",
               "Bits of the widest integer that is proved for the rows' length, at the site with the most; 0 is none."),
        lambda outcome, costs: _greatest(cost.widest_integer_bits for cost in costs),
    ),
    _Source(
        Column("matrix_bytes", "matrices of codes", "bytes",
               "Bytes of the codes of all sites, packed, for one sample where the first axis has no number."),
        lambda outcome, costs: _sum([cost.matrix_bytes for cost in costs]),
    ),
    _Source(
        Column("time_ratio", "time over float", "",
               "Time of a run over the float model's, as the sweep ran both (--time): median and quartiles."),
        lambda outcome, costs: _time(outcome.time_ratio),
    ),
    _Source(
        Column("size_bytes", "size", "bytes", "What the files of the converted model take, weights too (--time)."),
        lambda outcome, costs: _exact(outcome.size_bytes),
    ),
)  # fmt: skip


def columns_of(settings: Iterable[Mapping[str, Interval]]) -> tuple[Column, ...]:
    """Return the columns for which a setting has a number, in order."""
    known = list(dict.fromkeys(name for numbers in settings for name in numbers))
    own = [source.column for source in _SOURCES]
    names = {column.name for column in own}
    told = "What it takes on the target that the sweep's --cost names, before it is built."
    targets = dict.fromkeys(target for name in known if (target := name.partition(_ON)[2]))
    built = [column for target in targets for column in _columns_on(target)]
    return (
        *(column for column in (*own, *built) if column.name in known),
        *(Column(name, name, "", told) for name in known if name not in names and _ON not in name),
    )


def _columns_on(target: str) -> tuple[Column, Column]:
    made = f"what softq build --target {target} makes of it"
    return (
        Column(f"time_ratio{_ON}{target}", f"time over float, {target}", "",
               f"Time of a run of {made} over the float model's in onnxruntime: median and quartiles (--time-on)."),
        Column(f"size_bytes{_ON}{target}", f"size, {target}", "bytes",
               f"What a user would ship of {made}, weights too (--time-on)."),
    )  # fmt: skip


def numbers_of(outcome: Outcome, costs: Sequence[Cost]) -> dict[str, Interval]:
    """Return the numbers of a setting that are known, by the names of the columns; `costs` are its own."""
    amounts = {} if outcome.cost is None else outcome.cost.amounts
    found = {name: _exact(amount.value) for name, amount in amounts.items()}
    found |= {source.column.name: source.number(outcome, costs) for source in _SOURCES}
    for target, timed in outcome.built.items():
        numbers = (_time(timed.time_ratio), _exact(timed.size_bytes))
        found |= {column.name: number for column, number in zip(_columns_on(target), numbers, strict=True)}
    return {name: number for name, number in found.items() if number is not None and number.value is not None}
