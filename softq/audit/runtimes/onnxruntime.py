"""onnxruntime: Softmax of floats, QLinearSoftmax or Softmax between DequantizeLinear and QuantizeLinear of integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from softq.audit.runtimes import Options, Runtime, Softmax
from softq.audit.task import UNIT_RESULTS, Array, Task
from softq.errors import UsageError

_FORMS = ("operator", "qdq")
_LEVELS = ("disable", "basic", "extended", "all")


def _make(task: Task, options: Options) -> bytes:
    """Return a model of one softmax."""
    from onnx import TensorProto, checker, helper

    kinds = {np.dtype(np.float16): TensorProto.FLOAT16}
    kind, result = (
        kinds.get(np.dtype(name), helper.np_dtype_to_tensor_dtype(np.dtype(name)))
        for name in (task.dtype, task.result_dtype)
    )
    nodes, constants = [], []
    if task.scores is None:
        nodes.append(helper.make_node("Softmax", ["scores"], ["result"], axis=task.axis))
    else:
        assert task.result is not None, "integer scores have integer results"
        for name, encoding in (("scores", task.scores), ("result", task.result)):
            code = helper.np_dtype_to_tensor_dtype(np.dtype(encoding.dtype))
            constants.append(helper.make_tensor(f"{name}_scale", TensorProto.FLOAT, [], [encoding.scale]))
            constants.append(helper.make_tensor(f"{name}_zero", code, [], [encoding.zero_point]))
        scores, end = ["scores", "scores_scale", "scores_zero"], ["result_scale", "result_zero"]
        if _form(options) == "operator":
            nodes.append(
                helper.make_node(
                    "QLinearSoftmax", [*scores, *end], ["result"], domain="com.microsoft", axis=task.axis, opset=13
                )
            )
        else:
            nodes += [
                helper.make_node("DequantizeLinear", scores, ["values"]),
                helper.make_node("Softmax", ["values"], ["weights"], axis=task.axis),
                helper.make_node("QuantizeLinear", ["weights", *end], ["result"]),
            ]
    graph = helper.make_graph(
        nodes,
        "softmax",
        [helper.make_tensor_value_info("scores", kind, task.shape)],
        [helper.make_tensor_value_info("result", result, task.shape)],
        constants,
    )
    imports = [helper.make_opsetid("", 21 if task.dtype == "int16" else 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10 if task.dtype == "int16" else 8)
    checker.check_model(model)
    return model.SerializeToString()


def _form(options: Options) -> str:
    form = options.get("form", _FORMS[0])
    if form not in _FORMS:
        raise UsageError(f"onnxruntime form is {form!r}; allowed is {' or '.join(_FORMS)}")
    return form


def _load(file: bytes, task: Task, options: Options) -> Softmax:
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads, chosen.log_severity_level = task.threads, 4
    level = options.get("level", "all")
    if level not in _LEVELS:
        raise UsageError(f"onnxruntime level is {level!r}; allowed is {' or '.join(_LEVELS)}")
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel(
        {"disable": 0, "basic": 1, "extended": 2, "all": 99}[level]
    )
    session = onnxruntime.InferenceSession(file, chosen, providers=[options.get("provider", "CPUExecutionProvider")])

    def softmax(scores: Array) -> Array:
        return np.asarray(session.run(None, {"scores": scores})[0])

    return softmax


def _version() -> Mapping[str, str]:
    import onnxruntime

    return {"onnxruntime": onnxruntime.__version__}


def _script(task: Task, options: Options) -> str:
    provider = options.get("provider", "CPUExecutionProvider")
    return (
        "import onnxruntime\n\n"
        "options = onnxruntime.SessionOptions()\n"
        f"options.intra_op_num_threads = {task.threads}\n"
        f'session = onnxruntime.InferenceSession("model.onnx", options, providers=["{provider}"])\n'
        'found = session.run(None, {"scores": scores})[0]\n'
    )


RUNTIME = Runtime(
    name="onnxruntime",
    summary="onnxruntime's Softmax, and its QLinearSoftmax of 8-bit integers.",
    dtypes=("float32", "float16", "float64", "int8", "uint8", "int16"),
    load=_load,
    version=_version,
    make=_make,
    file="model.onnx",
    results=UNIT_RESULTS,
    options={
        "form": "of integers: operator (com.microsoft's QLinearSoftmax), or qdq (Softmax between DequantizeLinear and "
        "QuantizeLinear)",
        "provider": "an execution provider; CPUExecutionProvider by default",
        "level": "of graph optimizations: disable, basic, extended or all",
    },
    script=_script,
)
