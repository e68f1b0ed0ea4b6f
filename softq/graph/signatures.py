"""The inputs, attributes and outputs that softq handles of each operator that it opens; a node with others is refused.

A new release of ONNX or onnxruntime may give an operator an input or an attribute that changes its result.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir
from onnx import defs

from softq.graph.queries import node_label, operator_label

_CONV = "auto_pad dilations group kernel_shape pads strides activation activation_params"
_POOL = "auto_pad ceil_mode dilations kernel_shape pads strides"
_TABLE = f"""
:SimplifiedLayerNormalization SimplifiedLayerNormalization | X scale | axis epsilon stash_type=1 | 2
Attention | input weights bias mask_index past attention_bias -past_sequence_length | num_heads unidirectional
    mask_filter_value scale qkv_hidden_sizes do_rotary=0 past_present_share_buffer=0 rotary_embedding_dim | 2
BiasGelu | A B
BiasSoftmax | data bias | axis is_inner_broadcast
DequantizeLinear | x x_scale x_zero_point | axis
DynamicQuantizeLSTM | X W R B sequence_lens initial_h initial_c P W_scale W_zero_point R_scale R_zero_point
    | activation_alpha activation_beta activations clip direction hidden_size input_forget | 3
DynamicQuantizeMatMul | A B b_scale b_zero_point bias
EmbedLayerNormalization | input_ids segment_ids word_embedding position_embedding segment_embedding gamma beta mask
    position_ids | epsilon mask_index_type | 3
FastGelu | X bias
FusedConv nchwc:Conv | X W B Z | {_CONV}
FusedGemm | A B C | alpha beta transA transB activation activation_alpha activation_beta activation_gamma
FusedMatMul | A B | alpha transA transB transBatchA transBatchB
Gelu nchwc:GlobalAveragePool nchwc:GlobalMaxPool | X
GroupQueryAttention | query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache
    -position_ids -attention_bias -head_sink -k_scale -v_scale -q_norm_weight -k_norm_weight | num_heads kv_num_heads
    scale softcap do_rotary=0,1 rotary_interleaved=0,1 local_window_size=!0 causal=0,1 qk_norm_epsilon
    smooth_softmax=0,-1 qk_output=0 k_quant_type=NONE v_quant_type=NONE kv_cache_bit_width=0 sliding_window_cache=0 | 3
MatMulIntegerToFloat | A B a_scale b_scale a_zero_point b_zero_point bias
MatMulNBits | A B scales zero_points -g_idx bias | K N bits block_size=16,32,64,128,256 accuracy_level
    weight_prepacked=0
MultiHeadAttention | query key value bias key_padding_mask attention_bias past_key past_value -past_sequence_length
    -cache_indirection | num_heads unidirectional mask_filter_value scale | 4
NhwcMaxPool | x | {_POOL}
QGemm | A a_scale a_zero_point B b_scale b_zero_point C y_scale y_zero_point | alpha transA transB
QLinearAdd QLinearMul | A A_scale A_zero_point B B_scale B_zero_point C_scale C_zero_point
QLinearAveragePool | X x_scale x_zero_point y_scale y_zero_point | auto_pad ceil_mode kernel_shape pads strides
    channels_last count_include_pad
QLinearConcat | Y_scale Y_zero_point inputs* | axis
QLinearGlobalAveragePool | X x_scale x_zero_point y_scale y_zero_point | channels_last
QLinearLeakyRelu | X X_scale X_zero_point Y_scale Y_zero_point | alpha
QLinearReduceMean | data data_scale data_zero_point reduced_scale reduced_zero_point | axes keepdims
QLinearSigmoid | X X_scale X_zero_point Y_scale Y_zero_point
QLinearSoftmax | X X_scale x_zero_point y_scale y_zero_point | axis opset
QLinearWhere | condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point
QuantizeLinear | x y_scale y_zero_point | axis
QuickGelu | X | alpha
RotaryEmbedding | input position_ids cos_cache sin_cache | interleaved=0,1 num_heads rotary_embedding_dim scale=1.0
    is_packed_batching=0
SkipLayerNormalization | input skip gamma beta bias | epsilon | 4
SkipSimplifiedLayerNormalization | input skip gamma bias | epsilon | 4
nchwc:AveragePool | X | {_POOL} count_include_pad
nchwc:MaxPool | X | {_POOL} storage_order
nchwc:ReorderInput nchwc:ReorderOutput | X | channels channels_last
nchwc:Upsample | X | coordinate_transformation_mode mode scales
"""
"""Operators of com.microsoft, of `nchwc:` in it, of the default domain after `:`; inputs by place, attributes, outputs.

`-name` is not supported, `name*` may be repeated to the end; `name=0,1` is supported with these values alone, `name=!0`
with all but these.
"""


@dataclass(frozen=True)
class Signature:
    """The parts of an operator that are handled; the texts are those of the table."""

    inputs: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    outputs: int = 1

    def unsupported(self, node: ir.Node) -> Iterator[str]:
        """Yield each part of a node that is not handled, by its name."""
        supported = {name: values for name, _, values in (text.partition("=") for text in self.attributes)}
        for name, attribute in node.attributes.items():
            if name not in supported:
                yield f"the unknown attribute {name}"
                continue
            values, barred = supported[name].removeprefix("!"), supported[name].startswith("!")
            if values and (str(attribute.value) in values.split(",")) == barred:
                yield f"{name} = {attribute.value}"
        for place, value in enumerate(node.inputs):
            known = self.inputs[place] if place < len(self.inputs) else self.inputs[-1] if self.inputs else ""
            if value is not None and place >= len(self.inputs) and not known.endswith("*"):
                yield f"the unknown input {value.name}"
            elif value is not None and known.startswith("-"):
                yield known[1:]
        yield from (f"the unknown output {value.name}" for value in node.outputs[self.outputs :] if value.name)


@cache
def find_signature(domain: str, operator: str, opset: int) -> Signature | None:
    """Return the parts of an operator that are handled: those of the table, or all of ONNX; None of other operators.

    An operator that is younger than the operator set, as onnxruntime writes some, is the one of the newest set.
    """
    standard = domain in ("", "ai.onnx")
    name = f"{domain}:{operator}".replace("ai.onnx:", ":").replace("com.microsoft:", "").replace("com.microsoft.", "")
    for entry in re.split(r"\n(?=\S)", _TABLE.strip()):
        names, inputs, *more = (part.split() for part in entry.split("|"))
        if name in names:
            return Signature(tuple(inputs), tuple(more[0]) if more else (), int(more[1][0]) if more[1:] else 1)
    for version in (opset, defs.onnx_opset_version()) if standard else ():
        with contextlib.suppress(defs.SchemaError):
            schema = defs.get_schema(operator, version, "")
            variadic = defs.OpSchema.FormalParameterOption.Variadic
            names = (part.name + "*" * (part.option == variadic) for part in schema.inputs)
            return Signature(tuple(names), tuple(schema.attributes), schema.max_output)
    return None


def refuse_unsupported(node: ir.Node, opset: int) -> str:
    """Return why a node cannot be opened for its inputs, attributes and outputs; empty if it can, or is not known."""
    signature = find_signature(node.domain, node.op_type, opset)
    parts = [] if signature is None else list(signature.unsupported(node))
    return f"not yet: node {node_label(node)} is a {operator_label(node)} with {', '.join(parts)}" if parts else ""
