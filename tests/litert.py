"""One softmax in TensorFlow Lite's interpreter, as an oracle."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.generic]


def softmax(x: Array, step: float, out: type[np.generic], out_step: float, out_zero: int) -> Array:
    """Return the softmax of integer scores by the reference kernel; zero points of scores are 0."""
    pytest.importorskip("ai_edge_litert")
    from ai_edge_litert import interpreter
    from ai_edge_litert import schema_py_generated as schema

    kinds: dict[type[np.generic], int] = {np.int8: schema.TensorType.INT8, np.int16: schema.TensorType.INT16}

    def tensor(name: str, kind: type[np.generic], scale: float, zero: int) -> Any:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(x.shape), kinds[kind], 0
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
        return made

    code, operator, graph, model = schema.OperatorCodeT(), schema.OperatorT(), schema.SubGraphT(), schema.ModelT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SOFTMAX
    code.version = 2
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0], [1]
    operator.builtinOptionsType, operator.builtinOptions = (
        schema.BuiltinOptions.SoftmaxOptions,
        schema.SoftmaxOptionsT(),
    )
    operator.builtinOptions.beta = 1.0
    graph.tensors = [tensor("x", x.dtype.type, step, 0), tensor("y", out, out_step, out_zero)]
    graph.inputs, graph.outputs, graph.operators = [0], [1], [operator]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    run = interpreter.Interpreter(
        model_content=bytes(builder.Output()), num_threads=1,
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
    )  # fmt: skip
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    return np.asarray(run.get_tensor(run.get_output_details()[0]["index"]))
