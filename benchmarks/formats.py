"""Which format for P: the number formats of accelerators beside softq's codes, at the bits that a weight takes.

    python -m benchmarks.formats [--only synthetic|models|plot] [--models DIR] [--plot docs/formats.png]

Synthetic rows: normal scores of several lengths and spreads, V normal with a mean of 0 or 1; the relative error of P V
over 8 draws, with a 95% interval of its mean. Models: those that are committed, and those of the figures that are
built in a folder (`models/`), on their evaluation data (`models.splits`), with default options and without calibration
data; nothing was chosen on these data. Bits are those of a stored weight, scales of blocks counted. Writes
benchmarks/formats.json; the tables of docs/formats.md are made from it, and the plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import softq
from benchmarks.figures.measuring import Measured
from benchmarks.figures.studies import STUDIES, Study, kind_of, text_hash, versions
from softq.methods import METHODS, OptionValue
from softq.metrics import EXP_MEAN, PerSample, change_interval
from softq.rowprog import Program, run

RESULTS = Path(__file__).parent / "formats.json"
COMMAND = "python -m benchmarks.formats"

LENGTHS, SPREADS, MEANS, DRAWS = (256, 1024, 4096), (1.0, 4.0), (1.0, 0.0), 8
ROWS, SIZE = 16, 32

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """A format of weights.

    Attributes:
        label: What the tables call it.
        bits: Of a stored weight, with its share of a block's scale.
        method: The method.
        settings: Its options.
    """

    label: str
    bits: float
    method: str
    settings: Mapping[str, OptionValue]


def _formats(label: str, bits: float, method: str, settings: Mapping[str, OptionValue]) -> Iterator[Setting]:
    yield Setting(label, bits, method, settings)
    yield Setting(f"{label}, exact sum", bits, method, {**settings, "sum": "exact"})
    yield Setting(f"{label}, V too", bits, method, {**settings, "values": "coded"})
    yield Setting(f"{label} of p", bits, method, {**settings, "of": "probabilities"})


SETTINGS = (
    *_formats("FP8 E4M3", 8, "fp8", {}),
    *_formats("FP8 E5M2", 8, "fp8", {"format": "e5m2"}),
    *_formats("MXFP8 E4M3", 8.25, "mxfp8", {}),
    *_formats("MXFP4", 4.25, "mxfp4", {}),
    *_formats("NVFP4", 4.5, "nvfp4", {}),
    Setting("deferred-log", 8, "deferred-log", {"bits": 8}),
    Setting("deferred-log", 5, "deferred-log", {"bits": 5}),
    Setting("deferred-log", 4, "deferred-log", {"bits": 4}),
    Setting("EXAQ", 4, "exaq", {"bits": 4}),
    Setting("IndexSoftmax", 5, "index-softmax", {"bits": 5}),
    Setting("IndexSoftmax", 4, "index-softmax", {"bits": 4}),
    Setting("uniform", 8, "uniform", {"bits": 8}),
)

_LEFT_OUT = ("exact sum", "E5M2", "FP8 E4M3 of p", "MXFP4 of p", "MXFP8 E4M3, V too")
ON_MODELS = tuple(s for s in SETTINGS if not any(part in s.label for part in _LEFT_OUT))
"""What is measured on models: sums are coded, and what differs little on the rows is left out."""


def programs_of(setting: Setting) -> tuple[Program, Program | None]:
    """Return what makes the weights, and what codes a column of V, if one does."""
    method = METHODS.get(setting.method)
    options = method.resolve(method.configure(setting.settings), False)
    return method.program(options), method.values_program(options)


@dataclass(frozen=True)
class Draw:
    """Scores [rows, N], V [N, size], and P V in float64."""

    scores: NDArray[np.float32]
    values: NDArray[np.float32]
    wanted: Floats

    @staticmethod
    def of(length: int, spread: float, mean: float, number: int) -> Draw:
        """Return the same draw each time."""
        rng = np.random.default_rng((length, int(spread * 10), int(mean * 10), number))
        x = (rng.normal(size=(ROWS, length)) * spread).astype(np.float32)
        v = (rng.normal(size=(length, SIZE)) + mean).astype(np.float32)
        e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True).astype(np.float64))
        return Draw(x, v, e @ v.astype(np.float64) / e.sum(axis=-1, keepdims=True))

    def error(self, programs: tuple[Program, Program | None]) -> float:
        """Return the relative error of P V as a method has it, its sums in float64."""
        weigh, code = programs
        out = run(weigh, self.scores)
        held = self.values if code is None else run(code, np.ascontiguousarray(self.values.T))["values"].T
        whole = out["weights" if weigh.is_pair else "probabilities"].astype(np.float64) @ held.astype(np.float64)
        whole = whole / out["normalizer"].astype(np.float64) if weigh.is_pair else whole
        return float(np.linalg.norm(whole - self.wanted) / np.linalg.norm(self.wanted))


_T_95 = 2.365
"""Student's t of 7 degrees of freedom."""


