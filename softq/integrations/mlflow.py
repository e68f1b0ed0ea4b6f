"""Sweeps in MLflow: a run for each setting, as soon as it is measured.

`MlflowLogger(folder)` is a callback for `progress=` of `softq.sweep` and `softq.sensitivity`: it looks at what the
study has appended to `outcomes.jsonl`. It also logs a folder that is finished: call `log()`.
"""

# A checker takes `mlflow` for this file.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import mlflow

from softq.sweeps.engine import describe
from softq.sweeps.records import STUDY, Outcome, Study, read


class MlflowLogger:
    """Logs the outcomes of a study's folder as child runs of the run that is active, or of one that MLflow starts.

    A child's parameters are the setting, its metrics the value, the loss and the ends of its interval, seconds, and the
    time and the size where they were measured. What the study has in common is in parameters of the parent.

    Args:
        folder: The folder that the study writes.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder, self._logged = Path(folder), set[str]()

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """Log what is new; the arguments of progress do not matter."""
        if (self._folder / STUDY).exists():
            self.log()

    def log(self) -> int:
        """Log the outcomes that are not logged yet by this object, and return how many there were.

        Raises:
            InputError: the folder holds no study.
        """
        study, outcomes = read(self._folder)
        new = [one for one in outcomes if one.setting.key not in self._logged]
        if not self._logged and new:
            mlflow.log_params(
                {"model": study.model, "data": study.data, "metric": study.metric, "samples": study.samples,
                 "softq": study.softq}
            )  # fmt: skip
            mlflow.log_metric(f"float.{study.metric}", study.reference.value)
        for outcome in new:
            with mlflow.start_run(run_name=describe(outcome.setting), nested=True):
                setting = outcome.setting
                where = {"site": setting.site, "head": setting.head}
                mlflow.log_params(
                    {"method": setting.method, **setting.options, **{k: v for k, v in where.items() if v is not None}}
                )
                mlflow.log_metrics(_metrics(study, outcome))
            self._logged.add(outcome.setting.key)
        return len(new)


def _metrics(study: Study, outcome: Outcome) -> dict[str, float]:
    found: dict[str, float | None] = {"seconds": outcome.seconds}
    if outcome.samples:
        found |= {study.metric: outcome.metric.value, "loss": outcome.loss.value,
                  "loss.low": outcome.loss.low, "loss.high": outcome.loss.high}  # fmt: skip
    if outcome.time_ratio is not None:
        found["time_ratio"] = outcome.time_ratio.median
    found["size_bytes"] = outcome.size_bytes
    for target, timed in outcome.built.items():
        found[f"time_ratio on {target}"] = None if timed.time_ratio is None else timed.time_ratio.median
        found[f"size_bytes on {target}"] = timed.size_bytes
    # MLflow allows few signs in names, and no commas; a missing value is left out.
    return {
        re.sub(r"[^\w. /:-]", " ", name): value
        for name, value in found.items()
        if value is not None and math.isfinite(value)
    }
