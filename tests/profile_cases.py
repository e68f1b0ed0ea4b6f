"""Three models for each profile: one that is taken as it is, one that is after a conversion, one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]


def run(model: onnx.ModelProto, feed: Arrays) -> NDArray[np.generic]:
    options = onnxruntime.SessionOptions()
    # Optimised, onnxruntime 1.31.1 makes products of integers of those on e4m3, and refuses them.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def feed_of(model: onnx.ModelProto) -> Arrays:
    """Return random inputs: floats of deviation 1, integers over half of their range."""
    rng = np.random.default_rng(0)
    made: Arrays = {}
    for value in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value or 3 for dim in value.type.tensor_type.shape.dim]
        if np.issubdtype(kind, np.integer):
            limits = np.iinfo(kind)
            middle = (int(limits.max) + int(limits.min) + 1) // 2
            made[value.name] = (middle + rng.integers(-64, 64, size=shape)).astype(kind)
        else:
            made[value.name] = rng.normal(size=shape).astype(kind)
    return made


class Cases(NamedTuple):
    """The three models, and the subject of the rule that the third breaks."""

    taken: onnx.ModelProto
    after: onnx.ModelProto
    never: onnx.ModelProto
    broken: str


def alone(
    codes: str | None = "int8",
    result: tuple[str, float, int] | None = ("int8", 1 / 256, -128),
    *,
    axis: int = -1,
    shape: str = "2, 3, 16",
    guarded: bool = False,
    real: str = "float",
) -> onnx.ModelProto:
    """Return a softmax of codes (or of reals) whose weights become codes (or stay such)."""
    given = "x = Identity(scores)" if codes is None else "x = DequantizeLinear(scores, step)"
    named = "float step = {0.0625}"
    behind, guard = (
        "out = Identity(p)",
        "nan = IsNaN(raw)\nnone = Constant <value_float = 0.0> ()\np = Where(nan, none, raw)",
    )
    if result is not None:
        named += f", float unit = {{{result[1]!r}}}, {result[0]} zero = {{{result[2]}}}"
        behind = "out = QuantizeLinear(p, unit, zero)"
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    alone ({codes or real}[{shape}] scores) => ({real if result is None else result[0]}[{shape}] out)
    <{named}>
    {{
        {given}
        {"raw" if guarded else "p"} = Softmax <axis = {axis}> (x)
        {guard if guarded else ""}
        {behind}
    }}
    """)


def attention(
    kind: int | None,
    weights: tuple[int, float] | None,
    *,
    length: int = 16,
    head: int = 16,
    factor: bool = False,
    real: str = "float",
    half: bool = False,
    coded_result: bool = False,
) -> onnx.ModelProto:
    """Return an attention on codes.

    Args:
        kind: Element type of the codes of queries, keys and values (a number of ONNX); None for floats.
        weights: Type and scale of the codes of the weights; None where they stay floats.
        length: Positions.
        head: Elements of a query.
        factor: Whether the scores are multiplied behind their product.
        real: ONNX's name of the type that is not codes.
        half: Whether that type is float16.
        coded_result: Whether its result becomes codes, too.
    """
    coded = "".join(
        f"{name}c = QuantizeLinear <output_dtype = {kind}> ({name}, step)\n{name}d = DequantizeLinear({name}c, step)\n"
        if kind is not None else f"{name}d = Identity({name})\n"
        for name in ("q", "k", "v")
    )  # fmt: skip
    if weights is None:
        behind = "w = Identity(p)"
    else:
        behind = f"pc = QuantizeLinear <output_dtype = {weights[0]}> (p, unit)\nw = DequantizeLinear(pc, unit)"
    end = "out = MatMul(w, vd)"
    if coded_result:
        made = f"oc = QuantizeLinear <output_dtype = {kind}> (o, step)"
        end = f"o = MatMul(w, vd)\n{made}\nout = DequantizeLinear(oc, step)"
    model = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    fused ({real}[1, 2, {length}, {head}] q, {real}[1, 2, {head}, {length}] k, {real}[1, 2, {length}, {head}] v)
        => ({real}[1, 2, {length}, {head}] out)
    <{real} step = {{0.0625}}, {real} unit = {{{1.0 if weights is None else weights[1]!r}}}, {real} number = {{0.25}}>
    {{
        {coded}
        s = MatMul(qd, kd)
        x = {"Mul(s, number)" if factor else "Identity(s)"}
        p = Softmax <axis = -1> (x)
        {behind}
        {end}
    }}
    """)
    return _halved(model) if half else model


def _halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of floats as one of float16, which the text format has no numbers of."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


def operator() -> onnx.ModelProto:
    """Return ONNX's operator Attention, of codes."""
    return onnx.parser.parse_model("""
    <ir_version: 11, opset_import: ["" : 23]>
    whole (float[1, 2, 4, 8] q, float[1, 2, 6, 8] k, float[1, 2, 6, 8] v) => (float[1, 2, 4, 8] out)
    <float step = {0.0625}>
    {
        qc = QuantizeLinear <output_dtype = 3> (q, step)
        kc = QuantizeLinear <output_dtype = 3> (k, step)
        vc = QuantizeLinear <output_dtype = 3> (v, step)
        qd = DequantizeLinear(qc, step)
        kd = DequantizeLinear(kc, step)
        vd = DequantizeLinear(vc, step)
        out = Attention(qd, kd, vd)
    }
    """)


