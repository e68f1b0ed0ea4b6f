"""Three models for each profile: one that is taken as it is, one that is after a conversion, one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx


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
) -> onnx.ModelProto:
    """Return a softmax of codes (or floats) whose weights become codes (or stay floats)."""
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
    alone ({codes or "float"}[{shape}] scores) => ({"float" if result is None else result[0]}[{shape}] out)
    <{named}>
    {{
        {given}
        {"raw" if guarded else "p"} = Softmax <axis = {axis}> (x)
        {guard if guarded else ""}
        {behind}
    }}
    """)


def attention(
    kind: int | None, weights: tuple[int, float] | None, *, length: int = 16, head: int = 16, factor: bool = False
) -> onnx.ModelProto:
    """Return an attention on codes.

    Args:
        kind: Element type of the codes of queries, keys and values (a number of ONNX); None for floats.
        weights: Type and scale of the codes of the weights; None where they stay floats.
        length: Positions.
        head: Elements of a query.
        factor: Whether the scores are multiplied behind their product.
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
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    fused (float[1, 2, {length}, {head}] q, float[1, 2, {head}, {length}] k, float[1, 2, {length}, {head}] v)
        => (float[1, 2, {length}, {head}] out)
    <float step = {{0.0625}}, float unit = {{{1.0 if weights is None else weights[1]!r}}}, float number = {{0.25}}>
    {{
        {coded}
        s = MatMul(qd, kd)
        x = {"Mul(s, number)" if factor else "Identity(s)"}
        p = Softmax <axis = -1> (x)
        {behind}
        out = MatMul(w, vd)
    }}
    """)


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


INT8, E4M3 = 3, 17
_U8, _S16 = ("uint8", 1 / 256, 0), ("int16", 1 / 32768, 0)

CASES: Mapping[str, Cases] = {
    "litert": Cases(alone(), alone(result=("int8", 1 / 255, -128)), alone("uint16", ("uint16", 1 / 65536, 0)), "dtype"),
    "cmsis-nn": Cases(alone("int16", _S16), alone(result=("int8", 1 / 128, 0)), alone(None, None), "dtype"),
    "ethos-u": Cases(alone(shape="1, 2, 3, 16"), alone(axis=1), alone(shape="1, 1, 2, 3, 16"), "rank"),
    "qnn-htp": Cases(
        alone("uint8", _U8), alone("uint8", ("uint8", 0.0078432, 128)),
        alone("uint8", ("uint8", 1 / 127, 0), guarded=True), "output",
    ),
    "tensorrt-int8": Cases(
        attention(INT8, (INT8, 1 / 127)), attention(INT8, None), attention(INT8, (INT8, 1 / 127), length=513), "length"
    ),
    "tensorrt-fp8": Cases(
        attention(E4M3, (E4M3, 1 / 448)), attention(E4M3, None, factor=True), attention(INT8, (E4M3, 1 / 448)),
        "products",
    ),
    "openvino": Cases(attention(INT8, None), operator(), attention(None, None), "products"),
    "vitis-ai": Cases(alone(result=None), alone(result=None, axis=1), alone(result=None, shape="2, 1024"), "length"),
    "finn": Cases(alone(result=None), alone(result=None, axis=0), alone(result=None, shape="N, 16"), "length"),
}  # fmt: skip
