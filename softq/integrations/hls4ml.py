"""softq's functions as layers of hls4ml: a softmax in integers, by any method, in the project that hls4ml writes.

hls4ml's own softmax rounds an exponential and an inverse into tables of a fixed-point type. `replace_softmax` puts a
function that `softq hls` would write in its place. What the layer in front gives is read as the integers that it is:
bits of `ap_fixed`, whose scale is a power of two.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hls4ml.model.graph import ModelGraph
from hls4ml.model.layers import Layer, register_layer
from hls4ml.model.types import FixedPrecisionType, IntegerPrecisionType

from softq.errors import RefusalError, UsageError
from softq.rtl import MadeFunction, hls

_BACKENDS = ("Vitis", "Vivado")
_TYPES = "vivado:specific_types"
"""What gives variables their form in C++, for both."""

_HEADER = """

#include "nnet_common.h"
#include "nnet_types.h"

namespace nnet {{

/* {name} over the last axis of an array: {rows} rows of {length}. */
template <class data_T, class res_T> void {name}(data_T data[{size}], res_T res[{size}]) {{
    for (int row = 0; row < {rows}; ++row) {{
        {given} scores[{length}];
        {result} weights[{length}];
        for (int at = 0; at < {length}; ++at) {{
#pragma HLS UNROLL
            scores[at] = {bits}(data[row * {length} + at].range());
        }}
        ::{name}::run({length}, scores, weights);
        for (int at = 0; at < {length}; ++at) {{
#pragma HLS UNROLL
            res[row * {length} + at].range() = weights[at];
        }}
    }}
}}

/* The same over streams of rows, or of parts of them. */
template <class data_T, class res_T> void {name}(hls::stream<data_T> &data, hls::stream<res_T> &res) {{
    static_assert({length} % data_T::size == 0, "a beat is a row, or divides one");
    for (int row = 0; row < {rows}; ++row) {{
        {given} scores[{length}];
        {result} weights[{length}];
        for (int beat = 0; beat < {length} / data_T::size; ++beat) {{
            data_T pack = data.read();
            for (unsigned at = 0; at < data_T::size; ++at) scores[beat * data_T::size + at] = {bits}(pack[at].range());
        }}
        ::{name}::run({length}, scores, weights);
        for (int beat = 0; beat < {length} / res_T::size; ++beat) {{
            res_T pack;
            for (unsigned at = 0; at < res_T::size; ++at) pack[at].range() = weights[beat * res_T::size + at];
            res.write(pack);
        }}
    }}
}}

}}
"""


class SoftqSoftmax(Layer):  # type: ignore[misc]
    """A softmax of softq: its weights as an unsigned fixed-point type, with the scale that the method gives them."""

    def initialize(self) -> None:
        """Give the layer its output."""
        shape = self.get_input_variable().shape
        self.add_output_variable(shape, precision=self.get_attr("weights"))


register_layer("SoftqSoftmax", SoftqSoftmax)


def replace_softmax(model: ModelGraph, method: str, settings: Mapping[str, object] | None = None) -> list[str]:
    """Replace each Softmax of a model, and return their names; the model is what hls4ml's converters gave.

    Call it before `compile`, `write` and `build`. The layer in front has to give fixed-point numbers of at most 8 bits:
    its precision in hls4ml's configuration, or that of a quantizer.

    Args:
        model: The model; it is changed.
        method: A method of softq whose weights sum to a power of two.
        settings: Its options; `step` comes from the precision of the scores.

    Raises:
        UsageError: the method does not take its settings, or the model has no Softmax, or is for another backend.
        RefusalError: a softmax cannot be replaced; the message says which and why. Nothing is replaced then.
    """
    backend = model.config.backend.name
    if backend not in _BACKENDS:
        raise UsageError(f"the model is for {backend}; softq's functions are for {' and '.join(_BACKENDS)}")
    found = [layer for layer in model.get_layers() if layer.class_name == "Softmax"]
    if not found:
        raise UsageError("the model has no Softmax")
    made = [_make(layer, method, dict(settings or {})) for layer in found]
    for layer, (function, weights) in zip(found, made, strict=True):
        _replace(model, layer, function, weights)
    model.apply_flow(_TYPES)  # The new layers' outputs are variables of the backend, too.
    return [layer.name for layer in found]


def _make(layer: Any, method: str, settings: dict[str, object]) -> tuple[MadeFunction, FixedPrecisionType]:
    scores = layer.get_input_variable()
    kind, length = scores.type.precision, int(scores.shape[-1])
    if not isinstance(kind, (FixedPrecisionType, IntegerPrecisionType)) or kind.width > 8:
        raise RefusalError(f"{layer.name} reads {kind}; softq's functions take fixed-point numbers of at most 8 bits")
    settings["step"] = 2.0 ** (kind.integer - kind.width)
    given: dict[str, Any] = {"scores": "i8" if kind.signed else "u8", "length": length, "rows": 0}
    unnamed = hls(method, settings, constants=False, **given)
    weights, total = unnamed.function.argument("weights"), unnamed.constants.get("normalizer", 0)
    if weights is None or total <= 0 or total & (total - 1):
        raise RefusalError(
            f"{layer.name}: {method} has no weights whose sum is a power of two, as a fixed-point type needs it"
        )
    digest = hashlib.sha256(f"{unnamed.program.name} {settings['step']} {given}".encode()).hexdigest()[:8]
    name = f"softq_{method.replace('-', '_')}_{digest}"
    function = hls(method, settings, constants=False, name=name, **given)
    width = int(weights.interval.high).bit_length()
    return function, FixedPrecisionType(width, width - (total.bit_length() - 1), signed=False)


def _replace(model: ModelGraph, layer: Any, made: MadeFunction, weights: FixedPrecisionType) -> None:
    scores, result = made.function.arguments
    shape = layer.get_input_variable().shape
    length, name = int(shape[-1]), made.function.name
    rows = math.prod(int(size) for size in shape[:-1])
    kind = layer.get_input_variable().type.precision
    text = made.function.text + _HEADER.format(
        name=name,
        rows=rows,
        length=length,
        size=rows * length,
        given=scores.type,
        bits=f"{'ap_int' if kind.signed else 'ap_uint'}<{kind.width}>",
        result=result.type,
    )
    header = Path(tempfile.mkdtemp(prefix="softq-")) / f"{name}_{rows}.h"
    header.write_text(text, "utf-8")
    model.config.backend.register_source(header)
    node = model.make_node("SoftqSoftmax", layer.name, {"weights": weights}, list(layer.inputs), list(layer.outputs))
    model.replace_node(layer, node)
    given, out = node.get_input_variable(), node.get_output_variable()
    node.set_attr("config_cpp", "")
    node.set_attr("include_header", [f"nnet_utils/{header.name}"])
    call = f"nnet::{name}<{given.type.name}, {out.type.name}>({given.name}, {out.name});"
    node.set_attr("function_cpp", call)
