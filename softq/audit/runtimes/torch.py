"""PyTorch's softmax of floats, on a processor or another device."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from softq.audit.runtimes import Options, Runtime, Softmax
from softq.audit.task import Array, Task


def _torch() -> Any:
    # By name, since to some readers `import torch` is this file.
    return import_module("torch")


def _load(file: bytes, task: Task, options: Options) -> Softmax:
    torch = _torch()
    device = options.get("device", "cpu")
    torch.set_num_threads(task.threads)

    def softmax(scores: Array) -> Array:
        with torch.no_grad():
            given = torch.from_numpy(np.ascontiguousarray(scores)).to(device)
            return torch.softmax(given, task.axis).cpu().numpy()

    return softmax


def _version() -> Mapping[str, str]:
    return {"torch": _torch().__version__}


def _script(task: Task, options: Options) -> str:
    device = options.get("device", "cpu")
    return (
        "import torch\n\n"
        f"torch.set_num_threads({task.threads})\n"
        f'found = torch.softmax(torch.from_numpy(scores).to("{device}"), {task.axis}).cpu().numpy()\n'
    )


RUNTIME = Runtime(
    name="torch",
    summary="PyTorch's softmax of floats.",
    dtypes=("float32", "float16", "float64"),
    load=_load,
    version=_version,
    options={"device": "where it is computed; cpu by default"},
    script=_script,
)
