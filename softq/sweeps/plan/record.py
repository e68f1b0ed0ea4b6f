"""What a search for a plan found, as it lies beside the plan's file: `PLAN.measured.json` beside `PLAN.json`.

The plan says what each site gets, for `convert`; the record says what that cost, for a report.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softq.errors import InputError
from softq.plans import Plan, load_plan
from softq.sweeps.evaluate.evaluator import Measurement
from softq.sweeps.records import SCHEMA, estimate_of


@dataclass(frozen=True)
class Planned:
    """A plan and what was measured of it.

    Attributes:
        file: Name of the plan's file.
        plan: The plan.
        bits: Bits of each site, 32 where it stays float.
        mean_bits: Their mean.
        metric: Name of the metric.
        budget: The budget as it was given.
        held: Whether the budget was kept on both data.
        sentence: What the verdict rests on.
        split: Which data served the search and which the verification.
        searched: The measurement on the data of the search.
        verified: The measurement on the other data.
        measured: How many plans were measured.
        notes: What was left out.
        command: What reproduces it.
    """

    file: str
    plan: Plan
    bits: Mapping[str, int]
    mean_bits: float
    metric: str
    budget: str
    held: bool
    sentence: str
    split: str
    searched: Measurement
    verified: Measurement
    measured: int
    notes: tuple[str, ...]
    command: str


def record_of(plan: str | os.PathLike[str]) -> Path:
    """Return the path of the record of a plan's file."""
    return Path(plan).with_suffix(".measured.json")


def record_text(found: Mapping[str, object], plan: str, *, metric: str, budget: str, command: str) -> str:
    """Return the record of a plan.

    Args:
        found: What `softq.sweeps.formatting.plan_to_json` gives.
        plan: The text of the plan's file.
        metric: Name of the metric.
        budget: The budget as it was given.
        command: What reproduces it.
    """
    more = {"plan_hash": _hash(plan), "metric": metric, "budget": budget, "command": command}
    return json.dumps({**found, **more}, indent=1, allow_nan=False) + "\n"


def read_planned(path: str | os.PathLike[str]) -> Planned:
    """Return a plan with what was measured of it.

    Raises:
        InputError: there is no plan, or no record beside it, or the record is of another plan or damaged.
    """
    plan, record = load_plan(path), record_of(path)
    try:
        found: Any = json.loads(record.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)}: {record}, which softq plan writes beside it, cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise InputError(f"{record} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InputError(f"{record} is no record of a plan of schema {SCHEMA}")
    if found.get("plan_hash") != _hash(Path(path).read_text(encoding="utf-8")):
        raise InputError(f"{os.fspath(path)} is not the plan that {record} was measured with")
    try:
        return Planned(
            file=Path(path).name,
            plan=plan,
            bits={str(site): int(bits) for site, bits in found["bits"].items()},
            mean_bits=float(found["mean_bits"]),
            metric=str(found["metric"]),
            budget=str(found["budget"]),
            held=found["gate"]["passed"] is True,
            sentence=str(found["gate"]["sentence"]),
            split=str(found["split"]),
            searched=_measurement(found["search"]),
            verified=_measurement(found["verification"]),
            measured=int(found["plans_measured"]),
            notes=tuple(map(str, found["notes"])),
            command=str(found["command"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{record} is damaged: {type(error).__name__}: {error}") from error


def _measurement(found: Mapping[str, Any]) -> Measurement:
    return Measurement(
        estimate_of(found["metric"]), estimate_of(found["loss"]), int(found["samples"]), float(found["seconds"])
    )  # fmt: skip


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
