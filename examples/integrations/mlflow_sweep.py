"""A sweep of the ViT of models/ as runs of MLflow, a child for each setting, while it is measured."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import mlflow

import softq
from softq.integrations.mlflow import MlflowLogger

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # mlflow-skinny comes without a database
VIT = Path(__file__).resolve().parents[2] / "models" / "mnist_vit"

with tempfile.TemporaryDirectory() as folder:
    mlflow.set_tracking_uri(f"file:{folder}/runs")
    logger = MlflowLogger(Path(folder, "swept"))
    with mlflow.start_run(run_name="sweep") as parent:
        swept = softq.sweep(VIT / "mnist_vit.onnx", VIT / "data.npz", out=Path(folder, "swept"), metric="top1-accuracy",
                            methods="deferred-log,exact", bits="2-3", samples=64, progress=logger)  # fmt: skip
        logger.log()
    client = mlflow.MlflowClient()
    query = f"tags.mlflow.parentRunId = '{parent.info.run_id}'"
    runs = client.search_runs([parent.info.experiment_id], query)
    found = {run.info.run_name: run.data.metrics["top1-accuracy"] for run in runs}
    assert found == {f"deferred-log bits={b}": v.metric.value for b, v in zip((2, 3), swept.outcomes, strict=False)} | {
        "exact": swept.outcomes[-1].metric.value
    }, found
    print(f"ok: {len(found)} runs, top1-accuracy {min(found.values()):.4f} to {max(found.values()):.4f}")
