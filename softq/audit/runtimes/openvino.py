"""OpenVINO's softmax of floats."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from softq.audit.runtimes import Options, Runtime, Softmax
from softq.audit.task import Array, Task


def _openvino(part: str = "") -> Any:
    # By name, since to some readers `import openvino` is this file.
    return import_module(f"openvino{part}")


def _load(file: bytes, task: Task, options: Options) -> Softmax:
    openvino, operators = _openvino(), _openvino(".opset13")
    scores = operators.parameter(task.shape, np.dtype(task.dtype))
    model = openvino.Model([operators.softmax(scores, task.axis)], [scores], "softmax")
    settings: dict[str, int | str] = {"INFERENCE_NUM_THREADS": task.threads}
    if "precision" in options:
        settings["INFERENCE_PRECISION_HINT"] = options["precision"]
    compiled = openvino.Core().compile_model(model, options.get("device", "CPU"), settings)

    def softmax(scores: Array) -> Array:
        return np.array(compiled([scores])[0])

    return softmax


def _version() -> Mapping[str, str]:
    return {"openvino": _openvino().__version__}


def _script(task: Task, options: Options) -> str:
    settings = f'{{"INFERENCE_PRECISION_HINT": "{options["precision"]}"}}' if "precision" in options else "{}"
    return (
        "import openvino\nimport openvino.opset13 as operators\n\n"
        f"parameter = operators.parameter({list(task.shape)}, np.dtype('{task.dtype}'))\n"
        f'model = openvino.Model([operators.softmax(parameter, {task.axis})], [parameter], "softmax")\n'
        f'found = openvino.Core().compile_model(model, "{options.get("device", "CPU")}", {settings})([scores])[0]\n'
    )


RUNTIME = Runtime(
    name="openvino",
    summary="OpenVINO's SoftMax of floats.",
    dtypes=("float32", "float16"),
    load=_load,
    version=_version,
    options={
        "device": "CPU by default",
        "precision": "what it computes in (f32, bf16, f16), where that is not its own choice",
    },
    script=_script,
)
