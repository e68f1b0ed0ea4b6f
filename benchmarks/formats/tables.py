"""The tables of docs/formats.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.formats.rows import LENGTHS, MEANS, SPREADS
from benchmarks.formats.settings import SETTINGS, SHARES


def document(found: Mapping[str, Any]) -> str:
    """Return the tables as Markdown."""
    parts: list[str] = []
    for mean in MEANS if "rows" in found else ():
        parts += [f"Relative error of P V, V of mean {mean:g} and standard deviation 1:", table_of_rows(found, mean)]
    models = found.get("models", [])
    small = [one for one in models if SHARES[one["name"]].samples is None]
    large = [one for one in models if SHARES[one["name"]].samples is not None]
    if small:
        parts += ["Models on all of their evaluation data:", table_of_models(small)]
    if large:
        parts += [
            f"Models on some of their evaluation data, chosen by a seed: {_shares(large)}:",
            table_of_models(large),
        ]
    fitted = [m for m in models if any("exact_sums" in row for row in m["rows"])]
    if fitted:
        parts += ["Heads that a fit gave the exact sum, of those there are:", table_of_sums(fitted)]
    return "\n\n".join(parts)


def _shares(models: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{m['samples']} of {m['of']} of {m['name']}" for m in models)


def table_of_rows(found: Mapping[str, Any], mean: float) -> str:
    """Return the errors of P V as Markdown, for V of one mean."""
    cells = {(r["label"], r["bits"], r["length"], r["spread"]): r for r in found["rows"] if r["mean"] == mean}
    places = [(length, spread) for length in LENGTHS for spread in SPREADS]
    lines = [["weights", "bits", *(f"N = {n:,}, sd {s:g}" for n, s in places)], ["---"] * (2 + len(places))]
    for setting in SETTINGS:
        mine = [cells[*setting.key, *place] for place in places]
        lines.append([setting.label, f"{setting.bits:g}", *(_number(cell["error"], cell["half"]) for cell in mine)])
    return _markdown(lines)


def _number(value: float, half: float) -> str:
    digits = 3 if value >= 0.1 else 4 if value >= 0.01 else 5
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def table_of_models(models: Sequence[Mapping[str, Any]]) -> str:
    """Return the changes of the models' metrics as Markdown: what any of them was measured with."""
    lines = [["weights", "bits"], ["---", "---"]]
    for one in models:
        lines[0] += [f"{one['name']}: {one['rows'][0]['of']} of {one['metric']}", f"{one['distance']}"]
        lines[1] += ["---", "---"]
    cells = [{(row["label"], row["bits"]): row for row in one["rows"]} for one in models]
    for setting in SETTINGS:
        mine = [of.get(setting.key) for of in cells]
        if any(mine):
            lines.append([setting.label, f"{setting.bits:g}", *(text for row in mine for text in _change(row))])
    return _markdown(lines)


def _change(row: Mapping[str, Any] | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    sign = "" if row["of"] == "ratio" else "+"
    digits = 4 if max(abs(row["low"]), abs(row["high"])) >= 5e-4 else 6
    change, low, high = (f"{row[name]:{sign}.{digits}f}" for name in ("change", "low", "high"))
    change = f"{change} ({low} to {high})"
    return change, f"{row['distance']:.6f}"


def table_of_sums(models: Sequence[Mapping[str, Any]]) -> str:
    """Return of how many heads the exact sum was taken as Markdown."""
    lines = [["weights", *(one["name"] for one in models)], ["---"] * (1 + len(models))]
    cells = [
        {(row["label"], row["bits"]): row["exact_sums"] for row in m["rows"] if "exact_sums" in row} for m in models
    ]
    for setting in SETTINGS:
        mine = [of.get(setting.key) for of in cells]
        if any(mine):
            lines.append([setting.label, *("" if sums is None else f"{sums[0]} of {sums[1]}" for sums in mine)])
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
