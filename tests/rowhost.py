"""Row programs in the interpreter and in onnxruntime, integers compared whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from softq.rowprog import Program, run
from softq.rowprog.onnx import to_model

Array = NDArray[np.generic]
Outputs = dict[str, Array]
LEVELS = {
    "optimised": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "as it is": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def whole(model: onnx.ModelProto, program: Program) -> onnx.ModelProto:
    """Return the model with int64 outputs where the program's are integers or bool: float32 would round them."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    integers = {o.name for o in changed.graph.output if not program.outputs[o.name].dtype.is_float}
    for node in changed.functions[0].node:
        if integers.intersection(node.output):
            assert node.op_type == "Cast"
            node.attribute[0].i = onnx.TensorProto.INT64
    for output in changed.graph.output:
        if output.name in integers:
            output.type.tensor_type.elem_type = onnx.TensorProto.INT64
    return changed


def session(model: onnx.ModelProto, level: str = "optimised") -> onnxruntime.InferenceSession:
    """Return a session of one thread that keeps its warnings to itself."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = LEVELS[level]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feed(program: Program, scores: Array, valid: Array | None) -> dict[str, Array]:
    """Return the model's inputs."""
    return {"scores": scores} | ({} if valid is None else {"valid": valid})


def everywhere(
    program: Program,
    scores: Array,
    outputs: Sequence[str],
    *,
    valid: Array | None = None,
    params: Mapping[str, Array] | None = None,
    opset: int = 18,
    max_length: int = 65536,
) -> Iterator[tuple[str, Outputs]]:
    """Yield the outputs of the interpreter and of onnxruntime, with and without its optimisations."""
    ours = run(program, scores, valid=valid, params=params)
    yield (
        "interpreter",
        {k: ours[k] if program.outputs[k].dtype.is_float else ours[k].astype(np.int64) for k in outputs},
    )
    shape = ["a", "b", "c", "d", "N"][-scores.ndim :]
    model = to_model(program, params, shape=shape, opset=opset, max_length=max_length, outputs=outputs)
    for level in LEVELS:
        results = session(whole(model, program), level).run(list(outputs), feed(program, scores, valid))
        yield f"onnxruntime, {level}", dict(zip(outputs, map(np.asarray, results), strict=True))
