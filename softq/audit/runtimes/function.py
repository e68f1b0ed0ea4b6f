"""A function of the user's: a simulator, a driver of a board, a kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from softq.audit.runtimes import Options, Runtime, Softmax
from softq.audit.task import FLOATS, INTEGERS, UNIT_RESULTS, Array, Task
from softq.errors import UsageError


def _load(file: bytes, task: Task, options: Options) -> Softmax:
    from softq.data import load_function

    if "of" not in options:
        raise UsageError("runtime function needs the function: --runtime module:function")
    function = load_function(options["of"], "softmax")

    def softmax(scores: Array) -> Array:
        return np.asarray(function(scores, task.axis))

    return softmax


def _version() -> Mapping[str, str]:
    return {"numpy": np.__version__}


RUNTIME = Runtime(
    name="function",
    summary="A function of yours, which gets scores and the axis: module:function or file.py:function.",
    dtypes=(*FLOATS, *INTEGERS),
    load=_load,
    version=_version,
    results=UNIT_RESULTS,
    options={"of": "the function"},
)