def measure_rows() -> list[dict[str, Any]]:
    """Return the errors on synthetic rows."""
    rows: list[dict[str, Any]] = []
    programs = [(setting, programs_of(setting)) for setting in SETTINGS]
    for mean, length, spread in product(MEANS, LENGTHS, SPREADS):
        draws = [Draw.of(length, spread, mean, number) for number in range(DRAWS)]
        for setting, both in programs:
            found = np.array([draw.error(both) for draw in draws])
            half = _T_95 * float(found.std(ddof=1)) / math.sqrt(DRAWS)
            rows.append({"label": setting.label, "bits": setting.bits, "length": length, "spread": spread,
                         "mean": mean, "error": float(found.mean()), "half": half})  # fmt: skip
        print(f"mean {mean:g}, N = {length}, sd {spread:g}: done", flush=True)
    return rows


def measure_model(study: Study, cache: Path) -> dict[str, Any]:
    """Return what each setting makes of a model's metric on its evaluation data."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        measured = Measured(study, cache, "evaluation", Path(scratch))
        reference = measured.reference()
        kind, weights = kind_of(study.metric), np.array(reference["weights"], np.float64)
        ours = PerSample(np.array(reference["samples"], np.float64), weights)
        for setting in ON_MODELS:
            path = study.place(cache) / study.model
            converted = softq.convert(path, method=setting.method, settings=setting.settings)
            found = measured.candidate(converted, text_hash(converted.plan.to_text().encode()))
            change = change_interval(
                kind, study.metric.bounds, ours, PerSample(np.array(found["samples"], np.float64), weights)
            )
            assert change is not None, study.metric.name
            rows.append({"label": setting.label, "bits": setting.bits, "value": found["value"],
                         "distance": float(np.mean(found["distances"])), "change": change.estimate,
                         "low": change.low, "high": change.high,
                         "of": "ratio" if kind is EXP_MEAN else "change"})  # fmt: skip
            print(study.name, setting.label, setting.bits, f"{change.estimate:+.5f}", flush=True)
    return {"name": study.name, "metric": study.metric.name, "distance": study.distance.name,
            "float": reference["value"], "samples": len(weights), **measured.identity, "rows": rows}  # fmt: skip


def table_of_rows(found: Mapping[str, Any], mean: float) -> str:
    """Return the errors of P V as Markdown, for V of one mean."""
    cells = {(r["label"], r["bits"], r["length"], r["spread"]): r for r in found["rows"] if r["mean"] == mean}
    places = [(length, spread) for length in LENGTHS for spread in SPREADS]
    lines = [["weights", "bits", *(f"N = {n:,}, sd {s:g}" for n, s in places)], ["---"] * (2 + len(places))]
    for setting in SETTINGS:
        mine = [cells[setting.label, setting.bits, *place] for place in places]
        lines.append([setting.label, f"{setting.bits:g}", *(_number(cell["error"], cell["half"]) for cell in mine)])
    return _markdown(lines)


def _number(value: float, half: float) -> str:
    digits = 3 if value >= 0.1 else 4 if value >= 0.01 else 5
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def table_of_models(found: Mapping[str, Any]) -> str:
    """Return the changes of the models' metrics as Markdown."""
    studies: Sequence[Mapping[str, Any]] = found["models"]
    lines = [["weights", "bits"], ["---", "---"]]
    for one in studies:
        what = f"{one['rows'][0]['of']} of {one['metric']}"
        lines[0] += [f"{one['name']}: {what}", f"{one['distance']}"]
        lines[1] += ["---", "---"]
    for setting in ON_MODELS:
        line = [setting.label, f"{setting.bits:g}"]
        for one in studies:
            row = next(r for r in one["rows"] if (r["label"], r["bits"]) == (setting.label, setting.bits))
            sign = "" if row["of"] == "ratio" else "+"
            line += [f"{row['change']:{sign}.4f} ({row['low']:{sign}.4f} to {row['high']:{sign}.4f})",
                     f"{row['distance']:.6f}"]  # fmt: skip
        lines.append(line)
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def keep(found: Mapping[str, Any]) -> None:
    """Write the results so far."""
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def document(found: Mapping[str, Any]) -> str:
    """Return the tables of docs/formats.md."""
    parts: list[str] = []
    for mean in MEANS if "rows" in found else ():
        parts += [f"Relative error of P V, V of mean {mean:g} and standard deviation 1:", table_of_rows(found, mean)]
    if found.get("models"):
        parts += ["Models on their evaluation data:", table_of_models(found)]
    return "\n\n".join(parts)


