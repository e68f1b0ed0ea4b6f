"""Pictures of the concepts, from what softq has: a program, an error that is computed, verdicts that were given."""

from __future__ import annotations

import json
import re
from collections import Counter
from html import escape
from pathlib import Path

import numpy as np

from docs.pages.charts import Axis, Line, bars, chart
from softq.methods import METHODS
from softq.rowprog import DType, Kind, run
from softq.rowprog.program import Node

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
ROWS, COLUMNS, SPREAD = 16, 16, 1.0
_BOX, _STEP, _COLUMN = 30, 46, 210


def program() -> str:
    """Return the program of 8-bit scores of the default method with 4 bits, drawn node by node."""
    method = METHODS.entries()["deferred-log"]
    found = method.program(method.resolve(method.configure({"bits": 4, "step": 0.0625, "r": 2}), False),
                           scores=DType.I8)  # fmt: skip
    shown = [node for node in found.nodes() if node.op not in ("const", "table")]
    depth: dict[Node, int] = {}
    for node in shown:
        depth[node] = 1 + max((depth[arg] for arg in node.args if arg in depth), default=-1)
    taken: Counter[int] = Counter()
    place: dict[Node, tuple[int, int]] = {}
    for node in shown:
        place[node] = (20 + _COLUMN * taken[depth[node]], 10 + _STEP * depth[node])
        taken[depth[node]] += 1
    wide = 20 + _COLUMN * max(taken.values())
    high = 20 + _STEP * (1 + max(depth.values()))
    parts = [f'<figure class="softq"><svg class="softq" viewBox="0 0 {wide} {high}" role="img" '
             'aria-label="The row program of deferred-log for 8-bit scores">']  # fmt: skip
    for node in shown:
        x, y = place[node]
        for arg in node.args:
            if arg in place:
                a, b = place[arg]
                parts.append(f'<line class="edge" x1="{a + 90}" y1="{b + _BOX}" x2="{x + 90}" y2="{y}"/>')
    outputs = {node: name for name, node in found.outputs.items()}
    for node in shown:
        x, y = place[node]
        kind = "row" if node.kind is Kind.ROW else "scalar"
        name = f"{outputs[node]} = {_text(node)}" if node in outputs else _text(node)
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="180" height="{_BOX}" rx="4"/>')
        parts.append(f'<text x="{x + 90}" y="{y + 19}" text-anchor="middle">{escape(name)}</text>')
    parts.append(
        '</svg><figcaption><span style="color:var(--softq-1)">■</span> a row of N values &ensp;'
        '<span style="color:var(--softq-2)">■</span> one value per row</figcaption></figure>'
    )
    return "".join(parts)


def _text(node: Node) -> str:
    """Return an operator with its constants and its type."""
    constants = [str(arg.attrs["value"]) for arg in node.args if arg.op == "const"]
    tables = [f"table of {len(arg.attrs['values'])}" for arg in node.args if arg.op == "table"]  # pyright: ignore
    name = "scores" if node.op == "input" else node.op
    return " ".join([name, *constants, *tables]) + f": {node.dtype.value}"


def deferral() -> str:
    """Return the error of P V against the length of the row, the division before the product and behind it."""
    method = METHODS.entries()["deferred-log"]
    options = method.resolve(method.configure({"bits": 8, "weight_bits": 8}), False)
    compiled = method.program(options)
    early: list[tuple[float, float]] = []
    rounded: list[tuple[float, float]] = []
    late: list[tuple[float, float]] = []
    for length in LENGTHS:
        random = np.random.default_rng(length)
        scores = (random.normal(size=(ROWS, length)) * SPREAD).astype(np.float32)
        values = random.normal(size=(length, COLUMNS)) + 0.5
        p = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        out = run(compiled, scores)
        weights, total = out["weights"].astype(np.float64), out["normalizer"].astype(np.float64)
        for points, product in (
            (early, np.rint(p * 255) / 255 @ values),
            (rounded, np.rint(weights / total * 255) / 255 @ values),
            (late, weights @ values / total),
        ):
            error = np.linalg.norm(product - p @ values) / np.linalg.norm(p @ values)
            points.append((float(np.log2(length)), float(np.log10(error))))
    x = Axis("elements of a row", 5, 12, [(np.log2(n), f"{n:,}") for n in LENGTHS])
    y = Axis("relative error of P V", -3, 0, [(0, "1"), (-1, "0.1"), (-2, "0.01"), (-3, "0.001")])
    lines = [
        Line("exact softmax, probabilities rounded to 8 bits", early),
        Line("codes of deferred-log, divided and rounded to 8 bits before the product", rounded),
        Line("the same codes with 8-bit weights, divided after the product", late),
    ]
    return chart("Error of P V, division before and after the product", x, y, lines)


def verdicts() -> str:
    """Return how many softmaxes of other people's models got which verdict, and why."""
    found = json.loads((ROOT / "benchmarks" / "third_party.json").read_text(encoding="utf-8"))
    rows: Counter[tuple[str, str]] = Counter()
    for model in found["rows"]:
        for softmax in model["softmaxes"]:
            match = re.search(r"action='(\w+)', reason=['\"](.*?)['\"],? ?(?:node|\)|$)", softmax["verdict"])
            assert match is not None, softmax["verdict"]
            rows[match[1], re.split(r" \(it |;|: ", match[2])[0]] += 1
    total = sum(rows.values())
    models = sum(1 for model in found["rows"] if model["softmaxes"])
    drawn = bars(
        "Verdicts on the softmaxes of other people's models",
        [(f"{action}: {re.sub(r'node .*? has', 'a node with', reason)}", count)
         for (action, reason), count in sorted(rows.items(), key=lambda row: -row[1])],
    )  # fmt: skip
    return f"{drawn}\n\n{total} softmaxes in {models} models from packages, from `{found['command']}`."


PICTURES = {"program": program, "deferral": deferral, "verdicts": verdicts}
