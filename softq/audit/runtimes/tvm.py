"""TVM's own softmax of floats, compiled for this processor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from softq.audit.runtimes import Options, Runtime, Softmax
from softq.audit.task import Array, Task


def _load(file: bytes, task: Task, options: Options) -> Softmax:
    import tvm
    from tvm import te, topi

    scores = te.placeholder(task.shape, task.dtype, "scores")
    function = te.create_prim_func([scores, topi.nn.softmax(scores, task.axis % len(task.shape))])
    compiled = tvm.compile(tvm.IRModule({"main": function}), target=tvm.target.Target({"kind": "llvm"}))

    def softmax(scores: Array) -> Array:
        given = tvm.runtime.tensor(np.ascontiguousarray(scores))
        found = tvm.runtime.tensor(np.empty(task.shape, task.dtype))
        compiled["main"](given, found)
        return found.numpy()

    return softmax


def _version() -> Mapping[str, str]:
    import tvm

    return {"tvm": tvm.__version__}


def _script(task: Task, options: Options) -> str:
    return (
        "import tvm\nfrom tvm import te, topi\n\n"
        f'given = te.placeholder({list(task.shape)}, "{task.dtype}", "scores")\n'
        f"function = te.create_prim_func([given, topi.nn.softmax(given, {task.axis % len(task.shape)})])\n"
        'target = tvm.target.Target({"kind": "llvm"})\n'
        'compiled = tvm.compile(tvm.IRModule({"main": function}), target=target)\n'
        "result = tvm.runtime.tensor(np.empty_like(scores))\n"
        'compiled["main"](tvm.runtime.tensor(scores), result)\n'
        "found = result.numpy()\n"
    )


RUNTIME = Runtime(
    name="tvm",
    summary="TVM's own softmax of floats (topi.nn.softmax), as it comes.",
    dtypes=("float32", "float16"),
    load=_load,
    version=_version,
    script=_script,
)
