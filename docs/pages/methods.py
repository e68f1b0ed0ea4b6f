"""The pages of the methods: each made of the method's docstring, its program, and what has been measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from inspect import getdoc
from pathlib import Path
from sys import modules
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docs.pages.charts import Axis, Line, chart
from docs.pages.formulas import set_lines, with_formulas
from softq.methods import METHODS, Method
from softq.rowprog import Program, run
from softq.specification import drop_in_to_text, method_to_text

ROOT = Path(__file__).resolve().parents[2]
Floats = NDArray[np.float64]

FARTHEST, POINTS = 12.0, 193
"""Of the row that is drawn: how far its scores lie below the maximum, and how many there are."""

OCTAVES = 18
LENGTH, ROWS, COLUMNS, SPREADS, WIDTHS = 128, 32, 32, (1.0, 2.0, 4.0), (8, 6, 4, 3, 2)
"""Of the rows whose error is computed: length, number, columns of V, standard deviations; and widths."""


def overview() -> str:
    """Return a table of all methods, with links to their pages."""
    lines = ["| method | use | source | what it is |", "| --- | --- | --- | --- |"]
    for name, method in METHODS.entries().items():
        cells = (f"[`{name}`](methods/{name}.md)", drop_in_to_text(method), method.source, method.summary)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return the page of each method, by its place in the site."""
    return {f"methods/{name}.md": page(method) for name, method in METHODS.entries().items()}


def page(method: Method) -> str:
    """Return the page of a method as Markdown."""
    about = getdoc(modules[method.trace.__module__]) or ""
    parts = [
        f"# {method.name}",
        f"{method.summary}",
        f"**Use:** {drop_in_to_text(method)}. **Calibration:** {method.calibration}. **Source:** {method.source}.",
        "## The weight against the distance",
        *_weights(method),
        "## What it computes",
        *_prose(about),
    ]
    if method.drop_in:
        parts += ["## Error of P V", *_errors(method)]
    parts += ["## Cost per target", *_costs(method.name)]
    parts += ["## Options, interface and program", f"`softq methods {method.name}` prints:",
              f"```text\n{_behind(method_to_text(method), about)}\n```"]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _behind(text: str, about: str) -> str:
    """Return the specification without the docstring, which stands above it on the page."""
    return text.partition(about)[2].strip("\n")


_LABEL = re.compile(
    r"(?:Source|Input|Integers|8-bit integer scores|Error|Calibration|Ranges?|Output|Widths?)[^.:]{0,24}: "
)


def _prose(about: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring as Markdown, its formulas as mathematics."""
    for paragraph in about.split("\n\n"):
        plain: list[str] = []
        formulas: list[str] = []
        for line in [*paragraph.splitlines(), ""]:
            if line.startswith("    "):
                if plain:
                    yield _markdown(" ".join(plain))
                    plain = []
                formulas.append(line)
            else:
                if formulas:
                    yield set_lines(formulas)
                    formulas = []
                if plain and _LABEL.match(line):
                    yield _markdown(" ".join(plain))
                    plain = []
                plain += [line] if line else []
        if plain:
            yield _markdown(" ".join(plain))


def _markdown(text: str) -> str:
    # Code stays as it is; of the rest, signs that Markdown would read are kept from it.
    label = _LABEL.match(text)
    pieces = re.split(r"(`[^`]*`)", text[label.end() :] if label else text)
    return (f"**{label[0].strip()}** " if label else "") + "".join(
        piece if piece.startswith("`") else with_formulas(escape(piece, quote=False), _protect) for piece in pieces
    )


def _protect(text: str) -> str:
    return re.sub(r"([\\*_\[\]|]|^[-+#]|^\d+(?=[.)]))", r"\\\1", text)


def _programs(method: Method, widths: tuple[int, ...]) -> Iterator[tuple[str, Program]]:
    """Yield a method's programs at these widths, as far as it has them; of one without widths the only one."""
    spec = method.options.specs().get("bits")
    for bits in widths if spec is not None else (None,):
        if bits is not None and spec is not None and not spec.low <= bits <= spec.high:
            continue
        options = method.resolve(method.configure({} if bits is None else {"bits": bits}), False)
        if options.fitted:
            continue
        program = method.program(options)
        # Element by element the interpreter takes long.
        if bits in (None, 4) or not any(node.op == "scan" for node in program.nodes()):
            yield (f"{bits} bits" if bits is not None else method.name), program


def _probabilities(program: Program, scores: NDArray[np.float32]) -> Floats:
    out = run(program, scores)
    if not program.is_pair:
        return out["probabilities"].astype(np.float64)
    return out["weights"].astype(np.float64) / np.maximum(out["normalizer"].astype(np.float64), 1e-300)


def _weights(method: Method) -> Iterator[str]:
    distances = np.linspace(0, FARTHEST, POINTS)
    lines = [Line("exact softmax", [(d, -d / np.log(2)) for d in (0.0, FARTHEST)])]
    spec = method.options.specs().get("bits")
    widths = (8, 4, 2) if spec is None or spec.low <= 4 <= spec.high else tuple(
        sorted({int(spec.low), int(spec.high)}, reverse=True)
    )  # fmt: skip
    empty: list[str] = []
    for name, program in _programs(method, widths):
        p = _probabilities(program, (-distances).astype(np.float32)[None])[0]
        if not p.max() > 0:
            empty.append(name)
            continue
        with np.errstate(divide="ignore"):
            relative = np.log2(np.maximum(p, 0) / p.max())
        lines.append(Line(name, list(zip(distances, np.maximum(relative, -OCTAVES), strict=True)), steps=True))
    x = Axis("distance of the score from the row's maximum", 0, FARTHEST, [(v, str(v)) for v in range(0, 13, 2)])
    zero = [(-OCTAVES, "0")]
    y = Axis("weight", -OCTAVES, 0.5, [(-o, f"1/{2**o:,}" if o else "1") for o in range(0, OCTAVES, 3)] + zero)
    yield chart(f"Weights of {method.name} against the distance from the maximum", x, y, lines)
    yield (
        f"A row of {POINTS:,} scores, spaced evenly from 0 to {FARTHEST:g} below their maximum, with the default "
        "options; weights relative to that of the maximum, in powers of 2. What reaches the bottom is 0 or "
        f"smaller than {with_formulas(f'2^-{OCTAVES}')}. Computed by the reference interpreter when this page was "
        "built." + "".join(f" With {name} every weight of this row is 0." for name in empty)
    )


@cache
def _drawn(spread: float) -> tuple[NDArray[np.float32], Floats, Floats]:
    """Return rows of scores, V, and the exact P V."""
    random = np.random.default_rng(int(10 * spread))
    scores = (random.normal(size=(ROWS, LENGTH)) * spread).astype(np.float32)
    values = random.normal(size=(LENGTH, COLUMNS)) + 0.5
    exact = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    return scores, values, exact / exact.sum(-1, keepdims=True) @ values


def _errors(method: Method) -> Iterator[str]:
    yield (
        "| width | "
        + " | ".join(f"spread {spread:g}" for spread in SPREADS)
        + " |\n"
        + "\n".join(
            ["| --- " * (1 + len(SPREADS)) + "|"]
            + [f"| {name} | " + " | ".join(f"{error:.2g}" for error in found) + " |" for name, found in _table(method)]
        )
    )
    yield (
        f"Relative error of P V in the Frobenius norm, against float64: {ROWS} rows of {LENGTH} normal scores with "
        f"this standard deviation, V of {COLUMNS} columns with mean 0.5 and standard deviation 1, default options, "
        "computed when this page was built. [Accuracy](../accuracy.md) has the losses of real models."
    )


def _table(method: Method) -> Iterator[tuple[str, list[float]]]:
    for name, program in _programs(method, WIDTHS):
        row: list[float] = []
        for spread in SPREADS:
            scores, values, exact = _drawn(spread)
            found = _probabilities(program, scores) @ values
            row.append(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))
        yield name, row


