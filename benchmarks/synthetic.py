"""The error of every method on synthetic rows: normal scores of many lengths and spreads.

    python -m benchmarks.synthetic [--bits 5] [--methods LIST] [--plot docs/synthetic.png]

For each method with its default options, at the width asked for or nearest to it, the L1 error of a row: the sum over
its elements of |p' - p|, p in float64 and p' as the method has it (weights / normalizer). It is 2 at most for weights
whose sum is 1. Writes benchmarks/synthetic.json. A length for which a method has no proof is left out, and for methods
to which the order of a row's elements matters, which the interpreter follows element by element, lengths above 1,024:
their several-pass forms stand for them. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.methods import METHODS, Method
from softq.rowprog import Program, run
from softq.rowprog.ranges import largest_length

RESULTS = Path(__file__).parent / "synthetic.json"
COMMAND = "python -m benchmarks.synthetic"

LENGTHS = (64, 256, 1024, 4096, 16384, 65536)
SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)
ELEMENTS = 2**18
"""Elements for each length and spread, so that long rows are fewer."""

BESIDE: Mapping[str, Sequence[Mapping[str, float]]] = {"deferred-log": ({"r": 2.06},)}
"""Settings of a method that are shown beside its default ones."""

_LONGEST_SCAN = 1024
"""Element by element the interpreter takes long, with integers most of all."""

Floats = NDArray[np.float64]


def scores(length: int, spread: float) -> NDArray[np.float32]:
    """Return the same rows each time: normal scores with a standard deviation of `spread`."""
    rows = max(4, min(64, ELEMENTS // length))
    drawn = np.random.default_rng((length, int(spread * 10))).normal(size=(rows, length))
    return (drawn * spread).astype(np.float32)


def errors(program: Program, x: NDArray[np.float32]) -> Floats:
    """Return the L1 error of each row."""
    wide = x.astype(np.float64)
    exact = np.exp(wide - wide.max(axis=-1, keepdims=True))
    exact /= exact.sum(axis=-1, keepdims=True)
    out = run(program, x)
    if program.is_pair:
        found = out["weights"].astype(np.float64) / np.maximum(out["normalizer"].astype(np.float64), 1e-300)
    else:
        found = out["probabilities"].astype(np.float64)
    return np.abs(found - exact).sum(axis=-1)


def width(method: Method, wanted: int) -> int | None:
    """Return the width that a method has nearest to the one wanted; None for a method without widths."""
    spec = method.options.specs().get("bits")
    return None if spec is None else int(min(max(wanted, spec.low), spec.high))


def measure(wanted: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the mean and the greatest error of each of the methods for each length and spread."""
    rows: list[dict[str, Any]] = []
    shown = [(n, method, more) for n, method in METHODS.entries().items() for more in ({}, *BESIDE.get(n, ()))]
    for name, method, more in shown:
        if name not in names or not method.drop_in:
            continue
        bits = width(method, wanted)
        options = method.resolve(method.configure({**more} if bits is None else {"bits": bits, **more}), False)
        if options.fitted:
            continue
        label = ", ".join([name, *(f"{key} = {value:g}" for key, value in more.items())])
        program = method.program(options)
        longest = largest_length(program)
        if any(node.op == "scan" and not node.dtype.is_float for node in program.nodes()):
            longest = min(longest, _LONGEST_SCAN)
        for length in LENGTHS:
            if length > longest:
                continue
            for spread in SPREADS:
                found = errors(program, scores(length, spread))
                rows.append({"method": label, "bits": bits, "length": length, "spread": spread,
                             "mean": float(found.mean()), "greatest": float(found.max())})  # fmt: skip
        print(f"{label}: done", flush=True)
    return rows


def table(found: dict[str, Any], method: str) -> str:
    """Return one method's errors as Markdown: mean and greatest of a row."""
    rows = {(row["length"], row["spread"]): row for row in found["rows"] if row["method"] == method}
    lines = [["N", *(f"spread {spread:g}" for spread in SPREADS)], ["---"] * (1 + len(SPREADS))]
    for length in LENGTHS:
        cells = [rows.get((length, spread)) for spread in SPREADS]
        shown = ["-" if c is None else f"{c['mean']:.3f} ({c['greatest']:.3f})" for c in cells]
        lines.append([f"{length:,}", *shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def overview(found: dict[str, Any]) -> str:
    """Return all methods as Markdown: mean error of a row for each length, over all spreads."""
    lines = [["method", "bits", *(f"N = {length:,}" for length in LENGTHS)], ["---"] * (2 + len(LENGTHS))]
    for name in dict.fromkeys(row["method"] for row in found["rows"]):
        mine = [row for row in found["rows"] if row["method"] == name]
        means = [[row["mean"] for row in mine if row["length"] == length] for length in LENGTHS]
        bits = mine[0]["bits"]
        shown = ["-" if not some else f"{np.mean(some):.3f}" for some in means]
        lines.append([f"`{name}`", "-" if bits is None else str(bits), *shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw the mean error against the spread, a panel for each length."""
    import matplotlib.pyplot as plt

    names: Sequence[str] = list(dict.fromkeys(row["method"] for row in found["rows"]))
    figure, panels = plt.subplots(2, 3, figsize=(13, 7.5), sharex=True, sharey=True)
    colours = plt.get_cmap("tab20")(np.linspace(0, 1, 20))
    for panel, length in zip(panels.flat, LENGTHS, strict=True):
        for number, name in enumerate(names):
            mine = [row for row in found["rows"] if row["method"] == name and row["length"] == length]
            if not mine:
                continue
            main = name == "deferred-log"
            bits = mine[0]["bits"]
            panel.plot(
                [row["spread"] for row in mine], [max(row["mean"], 1e-8) for row in mine],
                color="black" if main else colours[number % 20], linewidth=2.6 if main else 1.1,
                linestyle=("-", "--", ":")[number // 20 if not main else 0], marker="os^vD"[number % 5], markersize=3,
                label=name if bits is None else f"{name}, {bits} bits", zorder=3 if main else 2,
            )  # fmt: skip
        panel.axhline(0.1, color="grey", linewidth=0.8, linestyle="--")
        panel.set_title(f"N = {length:,}", fontsize=10)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_ylim(1e-7, 3)
        panel.set_xticks(SPREADS, [f"{spread:g}" for spread in SPREADS])
        panel.grid(visible=True, linewidth=0.3)
    for panel in panels[1]:
        panel.set_xlabel("standard deviation of the scores")
    for panel in panels[:, 0]:
        panel.set_ylabel("mean L1 error of a row")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 0.83, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, write, and draw if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=5)
    parser.add_argument("--methods", default="all", help="those measured anew, with commas; the others stay")
    parser.add_argument("--plot", type=Path, help="where to draw")
    given = parser.parse_args()
    names = list(METHODS.entries()) if given.methods == "all" else given.methods.split(",")
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"bits": None}
    kept = [row for row in old["rows"] if row["method"].split(",")[0] not in names] if old["bits"] == given.bits else []
    rows = sorted(kept + measure(given.bits, names), key=lambda row: row["method"])
    found = {"schema": 1, "command": f"{COMMAND} --bits {given.bits}", "bits": given.bits, "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.plot is not None:
        plot(found, given.plot)
    print(table(found, "deferred-log"))


if __name__ == "__main__":
    main()