UINT8, INT8, E4M3 = 2, 3, 17
_U8, _S16 = ("uint8", 1 / 256, 0), ("int16", 1 / 32768, 0)

CASES: Mapping[str, Cases] = {
    "litert": Cases(alone(), alone(result=("int8", 1 / 255, -128)), alone("uint16", ("uint16", 1 / 65536, 0)), "dtype"),
    "cmsis-nn": Cases(
        alone("int16", _S16), alone(result=("int8", 1 / 128, 0)), alone(None, None, real="double"), "dtype"
    ),
    "cmsis-nn-float": Cases(
        alone(None, None), alone(None, None, axis=1), alone(None, None, real="double"), "dtype"
    ),
    "ethos-u": Cases(alone(shape="1, 2, 3, 16"), alone(axis=1), alone(shape="1, 1, 2, 3, 16"), "rank"),
    "qnn-htp": Cases(
        alone("uint8", _U8), alone("uint8", ("uint8", 0.0078432, 128)),
        alone("uint8", ("uint8", 1 / 127, 0), guarded=True), "output",
    ),
    "tensorrt-int8": Cases(
        attention(INT8, (INT8, 1 / 127), half=True, coded_result=True),
        attention(INT8, None, coded_result=True),
        attention(INT8, (INT8, 1 / 127), length=513, half=True, coded_result=True), "length",
    ),
    "tensorrt-fp8": Cases(
        attention(E4M3, (E4M3, 1 / 448), half=True), attention(E4M3, None, factor=True),
        attention(INT8, (E4M3, 1 / 448), half=True), "products",
    ),
    "onnxruntime-cpu": Cases(
        alone("uint8", _U8), attention(None, None), alone("uint16", ("uint16", 1 / 65536, 0)), "dtype"
    ),
    "openvino": Cases(attention(INT8, None), operator(), attention(None, None, real="double"), "products"),
    "vitis-ai": Cases(alone(result=None), alone(result=None, axis=1), alone(result=None, shape="2, 1024"), "length"),
    "finn": Cases(alone(result=None), alone(result=None, axis=0), alone(result=None, shape="N, 16"), "length"),
}  # fmt: skip

FLOATS: Mapping[str, onnx.ModelProto] = {
    "cmsis-nn": alone(None, None),
    "ethos-u": alone(None, None, shape="1, 2, 3, 16"),
    "onnxruntime-cpu": attention(None, None, factor=True),
    "openvino": attention(None, None, factor=True),
    "qnn-htp": attention(None, None, factor=True),
    "tensorrt-fp8": attention(None, None, factor=True),
    "tensorrt-int8": attention(None, None, factor=True),
    "vitis-ai": alone(None, None),
}
"""Models without codes, that are taken after a conversion with ranges of calibration data."""
