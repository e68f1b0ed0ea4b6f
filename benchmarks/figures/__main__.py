"""The accuracy figures of the README: real models on evaluation data, one command.

    python -m benchmarks.figures [--models DIR] [--only STUDY]

Builds the models that are not committed (`models/`), and measures the float model, the default method without
calibration data, the same fitted on them, and two rivals, on each model's evaluation data (`models.splits`): no choice
was made on these. Options are fitted several times, each time on other rows of the calibration data: a fitted figure
has the spread of these draws in its interval. Beside each metric stands the one that it names as its distance, which
tells settings apart long before the metric does.

Writes benchmarks/figures.json: versions, what each sample contributed, and the hashes of models, data, plans (numbers
that were fitted included) and programs, so that a test sees when one of them is another one. What was measured before
with the same model, plan and data is taken from the cache beside the models.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures.measuring import Measured
from benchmarks.figures.studies import (
    COMMAND,
    RESULTS,
    ROOT,
    SETTINGS,
    STUDIES,
    Study,
    main_of,
    text_hash,
    versions,
)


def measure(study: Study, models: Path) -> dict[str, Any]:
    """Return the results of one study."""
    folder = study.place(models)
    if study.builder:
        target = folder.parent if "/" in study.folder else folder
        subprocess.run([sys.executable, "-m", study.builder, str(target)], check=True, cwd=ROOT)
    with tempfile.TemporaryDirectory(dir=models) as scratch:
        measured = Measured(study, models, study.data(models, "evaluation"), Path(scratch))
        rows: list[dict[str, Any]] = []
        for setting in SETTINGS:
            result = setting.convert(study, models)
            plan = text_hash(result.plan.to_text().encode())
            found = measured.candidate(result, plan)
            rows.append({**setting.to_json(), "plan": plan, "program": setting.program_hash(), **found})
            print(study.name, setting.to_json(), f"{found['value']:.5g}", flush=True)
        reference = measured.reference()
    return {
        "name": study.name, "metric": study.metric.name, "distance": study.distance.name, "versions": versions(),
        **measured.identity,
        "float": reference["value"], "samples": reference["samples"], "weights": reference["weights"], "rows": rows,
    }  # fmt: skip


if __name__ == "__main__":
    main_of("Measure the figures of the README.", RESULTS, COMMAND, STUDIES, measure)
