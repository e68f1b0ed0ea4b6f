"""Cast, CastLike, QuantizeLinear and DequantizeLinear where elements are of types that TVM does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from tvm import relax, te, tirx

from softq.compiler.frontend.element_types import BITS, cast, element, held, is_integer, number
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.tir.small_floats import encode
from softq.compiler.tir.symbolic import expression, plain
from softq.errors import RefusalError


def _numpy_name(code: int) -> str:
    return str(onnx.helper.tensor_dtype_to_np_dtype(code).name)


def _cast(node: Node) -> list[relax.Expr]:
    return _cast_to(node, _numpy_name(node.attributes["to"]))


def _cast_like(node: Node) -> list[relax.Expr]:
    return _cast_to(node, node.dtype(1))


def _cast_to(node: Node, dtype: str) -> list[relax.Expr]:
    source = node.dtype(0)
    if source not in BITS and dtype not in BITS:
        return [node.emit(relax.op.astype(node.tensor(0), dtype))]
    saturate, mode = bool(node.attributes.get("saturate", 1)), node.attributes.get("round_mode", "up")
    return [cast(node.importer.bb, node.tensor(0), source, dtype, saturate, mode)]


def _quantize(node: Node) -> list[relax.Expr] | None:
    attributes, source, scale_type = node.attributes, node.dtype(0), node.dtype(1)
    code = attributes.get("output_dtype", 0)
    dtype = node.dtype(2) if node.has(2) else _numpy_name(code) if code else "uint8"
    precision = attributes.get("precision", 0)
    if not (attributes.get("block_size", 0) or precision or {source, scale_type, dtype} & BITS.keys()):
        return None
    divided = _numpy_name(precision) if precision else _wider(source, scale_type)
    if divided == "float64":
        raise RefusalError(f"QuantizeLinear {node.name!r} divides in {divided}; give precision float")
    saturate = bool(attributes.get("saturate", 1))
    part = _parts(node)

    def quantize(x: Any, scale: Any, *zero: Any) -> Any:
        def code_of(*at: Any) -> Any:
            quotient = _float(x(*at), source) / _float(scale(*part(at, scale)), scale_type)
            quotient = _float(element(quotient, "float32", divided), divided)
            point = number(zero[0](*part(at, zero[0])), dtype) if zero else None
            if not is_integer(dtype):
                # What may be given as the zero point of floats is 0.
                return encode(dtype, quotient, saturate)
            return _clamped(quotient, point, dtype)

        return te.compute(x.shape, code_of, name="quantized")

    return [node.importer.bb.emit_te(quantize, *_operands(node), primfunc_name_hint="quantize")]


def _clamped(quotient: Any, point: Any, dtype: str) -> Any:
    """Return the integer nearest to a number plus the zero point, within the range of the type; NaN has the least."""
    # No code and no zero point is beyond: what is clamped here is clamped there.
    most = tirx.FloatImm("float32", 2.0**20)
    least = tirx.FloatImm("float32", -(2.0**20))
    near = tirx.Select(quotient > least, quotient, least)
    near = tirx.Select(near < most, near, most)
    whole = tirx.nearbyint(near).astype("int32")
    if point is not None:
        whole = whole + point.astype("int32")
    bits = BITS.get(dtype) or int(dtype.lstrip("uint"))
    low, high = (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    whole = tirx.max(tirx.min(whole, tirx.IntImm("int32", high)), tirx.IntImm("int32", low))
    return whole.astype(held(dtype))


def _dequantize(node: Node) -> list[relax.Expr] | None:
    attributes, source, scale_type = node.attributes, node.dtype(0), node.dtype(1)
    code = attributes.get("output_dtype", 0)
    dtype = _numpy_name(code) if code else scale_type
    if not (attributes.get("block_size", 0) or code or {source, scale_type} & BITS.keys()):
        return None
    part = _parts(node)

    def dequantize(x: Any, scale: Any, *zero: Any) -> Any:
        def number_of(*at: Any) -> Any:
            value = _float(x(*at), source)
            if zero and is_integer(source):
                value = value - _float(zero[0](*part(at, zero[0])), source)
            return element(value * _float(scale(*part(at, scale)), scale_type), "float32", dtype)

        return te.compute(x.shape, number_of, name="dequantized")

    return [node.importer.bb.emit_te(dequantize, *_operands(node), primfunc_name_hint="dequantize")]


def _float(x: Any, dtype: str) -> Any:
    return number(x, dtype).astype("float32")


def _wider(a: str, b: str) -> str:
    """Return the type of a quotient, as NumPy has it."""
    return a if a == b and a in ("float16", "bfloat16", "float64") else "float64" if "float64" in (a, b) else "float32"


def _operands(node: Node) -> Sequence[relax.Expr]:
    return [node.tensor(i) for i in range(3) if node.has(i)]


def _parts(node: Node) -> Any:
    """Return what gives the place of an element's scale, or zero point, from that of the element."""
    rank, block = len(node.shape(0)), node.attributes.get("block_size", 0)
    scales = [[plain(d) for d in node.shape(i)] for i in (1, 2) if node.has(i)]
    # One number is for all elements, whatever the axis.
    several = any(dims not in ([], [1]) for dims in scales)
    axis = node.axis(node.attributes.get("axis", 1), rank) if several else 0
    if any(len(dims) != rank if block else len(dims) > 1 for dims in scales):
        raise RefusalError(f"{node.operator} {node.name!r}: scales or zero points of shape {scales[-1]}")

    def part(at: Sequence[Any], of: Any) -> Sequence[Any]:
        if block:
            return [tirx.floordiv(i, expression(block)) if a == axis else i for a, i in enumerate(at)]
        if len(of.shape) == 0:
            return []
        return [0 if plain(of.shape[0]) == 1 else at[axis]]

    return part


CONVERTERS: Mapping[str, Converter] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
