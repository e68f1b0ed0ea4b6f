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
RIVALS = RESULTS.with_name("mcu_rivals.json")
RIVALS_COMMAND = f"{COMMAND}.rivals"
MODELS_COMMAND = f"{COMMAND}.models"
PRODUCTS = RESULTS.with_name("mcu_products.json")
PRODUCTS_COMMAND = f"{COMMAND}.products"


@dataclass(frozen=True)
class Row:
    """A kernel on a board.

    Attributes:
        work: What the kernel computes.
        board: The processor.
        instructions: Per element.
        code: Bytes of code.
        tables: Bytes of tables.
    """

    work: str
    board: str
    instructions: float
    code: int
    tables: int


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


@dataclass(frozen=True)
class ProductRow:
    """A product of 8-bit integers on a board.

    Attributes:
        work: What is done.
        size: Rows x length of the sums x columns.
        board: The processor.
        instructions: Per multiply-add.
    """

    work: str
    size: str
    board: str
    instructions: float


@dataclass(frozen=True)
class RivalRow:
    """The float ViT by another generator of C.

    Attributes:
        rival: Its name.
        version: Its release or commit.
        board: The processor.
        instructions: Millions of a run.
        flash: Bytes of code and constants.
        memory: Bytes of variables.
        stack: Bytes of stack at most.
        difference: The greatest of a logit from onnxruntime's.
    """

    rival: str
    version: str
    board: str
    instructions: float
    flash: int
    memory: int
    stack: int
    difference: float


def store(rows: Sequence[Row], compiler: Sequence[str]) -> None:
    """Write the rows, and which compilers made the kernels."""
    found = {"command": COMMAND, "compilers": list(compiler), "rows": [asdict(row) for row in rows]}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def store_models(rows: Sequence[ModelRow], compilers: Sequence[str], places: Sequence[tuple[str, str]]) -> None:
    """Write rows beside those of other places that are stored.

    Args:
        rows: The rows.
        compilers: Which compilers there were.
        places: Model and board of all rows, in their order.
    """
    before = json.loads(MODELS.read_text(encoding="utf-8"))["rows"] if MODELS.exists() else []
    known = {(row.model, row.board): row for row in (*(ModelRow(**row) for row in before), *rows)}
    found = {"command": MODELS_COMMAND, "compilers": list(compilers),
             "rows": [asdict(known[place]) for place in places if place in known]}  # fmt: skip
    MODELS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def store_products(rows: Sequence[ProductRow], compilers: Sequence[str]) -> None:
    """Write the rows, and which compilers there were."""
    found = {"command": PRODUCTS_COMMAND, "compilers": list(compilers), "rows": [asdict(row) for row in rows]}
    PRODUCTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def store_rivals(rows: Sequence[RivalRow], compilers: Sequence[str], commands: Mapping[str, str]) -> None:
    """Write the rows, which compilers there were, and how each rival was called."""
    found = {"command": RIVALS_COMMAND, "compilers": list(compilers), "calls": dict(commands),
             "rows": [asdict(row) for row in rows]}  # fmt: skip
    RIVALS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def results() -> dict[str, Any]:
    """Return what is stored."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def table(found: Mapping[str, Any]) -> str:
    """Return the table of docs/microcontrollers.md: per kernel and processor instructions per element, and bytes."""
    rows = [Row(**row) for row in found["rows"]]
    boards, works = (list(dict.fromkeys(names)) for names in ([r.board for r in rows], [r.work for r in rows]))
    lines = [f"| kernel | {' | '.join(boards)} |", "|---" * (len(boards) + 1) + "|"]
    for work in works:
        cells = {row.board: f"{row.instructions:.1f}, {_bytes(row)}" for row in rows if row.work == work}
        lines.append(f"| {work} | {' | '.join(cells.get(board, '-') for board in boards)} |")
    made = f"From `{found['command']}` ({', '.join(found['compilers'])}, -O2)"
    return f"{made}: instructions per element, and bytes of code + tables.\n\n" + "\n".join(lines)


def _bytes(row: Row) -> str:
    return f"{row.code} + {row.tables}" if row.tables else str(row.code)


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


def products_table() -> str:
    """Return the table of docs/microcontrollers.md of products: instructions per multiply-add."""
    found = json.loads(PRODUCTS.read_text(encoding="utf-8"))
    rows = [ProductRow(**row) for row in found["rows"]]
    boards = list(dict.fromkeys(row.board for row in rows))
    lines = [f"| product | rows x length x columns | {' | '.join(boards)} |", "|---" * (len(boards) + 2) + "|"]
    for work, size in dict.fromkeys((row.work, row.size) for row in rows):
        counts = {row.board: f"{row.instructions:.2f}" for row in rows if (row.work, row.size) == (work, size)}
        lines.append(f"| {work} | {size} | {' | '.join(counts.get(board, '-') for board in boards)} |")
    made = f"From `{found['command']}` ({', '.join(found['compilers'])}, -O2)"
    return f"{made}: instructions per multiply-add.\n\n" + "\n".join(lines)


def rivals_table() -> str:
    """Return the table of docs/microcontrollers.md of the float ViT by other generators, with softq's beside."""
    found = json.loads(RIVALS.read_text(encoding="utf-8"))
    rows = [RivalRow(**row) for row in found["rows"]]
    lines = ["| generator | processor | M instructions | flash | memory | stack |", "|---" * 6 + "|"]
    for ours in (ModelRow(**row) for row in json.loads(MODELS.read_text(encoding="utf-8"))["rows"]):
        if ours.model == "ViT, float" and any(row.board == ours.board for row in rows):
            cells = (ours.code + ours.tables + ours.weights, ours.arena, ours.stack)
            told = " | ".join(f"{cell:,}" for cell in cells)
            lines.append(f"| softq | {ours.board} | {ours.instructions:.1f} | {told} |")
    for row in rows:
        told = " | ".join(f"{cell:,}" for cell in (row.flash, row.memory, row.stack))
        lines.append(f"| {row.rival} {row.version} | {row.board} | {row.instructions:.1f} | {told} |")
    calls = ", ".join(f"`{call}`" for call in found["calls"].values())
    made = f"From `{found['command']}` and `{MODELS_COMMAND}` ({', '.join(found['compilers'])}, -O2)"
    return f"{made}; called as {calls}.\n\n" + "\n".join(lines)
