"""What operators want of their nodes: counts of inputs and outputs, and attributes with their types."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import onnx_ir as ir
from onnx import defs

_INT, _FLOAT, _STRING, _INTS = (ir.AttributeType[name] for name in ("INT", "FLOAT", "STRING", "INTS"))

MICROSOFT: Mapping[str, ir.AttributeType] = {
    name: kind
    for kind, names in {
        _INT: "axis K N bits block_size causal do_rotary interleaved is_packed_batching keepdims kv_num_heads "
        "local_window_size num_heads rotary_embedding_dim rotary_interleaved scale_index smooth_softmax transA transB "
        "transBatchA transBatchB unidirectional past_present_share_buffer is_inner_broadcast accuracy_level",
        _FLOAT: "alpha epsilon mask_filter_value scale softcap",
        _INTS: "qkv_hidden_sizes",
        _STRING: "activation",
    }.items()
    for name in names.split()
}
"""Attributes of onnxruntime's own operators, of which onnx has no schemas; a name has the same type in all of them."""


@dataclass(frozen=True)
class Rules:
    """What an operator wants.

    Attributes:
        inputs: The least and the greatest number of inputs.
        outputs: The same of outputs.
        types: Types of its attributes, by name.
        required: Attributes that must be there.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    types: Mapping[str, ir.AttributeType]
    required: Collection[str]


VALUES = frozenset(
    {"sparse_value", "value", "value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings"}
)
"""Attributes of a Constant."""

_NEWEST = defs.onnx_opset_version()

UNKNOWN = Rules((0, sys.maxsize), (1, sys.maxsize), {}, ())
"""What holds of every operator of the default domain."""


@lru_cache(maxsize=4096)
def rules_of(operator: str, opset: int) -> Rules | None:
    """Return what an operator of the default domain wants in a version, of which 0 stands for one that is not known."""
    try:
        schema = defs.get_schema(operator, opset, "")
    except defs.SchemaError:
        # The model does not say which version; attributes kept their types through all of them.
        found = rules_of(operator, _NEWEST) if opset == 0 else None
        return found and replace(found, inputs=(found.inputs[0], sys.maxsize), outputs=(found.outputs[0], sys.maxsize))
    types = {name: ir.AttributeType(cast("Any", entry.type).value) for name, entry in schema.attributes.items()}
    required = [name for name, entry in schema.attributes.items() if entry.required]
    return Rules((schema.min_input, schema.max_input), (schema.min_output, schema.max_output), types, required)
