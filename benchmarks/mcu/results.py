"""What `python -m benchmarks.mcu` and `.models` counted, and the tables of it (no TVM)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.with_suffix(".json")
COMMAND = "python -m benchmarks.mcu"
MODELS = RESULTS.with_name("mcu_models.json")
MODELS_COMMAND = f"{COMMAND}.models"


@dataclass(frozen=True)
class Row:
    """A kernel on a board.

    Attributes:
        work: What the kernel computes.
        board: The processor.
        instructions: Per element.
        bytes: Of code and tables.
    """

    work: str
    board: str
    instructions: float
    bytes: int


@dataclass(frozen=True)
class ModelRow:
    """A model on a board.

    Attributes:
        model: What it is.
        board: The processor.
        instructions: Millions of a run.
        code: Bytes of its instructions.
        tables: Bytes of its constants but weights.
        weights: Bytes of these.
        arena: Bytes of memory.
        stack: Bytes of stack at most.
    """

    model: str
    board: str
    instructions: float
    code: int
    tables: int
    weights: int
    arena: int
    stack: int


def store(rows: Sequence[Row], compiler: Sequence[str]) -> None:
    """Write the rows, and which compilers made the kernels."""
    found = {"command": COMMAND, "compilers": list(compiler), "rows": [asdict(row) for row in rows]}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def results() -> dict[str, Any]:
    """Return what is stored."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def table(found: Mapping[str, Any]) -> str:
    """Return the table of docs/microcontrollers.md: per kernel and processor instructions per element, and bytes."""
    rows = [Row(**row) for row in found["rows"]]
    boards, works = (list(dict.fromkeys(names)) for names in ([r.board for r in rows], [r.work for r in rows]))
    lines = [f"| kernel | {' | '.join(boards)} |", "|---" * (len(boards) + 1) + "|"]
    for work in works:
        cells = {row.board: f"{row.instructions:.1f}, {row.bytes}" for row in rows if row.work == work}
        lines.append(f"| {work} | {' | '.join(cells.get(board, '-') for board in boards)} |")
    made = f"From `{found['command']}` ({', '.join(found['compilers'])}, -O2)"
    return f"{made}: instructions per element, and bytes of code and tables.\n\n" + "\n".join(lines)


def models_table() -> str:
    """Return the table of docs/microcontrollers.md of whole models."""
    found = json.loads(MODELS.read_text(encoding="utf-8"))
    lines = [
        "| model | processor | M instructions | flash | of that code | tables | weights | arena | stack |",
        "|---" * 9 + "|",
    ]
    for row in (ModelRow(**row) for row in found["rows"]):
        flash = row.code + row.tables + row.weights
        numbers = (flash, row.code, row.tables, row.weights, row.arena, row.stack)
        cells = " | ".join(f"{number:,}" for number in numbers)
        lines.append(f"| {row.model} | {row.board} | {row.instructions:.1f} | {cells} |")
    made = f"From `{found['command']}` ({', '.join(found['compilers'])}, -O2)"
    return f"{made}: of one run, in bytes.\n\n" + "\n".join(lines)
