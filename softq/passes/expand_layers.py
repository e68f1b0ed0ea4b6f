"""Open onnxruntime's operators of whole layers into standard ones: fused convolutions, recurrent layers, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from softq.graph.bodies import conv_options, format_float, has_input, parse_body, pool_options
from softq.passes import BodyPass, PassEntry
from softq.passes.expand_contrib import DOMAIN


class ExpandLayers(BodyPass):
    """Opens the operators of `BODIES`; one whose types, ranks or modes the text does not cover stays."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        make = BODIES.get(node.op_type) if node.domain == DOMAIN else None
        return None if make is None or opset < 18 else make(node, opset)


_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "": (), "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"), "HardSwish": (),
}  # fmt: skip
"""The activations of a fused convolution, and what the numbers beside them are."""


def fused_conv(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return a convolution, a sum and an activation; None for an activation that is not known."""
    # Inputs: X, W, B, Z, which is added before the activation.
    name = node.attributes.get_string("activation", "")
    given = node.attributes.get("activation_params")
    values = [] if given is None else [format_float(value) for value in given.as_floats()]
    if name not in _NUMBERS or len(values) < len(_NUMBERS[name]):
        return None
    lines = [f"P = Conv {conv_options(node)} (X, W{', B' * has_input(node, 2)})"]
    lines.append("S = Add (P, Z)" if has_input(node, 3) else "S = Identity (P)")
    if name == "Clip" and opset >= 11:
        lines += [
            f"{n} = Constant <value: tensor = float {{{v}}}> ()" for n, v in zip(("low", "high"), values, strict=False)
        ]
        lines.append("Y = Clip (S, low, high)")
    elif name == "HardSwish":  # ONNX has it from 14 on.
        lines += [f"H = HardSigmoid <alpha: float = {format_float(1 / 6)}, beta: float = 0.5> (S)", "Y = Mul (S, H)"]
    else:
        options = ", ".join(f"{n}: float = {v}" for n, v in zip(_NUMBERS[name], values, strict=False))
        lines.append(f"Y = {name or 'Identity'} {f'<{options}>' if options else ''} (S)")
    return parse_body(opset, ["X", "W", "B", "Z"], ["Y"], lines)


def _dynamic_lstm(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return an LSTM of the dequantized weights.

    Its products are of float states, where onnxruntime rounds the inputs and each step's states to 8 bits first.
    """
    # Inputs: X, W [directions, inputs, gates], R, B, lengths, hidden, cell, P, then scale and zero point of W and of R.
    options: list[str] = []
    for name in ("direction",):
        options.append(f'{name}: string = "{node.attributes.get_string(name, "forward")}"')
    for name in ("hidden_size", "input_forget"):
        options.append(f"{name}: int = {node.attributes.get_int(name, 0)}")
    if "clip" in node.attributes:
        options.append(f"clip: float = {format_float(node.attributes.get_float('clip', 0.0))}")
    if "activations" in node.attributes:
        names = ", ".join(f'"{name}"' for name in node.attributes["activations"].as_strings())
        options.append(f"activations: strings = [{names}]")
    for name in ("activation_alpha", "activation_beta"):
        if name in node.attributes:
            numbers = ", ".join(format_float(x) for x in node.attributes[name].as_floats())
            options.append(f"{name}: floats = [{numbers}]")
    lines: list[str] = ["middle = Constant <value: tensor = int64[1] {1}> ()"]
    for name, place in (("W", 8), ("R", 10)):
        scale = node.inputs[place]
        if scale is None or scale.shape is None:
            return None
        wide = [f"{name}_scale", f"{name}_zero"]
        if len(scale.shape) == 1:
            spread = [f"{n}_s" for n in wide]
            lines.append(f"{name}_axes = Constant <value: tensor = int64[2] {{1, 2}}> ()")
            lines += [f"{new} = Unsqueeze ({old}, {name}_axes)" for new, old in zip(spread, wide, strict=True)]
        else:
            spread = [f"{n}_s" for n in wide]
            lines += [f"{new} = Unsqueeze ({old}, middle)" for new, old in zip(spread, wide, strict=True)]
        lines += [
            f"{name}_F = Cast <to: int = 1> ({name})",
            f"{name}_Z = Cast <to: int = 1> ({spread[1]})",
            f"{name}_D = Sub ({name}_F, {name}_Z)",
            f"{name}_M = Mul ({name}_D, {spread[0]})",
            f"{name}_T = Transpose <perm: ints = [0, 2, 1]> ({name}_M)",
        ]
    names = ["X", "W", "R", "B", "L", "H", "C", "P", "W_scale", "W_zero", "R_scale", "R_zero"]
    given = [n if has_input(node, place) else "" for place, n in enumerate(names[:8])]
    given[1:3] = ["W_T", "R_T"]
    while not given[-1]:
        given.pop()
    lines.append(f"Y, Y_h, Y_c = LSTM <{', '.join(options)}> ({', '.join(given)})")
    return parse_body(opset, names, ["Y", "Y_h", "Y_c"], lines)


def _embedding(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: ids, segments, words, positions, segment table, gamma, beta, mask, position ids.
    # Outputs: the embedding, for each sample its length by the mask, int32, and the sum.
    epsilon = format_float(node.attributes.get_float("epsilon", 1e-12))
    lines = ["word = Gather (words, ids)", "one = Constant <value: tensor = int64[1] {1}> ()"]
    if has_input(node, 8):
        lines.append("place = Gather (positions, position_ids)")
    else:
        lines += [
            "zero = Constant <value: tensor = int64[1] {0}> ()",
            "length = Shape <start: int = 1, end: int = 2> (ids)",
        ]
        lines.append("place = Slice (positions, zero, length, zero)")
    lines.append("S0 = Add (word, place)")
    if has_input(node, 1):
        lines += ["segment = Gather (segment_table, segments)", "S = Add (S0, segment)"]
    else:
        lines.append("S = Identity (S0)")
    lines.append(f"Y = LayerNormalization <axis: int = -1, epsilon: float = {epsilon}> (S, gamma, beta)")
    if has_input(node, 7):
        lines.append("counted = Identity (mask)")
    else:
        lines += ["numbers = Cast <to: int = 6> (ids)", "counted = Sub (numbers, numbers)"]
    lines += ["lengths = ReduceSum <keepdims: int = 0> (counted, one)", "sum = Identity (S)"]
    names = ["ids", "segments", "words", "positions", "segment_table", "gamma", "beta", "mask", "position_ids"]
    return parse_body(opset, names, ["Y", "lengths", "sum"], lines)


def _nhwc_pool(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    rank = len(source.shape)
    lines = [
        f"Front = Transpose <perm: ints = {[0, rank - 1, *range(1, rank - 1)]}> (X)",
        f"Pooled = MaxPool {pool_options(node)} (Front)",
        f"Y = Transpose <perm: ints = {[0, *range(2, rank), 1]}> (Pooled)",
    ]
    return parse_body(opset, ["X"], ["Y"], lines)


def _bits(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return the product with dequantized weights, where weights are of 8 bits; those of 4 bits have a kernel."""
    if node.attributes.get_int("bits", 4) != 8 or has_input(node, 4):
        return None
    rows, inner = node.attributes.get_int("N", 0), node.attributes.get_int("K", 0)
    size = node.attributes.get_int("block_size", 32)
    blocks = -(-inner // size)
    lines = [
        f"Grouped = Constant <value: tensor = int64[3] {{{rows}, {blocks}, 1}}> ()",
        "BlockScales = Reshape (scales, Grouped)",
        "F0 = CastLike (B, A)",
    ]
    if has_input(node, 3):
        lines += ["BlockZeros = Reshape (zeros, Grouped)", "Zeros = CastLike (BlockZeros, A)"]
    else:
        lines += ["Middle = Constant <value: tensor = float {128.0}> ()", "Zeros = CastLike (Middle, A)"]
    lines += [
        "F1 = Sub (F0, Zeros)",
        "F2 = Mul (F1, BlockScales)",
        f"Flat = Constant <value: tensor = int64[2] {{{rows}, {blocks * size}}}> ()",
        "F3 = Reshape (F2, Flat)",
        "Zero = Constant <value: tensor = int64[1] {0}> ()",
        "One = Constant <value: tensor = int64[1] {1}> ()",
        f"Inner = Constant <value: tensor = int64[1] {{{inner}}}> ()",
        "F4 = Slice (F3, Zero, Inner, One)",
        "F5 = Transpose <perm: ints = [1, 0]> (F4)",
        "P = MatMul (A, F5)",
        "Y = Add (P, bias)" if has_input(node, 5) else "Y = Identity (P)",
    ]
    return parse_body(opset, ["A", "B", "scales", "zeros", "group", "bias"], ["Y"], lines)


BODIES: Mapping[str, Callable[[ir.Node, int], onnx.FunctionProto | None]] = {
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "EmbedLayerNormalization": _embedding,
    "FusedConv": fused_conv,
    "MatMulNBits": _bits,
    "NhwcMaxPool": _nhwc_pool,
}
"""What makes the body of each operator."""


PASS = PassEntry(
    "expand-layers",
    ExpandLayers,
    "Open onnxruntime's operators of whole layers",
    frozenset((DOMAIN, name) for name in BODIES),
)