_DRAWN = (
    "FP8 E4M3",
    "FP8 E5M2",
    "MXFP8 E4M3",
    "MXFP4",
    "NVFP4",
    "NVFP4 of p",
    "NVFP4, V too",
    "deferred-log",
    "uniform",
)


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Draw the error of P V against the length, a panel for each mean of V and each spread."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(12, 8), sharex=True, sharey="row")
    drawn = [setting for setting in SETTINGS if setting.label in _DRAWN]
    cells = {(r["label"], r["bits"], r["mean"], r["spread"], r["length"]): r for r in found["rows"]}
    for line, mean in zip(panels, MEANS, strict=True):
        for panel, spread in zip(line, SPREADS, strict=True):
            for number, setting in enumerate(drawn):
                mine = [cells[setting.label, setting.bits, mean, spread, length] for length in LENGTHS]
                panel.errorbar(
                    LENGTHS, [r["error"] for r in mine], [r["half"] for r in mine], marker="os^vDx"[number % 6],
                    color={"deferred-log": "black", "uniform": "grey"}.get(setting.method, f"C{number}"),
                    markersize=4, capsize=2,
                    linestyle={8: "-", 5: "--", 4: ":"}.get(int(setting.bits), "-."),
                    label=f"{setting.label}, {setting.bits:g} bits",
                )  # fmt: skip
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
            panel.set_title(f"V of mean {mean:g}, scores of sd {spread:g}", fontsize=10)
            panel.grid(visible=True, linewidth=0.3)
    for panel in panels[1]:
        panel.set_xlabel("N")
    for panel in panels[:, 0]:
        panel.set_ylabel("relative error of P V")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0, 0.82, 1))
    figure.savefig(path, dpi=100)


def main() -> None:
    """Measure what is asked for, and draw if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["synthetic", "models", "plot"], help="this alone")
    parser.add_argument("--models", type=Path, help="where models were built; those that are committed are without it")
    parser.add_argument("--plot", type=Path, help="where to draw")
    given = parser.parse_args()
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found |= {"schema": 1, "command": COMMAND, "versions": versions()}
    if given.only in (None, "synthetic"):
        found["rows"] = measure_rows()
        keep(found)
    with tempfile.TemporaryDirectory() as cache:
        for study in STUDIES if given.only in (None, "models") else ():
            folder = given.models if study.builder else Path(cache)
            if folder is not None and (study.place(folder) / study.model).exists():
                others = [one for one in found.get("models", []) if one["name"] != study.name]
                found["models"] = [*others, measure_model(study, folder)]
                keep(found)
    if given.plot is not None:
        plot(found, given.plot)


if __name__ == "__main__":
    main()