@cache
def _measured(name: str) -> Mapping[str, Any]:
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def _is_of(work: str, name: str) -> bool:
    """Say whether a line of a benchmark is about this method and no other whose name begins alike."""
    return re.match(rf"{re.escape(name)}(?![\w-])", work) is not None


def _costs(name: str) -> Iterator[str]:
    tables = [table for table in (_processor(name), _microcontrollers(name), _cores(name)) if table]
    yield from tables
    if not tables:
        yield (
            "Not measured for this method alone. [Speed](../speed.md), [microcontrollers](../microcontrollers.md) and "
            "[FPGAs](../fpga.md) have the methods that were."
        )


def _processor(name: str) -> str:
    section = _measured("cpu")["sections"]["rows"]
    rows = [row for row in section["rows"] if _is_of(row["work"], name) and row["threads"] == 1]
    place = rows[0]["place"] if rows else ""
    lines = [f"| {row['work']} | {row['rival']} | {row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}) |"
             for row in rows if row["place"] == place]  # fmt: skip
    if not lines:
        return ""
    head = (
        f"**Processor**, rows x elements {place}, one thread: time divided by the rival's, with quartiles, on "
        f"{section['machine']['processor']} ([speed](../speed.md), `{section['command']}`):"
    )
    return "\n".join([head, "", "| work | rival | ratio |", "| --- | --- | --- |", *lines])


def _microcontrollers(name: str) -> str:
    found = _measured("mcu")
    lines = [f"| {row['work']} | {row['board']} | {row['instructions']:,} | {row['code']:,} | {row['tables']:,} |"
             for row in found["rows"] if _is_of(row["work"], name)]  # fmt: skip
    if not lines:
        return ""
    head = f"**Microcontrollers** ([more](../microcontrollers.md), `{found['command']}`):"
    titles = "| work | board | instructions per element | bytes of code | bytes of tables |"
    return "\n".join([head, "", titles, "| --- | --- | --- | --- | --- |", *lines])


def _cores(name: str) -> str:
    found = _measured("fpga")
    lines = [
        f"| {row['name']} | {row['cells']['ecp5']['lut']} | {row['cells']['ecp5']['ff']} "
        f"| {row['cells']['ice40']['lut']} | {np.median(row['mhz']):.0f} | {row['clocks']:g} |"
        for row in found["rows"]
        if row["core"]["method"] == name and row["mhz"]
    ]
    if not lines:
        return ""
    head = f"**FPGA cores**, int8 scores ([more](../fpga.md), `{found['command']}`):"
    titles = "| core | LUT, ECP5 | flip-flops, ECP5 | LUT, iCE40 | MHz, ECP5 | clocks per row of 512 |"
    return "\n".join([head, "", titles, "| --- | --- | --- | --- | --- | --- |", *lines])
