"""What a search for a plan found, as it lies beside the plan's file: `PLAN.measured.json` beside `PLAN.json`.

The plan says what each site gets, for `convert`; the record says what that cost, for a report.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softq.errors import InputError
from softq.files import read_json, read_text
from softq.plans import Plan, load_plan
from softq.sweeps.records import SCHEMA


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


def read_record(path: str | os.PathLike[str]) -> tuple[Plan, dict[str, Any]]:
    """Return the plan in a file, and its record with the fields that `record_text` writes.

    Raises:
        InputError: there is no plan, or no record beside it, or the record is none, or of another plan.
    """
    plan, record = load_plan(path), record_of(path)
    try:
        found: Any = read_json(record)
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)}: {record}, which softq plan writes beside it, cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise InputError(f"{record} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InputError(f"{record} is no record of a plan of schema {SCHEMA}")
    if found.get("plan_hash") != _hash(read_text(path)):
        raise InputError(f"{os.fspath(path)} is not the plan that {record} was measured with")
    return plan, found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
