"""What an audit found, as values that JSON has: `audit.json`, and the lines of `steps.jsonl` that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = 1
"""Version of `audit.json`: fields may be added, a change of meaning is another version."""

IDENTIFICATION, TABLE = "identification", "table"
IDENTIFIED = "Which method it is"


@dataclass(frozen=True)
class FaultRecord:
    """One thing that is wrong.

    Attributes:
        kind: A word: value, wraps, length, axis, batch, special, mask, repeat, threads, order; ended, hung, refused or
            malformed where there was no result.
        text: What is wrong, in a sentence.
        count: How many of the rows that were tried show it; 0 where that was not counted.
        shape: Of the smallest scores that were found to show it.
        folder: Where these are, with the file and a program that shows it: below the folder of the audit.
    """

    kind: str
    text: str
    count: int
    shape: tuple[int, ...]
    folder: str


@dataclass(frozen=True)
class Step:
    """One step of an audit.

    Attributes:
        name: Of the check; `identification` and `table` come last.
        title: A few words.
        seconds: How long it took.
        facts: What was seen; the step says which.
        faults: What is wrong.
    """

    name: str
    title: str
    seconds: float
    facts: Mapping[str, Any]
    faults: tuple[FaultRecord, ...]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        conditions: What was looked at: runtime, options, versions, dtype, scores, result, axis, length, longest,
            tolerance, seed, and softq's version.
        steps: What was done, in order.
        missing: Names of the steps that the time did not suffice for.
    """

    conditions: Mapping[str, Any]
    steps: tuple[Step, ...]
    missing: tuple[str, ...]

    @property
    def faults(self) -> Sequence[FaultRecord]:
        """All faults, in the order of the steps."""
        return [fault for step in self.steps for fault in step.faults]

    def step(self, name: str) -> Step | None:
        """Return the step of a name, or None if it was not done."""
        return next((step for step in self.steps if step.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the audit as plain values."""
        return {"schema": SCHEMA} | asdict(self)


def step_of(plain: Mapping[str, Any]) -> Step:
    """Return the step that a line of `steps.jsonl` holds."""
    faults = tuple(FaultRecord(**fault | {"shape": tuple(fault["shape"])}) for fault in plain["faults"])
    return Step(plain["name"], plain["title"], plain["seconds"], plain["facts"], faults)
