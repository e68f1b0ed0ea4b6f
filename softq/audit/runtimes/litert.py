"""LiteRT (TensorFlow Lite): its kernels by reference, its optimised ones, and XNNPACK's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from softq.audit.runtimes import Options, Runtime, Softmax
from softq.audit.task import UNIT_RESULTS, Array, Encoding, Task
from softq.errors import UsageError

_KERNELS = {
    "xnnpack": "BUILTIN",
    "optimized": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}


def _make(task: Task, options: Options) -> bytes:
    """Return a model of one SOFTMAX."""
    try:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema
    except ImportError as error:
        raise UsageError("runtime litert needs ai-edge-litert: pip install ai-edge-litert") from error
    kinds = {np.dtype(name): getattr(schema.TensorType, name.upper()) for name in ("float32", "int8", "uint8", "int16")}

    def tensor(name: str, dtype: str, encoding: Encoding | None) -> Any:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(task.shape), kinds[np.dtype(dtype)], 0
        if encoding is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [encoding.scale], [encoding.zero_point]
        return made

    code, operator, graph, model = schema.OperatorCodeT(), schema.OperatorT(), schema.SubGraphT(), schema.ModelT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SOFTMAX
    code.version = 3 if task.dtype == "int16" else 2 if task.dtype == "int8" else 1
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0], [1]
    operator.builtinOptionsType, operator.builtinOptions = (
        schema.BuiltinOptions.SoftmaxOptions,
        schema.SoftmaxOptionsT(),
    )
    operator.builtinOptions.beta = 1.0
    graph.tensors = [tensor("scores", task.dtype, task.scores), tensor("result", task.result_dtype, task.result)]
    graph.inputs, graph.outputs, graph.operators = [0], [1], [operator]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _load(file: bytes, task: Task, options: Options) -> Softmax:
    from ai_edge_litert import interpreter

    if task.axis not in (-1, len(task.shape) - 1):
        raise UsageError("SOFTMAX of LiteRT is along the last axis")
    kernels = options.get("kernels", "xnnpack")
    if kernels not in _KERNELS:
        raise UsageError(f"litert kernels is {kernels!r}; allowed is {' or '.join(_KERNELS)}")
    made = interpreter.Interpreter(
        model_content=file,
        num_threads=task.threads,
        experimental_op_resolver_type=getattr(interpreter.OpResolverType, _KERNELS[kernels]),
    )
    made.allocate_tensors()
    given, result = made.get_input_details()[0]["index"], made.get_output_details()[0]["index"]

    def softmax(scores: Array) -> Array:
        made.set_tensor(given, scores)
        made.invoke()
        return np.asarray(made.get_tensor(result))

    return softmax


def _version() -> Mapping[str, str]:
    from importlib.metadata import version

    return {"ai-edge-litert": version("ai-edge-litert")}


def _script(task: Task, options: Options) -> str:
    resolver = _KERNELS[options.get("kernels", "xnnpack")]
    return (
        "from ai_edge_litert.interpreter import Interpreter, OpResolverType\n\n"
        f'run = Interpreter("model.tflite", num_threads={task.threads},\n'
        f"                  experimental_op_resolver_type=OpResolverType.{resolver})\n"
        "run.allocate_tensors()\n"
        'run.set_tensor(run.get_input_details()[0]["index"], scores)\n'
        "run.invoke()\n"
        'found = run.get_tensor(run.get_output_details()[0]["index"])\n'
    )


RUNTIME = Runtime(
    name="litert",
    summary="LiteRT's (TensorFlow Lite's) SOFTMAX, by XNNPACK, its optimised kernels or those by reference.",
    dtypes=("float32", "int8", "uint8", "int16"),
    load=_load,
    version=_version,
    make=_make,
    file="model.tflite",
    results=UNIT_RESULTS,
    options={"kernels": "xnnpack (as it comes), optimized (without XNNPACK), or reference"},
    script=_script,
    any_axis=False,
)
