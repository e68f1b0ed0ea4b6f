"""How much calibration data a fit needs: 4, 16 and 64 samples, drawn several times, on development data.

    python -m benchmarks.figures.counts [--models DIR] [--only STUDY]

For each count, subsets of a model's calibration data are drawn, the default method is fitted on each, and its distance
from the float model is measured on development data. Writes benchmarks/counts.json.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import softq
from benchmarks.figures.measuring import Measured
from benchmarks.figures.studies import METHOD, ROOT, STUDIES, Study, main_of, text_hash, versions

RESULTS = ROOT / "benchmarks" / "counts.json"
COMMAND = "python -m benchmarks.figures.counts"
COUNTS, DRAWS, BITS = (4, 16, 64), 5, (4, 3, 2)
CHOSEN = tuple(study for study in STUDIES if study.split in ("mnist_vit", "wikipedia_lm", "minilm"))


def measure(study: Study, models: Path) -> dict[str, Any]:
    """Return the results of one study; its model has been built."""
    rows: list[dict[str, Any]] = []
    path = study.place(models) / study.model
    with tempfile.TemporaryDirectory(dir=models) as scratch:
        measured = Measured(study, models, study.data(models, "development"), Path(scratch))
        for bits in BITS:
            plain = softq.convert(path, method=METHOD, settings={"bits": bits})
            rows.append({"bits": bits, "count": 0, "draw": 0, **_distance(measured, plain)})
            for count, draw, file in _subsets(study.data(models, "calibration"), Path(scratch)):
                fitted = softq.convert(path, method=METHOD, settings={"bits": bits}, calibration=str(file))
                numbers = [site.fitted["r"] for site in fitted.plan.sites]
                rows.append({"bits": bits, "count": count, "draw": draw, "r": numbers, **_distance(measured, fitted)})
                print(study.name, bits, count, draw, rows[-1]["distance"], flush=True)
    return {
        "name": study.name,
        "versions": versions(),
        "distance": study.distance.name,
        **measured.identity,
        "rows": rows,
    }


def _subsets(data: Path, scratch: Path) -> Iterator[tuple[int, int, Path]]:
    arrays = dict(np.load(data, allow_pickle=False))
    there = len(next(iter(arrays.values())))
    for count in COUNTS:
        if count > there:
            continue
        for draw in range(DRAWS if count < there else 1):
            chosen = np.sort(np.random.default_rng([count, draw]).choice(there, count, replace=False))
            file = scratch / f"{count}-{draw}.npz"
            np.savez(file, allow_pickle=False, **{name: array[chosen] for name, array in arrays.items()})
            yield count, draw, file


def _distance(measured: Measured, result: softq.Conversion[Any]) -> dict[str, float]:
    found = measured.candidate(result, text_hash(result.plan.to_text().encode()))
    return {"distance": float(np.mean(found["distances"]))}


def table(results: Mapping[str, Any]) -> str:
    """Return the results as Markdown: distances of the draws, and how far r of a site goes apart between them."""
    heads = [f"{count} samples: distance; spread of r" for count in COUNTS]
    lines = ["| model | bits | built in | " + " | ".join(heads) + " |", "|---" * (3 + len(heads)) + "|"]
    for study in results["studies"]:
        for bits in BITS:
            mine = [row for row in study["rows"] if row["bits"] == bits]
            cells = [_cell([row for row in mine if row["count"] == count]) for count in COUNTS]
            (plain,) = (row["distance"] for row in mine if not row["count"])
            lines.append(f"| {study['name']} | {bits} | {plain:.5f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(rows: list[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    distances = [row["distance"] for row in rows]
    shown = f"{np.mean(distances):.5f} ({min(distances):.5f} to {max(distances):.5f})"
    if len(rows) == 1:
        return f"{distances[0]:.5f}"
    r = np.array([row["r"] for row in rows])
    return f"{shown}; {np.median(r.std(axis=0, ddof=1) / r.mean(axis=0)):.1%}"


if __name__ == "__main__":
    main_of("Measure what more calibration data change.", RESULTS, COMMAND, CHOSEN, measure)
