"""MelWeightMatrix: how much each frequency of a spectrum adds to each band of equal width on the mel scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.parameters import emit, integer
from softq.compiler.tir.symbolic import expression, simplified

_BANDS, _LENGTH, _RATE, _LOWER, _UPPER = range(5)


def _mel_weights(node: Node) -> list[relax.Expr]:
    (bands,), (length,) = node.sizes(_BANDS).ravel(), node.sizes(_LENGTH).ravel()
    rate, lower, upper = (
        reshape(node, node.emit(relax.op.astype(node.tensor(place), "float64")), [1])
        for place in (_RATE, _LOWER, _UPPER)
    )
    one = relax.const(1.0, "float64")
    parts = [node.emit(relax.op.divide(x, relax.const(700.0, "float64"))) for x in (lower, upper)]
    ends = [node.emit(relax.op.log(node.emit(relax.op.add(part, one)))) for part in parts]

    def centers(low: Any, high: Any, counts: Any) -> Any:
        # The step is a part of all ends of bands, as ONNX's reference and onnxruntime have it.
        step = (high[0] - low[0]) / (counts[0] + 2).astype("float64")
        return te.compute([counts[0] + 2], lambda i: i.astype("float64") * step + low[0], name="centers")

    powers = node.emit(relax.op.exp(emit(node, "centers", centers, *ends, [bands])))

    def places(powers: Any, rate: Any, counts: Any) -> Any:
        def element(i: Any) -> Any:
            hertz = (powers[i] - tirx.FloatImm("float64", 1.0)) * tirx.FloatImm("float64", 700.0)
            return tirx.floor((counts[0] + 1).astype("float64") * hertz / rate[0]).astype("int64")

        return te.compute(powers.shape, element, name="places")

    at = emit(node, "places", places, powers, rate, [length])

    def weights(at: Any, counts: Any) -> Any:
        def element(frequency: Any, band: Any) -> Any:
            left, center, right = at[band], at[band + 1], at[band + 2]
            rising = (frequency - left).astype("float32") / tirx.max(center - left, integer(1)).astype("float32")
            falling = (right - frequency).astype("float32") / tirx.max(right - center, integer(1)).astype("float32")
            value = tirx.Select(frequency < center, rising, falling)
            inside = tirx.And(frequency >= left, frequency < right)
            value = tirx.Select(inside, value, tirx.FloatImm("float32", 0.0))
            return tirx.Select(frequency == center, tirx.FloatImm("float32", 1.0), value)

        return te.compute(counts, element, name="weights")

    half = simplified(tirx.floordiv(expression(length), 2) + 1)
    result = emit(node, "weights", weights, at, [half, bands])
    kind = _TYPES[int(node.attributes.get("output_datatype", 1))]
    return [result if kind == "float32" else node.emit(relax.op.astype(result, kind))]


_TYPES: Mapping[int, str] = {1: "float32", 10: "float16", 11: "float64", 6: "int32", 7: "int64"}

CONVERTERS: Mapping[str, Converter] = {"MelWeightMatrix": _mel_weights}
