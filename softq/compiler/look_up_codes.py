"""What elementwise operators make of 8-bit codes, as a table of 256 codes: an operator that ONNX does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.graph.constants import evaluate, is_pure
from softq.graph.edits import remove_if_unused, take_over
from softq.graph.queries import constant, is_constant, is_op, operand
from softq.graph.view import Container
from softq.passes import NodePass
from softq.passes.rewriting.quantization import EIGHT_BITS, read_quantization

DOMAIN, OPERATOR = "softq.compiler", "LookUpCodes"
"""`LookUpCodes(codes, table)` is the element of a table of 256 that a code's byte numbers, taken for unsigned."""

ELEMENTWISE = frozenset(
    {
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
    }
    | {"Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish"}
    | {"Mul", "Neg", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh"}
    | {"Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu"}
)
"""Operators each of whose elements is made of the operands' elements at its place."""

_MOST = 64
"""Nodes of a chain."""


class LookUpCodes(NodePass):
    """Replaces QuantizeLinear(f(DequantizeLinear(q))) by a table for any elementwise f of one tensor and of numbers.

    Both quantizations are of 8 bits, with one constant scale each. The table is what onnx's reference makes of all 256
    codes, so that it is the same for every target; f may be of no operator at all, where scales differ.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        return node.op_type == "QuantizeLinear" and container.function is None and _replace(node, container)


def _replace(node: ir.Node, container: Container) -> bool:
    known, result = read_quantization(node), node.outputs[0]
    if known is None or known.scale.size > 1 or known.dtype is not result.dtype:
        return False
    chain = _Chain(container.opset)
    values = chain.values(node.inputs[0])
    codes = chain.codes
    if values is None or codes is None or codes.shape is None or result.shape != codes.shape or codes.dtype is None:
        return False
    if chain.rank > len(codes.shape) or is_constant(codes):
        return False
    made = evaluate(node, container.opset, [values, *map(constant, node.inputs[1:])])
    if made is None or made[0].size != values.size or made[0].dtype != known.dtype.numpy():
        return False
    graph, base = container.graph, result.name or node.name or "codes"
    # A signed byte above 127 is that of a negative code.
    by_byte = np.roll(made[0].reshape(-1), np.iinfo(codes.dtype.numpy()).min)
    table = ir.val(f"{base}.table", const_value=ir.tensor(by_byte, name=f"{base}.table"))
    graph.register_initializer(table)
    found = ir.val(f"{base}.found", known.dtype, result.shape, metadata_props=dict(result.metadata_props))
    look_up = ir.Node(DOMAIN, OPERATOR, [codes, table], outputs=[found], name=f"{base}.look_up")
    graph.insert_before(node, [look_up])
    graph.opset_imports[DOMAIN] = 1
    take_over(result, found)
    remove_if_unused(node)
    return True


class _Chain:
    """What a value is for each of 256 codes, while it is found.

    Attributes:
        codes: The tensor of codes that it is made of.
        rank: The most axes that a constant of the chain has.
    """

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._known: dict[ir.Value, NDArray[Any] | None] = {}
        self.codes: ir.Value | None = None
        self.rank = 0

    def values(self, value: ir.Value | None) -> NDArray[Any] | None:
        """Return a value for each code, in the order of the codes; None if it is no such chain."""
        if value is None or len(self._known) > _MOST:
            return None
        if value not in self._known:
            self._known[value] = self._of_number(value) if constant(value) is not None else self._of_node(value)
        return self._known[value]

    def _of_number(self, value: ir.Value) -> NDArray[Any] | None:
        number = constant(value)
        if number is None or number.size != 1:
            return None
        self.rank = max(self.rank, number.ndim)
        return number

    def _of_node(self, value: ir.Value) -> NDArray[Any] | None:
        node = value.producer()
        if node is None or len(node.outputs) != 1 or not is_pure(node):
            return None
        if is_op(node, "DequantizeLinear"):
            given = self._of_codes(node)
        elif is_op(node, *ELEMENTWISE):
            given = [None if x is None else self.values(x) for x in node.inputs]
        else:
            return None
        if given is None or any(x is not None and array is None for x, array in zip(node.inputs, given, strict=True)):
            return None
        made = evaluate(node, self._opset, given)
        return None if made is None else made[0]

    def _of_codes(self, node: ir.Node) -> list[NDArray[Any] | None] | None:
        """Return the inputs of a DequantizeLinear for all codes, if it is of the chain's only tensor."""
        known, codes = read_quantization(node), node.inputs[0]
        if known is None or known.scale.size > 1 or known.dtype not in EIGHT_BITS:
            return None
        if self.codes is not None and codes is not self.codes:
            return self._of_constants(node)
        if is_constant(codes):
            return self._of_constants(node)
        self.codes = codes
        kind = np.iinfo(known.dtype.numpy())
        every = np.arange(kind.min, kind.max + 1).astype(kind.dtype)
        return [every, *(None if x is None else constant(x) for x in node.inputs[1:])]

    def _of_constants(self, node: ir.Node) -> list[NDArray[Any] | None] | None:
        """Return the inputs of a DequantizeLinear of one number."""
        given = [constant(x) for x in node.inputs]
        if operand(node, 0) is None or given[0] is None or given[0].size != 1:
            return None
        self.rank = max(self.rank, given[0].ndim)
        return given
