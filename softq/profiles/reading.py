"""What rules look at: a softmax with the codes in front of it and behind, and the products around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from softq.forms.matching.guards import look_behind
from softq.graph.facts import Facts
from softq.graph.queries import constant, is_op, producer
from softq.graph.view import ModelView
from softq.passes.analysis.candidates import Finding
from softq.passes.analysis.policy import Policy
from softq.passes.locate import findings
from softq.passes.rewriting.attention_regions import NotFusedError, Region, find_products
from softq.profiles.exponentials import find_exponentials
from softq.site import Site

MOVES = ("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Expand")
"""Operators that only move elements."""


@dataclass(frozen=True)
class FoundEncoding:
    """Codes of a tensor; scale or zero point are None where they are no single number that is known.

    `normalized` says whether the weights of a row that they stand for add up to 1.
    """

    dtype: str
    scale: float | None
    zero_point: int | None
    normalized: bool = True

    def __str__(self) -> str:
        scale = "a scale that is not known" if self.scale is None else f"scale {_number(self.scale)}"
        zero = "a zero point that is not known" if self.zero_point is None else f"zero point {self.zero_point}"
        return f"{self.dtype}, {scale}, {zero}{'' if self.normalized else ', divided behind the product'}"


@dataclass(frozen=True)
class Operand:
    """What an operand of a product is made of.

    Attributes:
        codes: Type of the codes that it is made of, or None.
        passed: The operators between codes and product.
        made: Whether a QuantizeLinear makes the codes.
    """

    codes: str | None
    passed: tuple[str, ...]
    made: bool

    def __str__(self) -> str:
        if self.codes is None:
            return "no codes"
        given = "" if self.made else " that the model does not make"
        return f"{self.codes}{given}{' behind ' + ', '.join(self.passed) if self.passed else ''}"


@dataclass(frozen=True, eq=False)
class SiteView:
    """A site as rules see it.

    Attributes:
        site: What `locate` says of it.
        node: The node that carries it.
        codes: Type of the codes that the scores are made of; None if they are of floats.
        output: The codes that the weights become; None if they stay floats.
        attention: Whether its weights are multiplied by values.
        products: Queries, keys and values; None where the products are not seen.
        result: Type of the codes that the product with the values becomes; None where it does not.
        head_size: Elements of a query in a head; None where it is not known.
        factor_behind: Whether something multiplies the scores behind their product.
        between: Types of floats from the first product to the second, joined by "and"; None where they are not seen.
        unseen: Why the products are not seen.
    """

    site: Site
    node: ir.Node
    codes: str | None
    output: FoundEncoding | None
    attention: bool
    products: Mapping[str, Operand] | None
    result: str | None
    head_size: int | None
    factor_behind: bool
    between: str | None
    unseen: str


def read_sites(model: ir.Model) -> list[SiteView]:
    """Return every softmax of a model, in the order of the graph; nothing is changed."""
    facts = Facts(ModelView(model))
    return [_view(found, facts) for found in findings(facts, Policy(all_sites=True, rewrites=()))]


def _view(found: Finding, facts: Facts) -> SiteView:
    site, match = found.site, found.match
    decode = producer(match.scores, "DequantizeLinear")
    region, unseen = _products(found.node) if is_op(found.node, "Softmax") else (None, "they are inside the operator")
    first = None if region is None else region.first
    products = None
    if region is not None and first is not None:
        operands = {"queries": first.inputs[0], "keys": first.inputs[1], "values": region.second.inputs[1]}
        products = {name: _operand(value, facts) for name, value in operands.items()}
    shape = None if first is None else facts.shape(first.inputs[0])
    size = None if not shape or not isinstance(shape[-1], int) else shape[-1]
    return SiteView(
        site=site,
        node=found.node,
        codes=None if decode is None else _name(facts.dtype(decode.inputs[0])),
        output=None if match.weights is None else _encoding(match.weights, region, facts),
        attention=site.role == "attention" or region is not None,
        products=products,
        result=None if region is None else _result(region.second.outputs[0], facts),
        head_size=size,
        factor_behind=region is not None and any(is_op(node, "Mul", "Div") for node in region.elementwise[1:]),
        between=None if region is None or first is None else _between(region, first, facts),
        unseen=unseen,
    )


def _products(node: ir.Node) -> tuple[Region | None, str]:
    try:
        region = find_products(node, coded=True)
    except NotFusedError as error:
        return None, str(error)
    return region, "" if region.first is not None else "its scores are no product of queries and keys that is seen"


def _operand(value: ir.Value | None, facts: Facts) -> Operand:
    passed: list[str] = []
    while value is not None:
        node = value.producer()
        if node is not None and is_op(node, "DequantizeLinear"):
            made = producer(node.inputs[0], "QuantizeLinear") is not None
            return Operand(_name(facts.dtype(node.inputs[0])), tuple(passed), made)
        if node is None or not (is_op(node, *MOVES) or _scales(node)):
            break
        passed.append(node.op_type)
        value = node.inputs[0]
    return Operand(None, (), False)


def _between(region: Region, first: ir.Node, facts: Facts) -> str:
    values = [
        *first.inputs,
        *(node.outputs[0] for node in region.elementwise if not is_op(node, "QuantizeLinear")),
        region.call.outputs[0],
    ]
    kinds = dict.fromkeys(facts.dtype(value) for value in (*values, *region.second.inputs))
    return " and ".join("unknown" if kind is None else str(kind.numpy()) for kind in kinds)


def _result(value: ir.Value, facts: Facts) -> str | None:
    """Return the type of the codes that a value becomes, behind what only moves or casts it; None if others read it."""
    readers = value.consumers()
    while len(readers) == 1 and is_op(readers[0], "Cast", *MOVES) and not value.is_graph_output():
        value = readers[0].outputs[0]
        readers = value.consumers()
    if value.is_graph_output() or not readers or not all(is_op(node, "QuantizeLinear") for node in readers):
        return None
    return _name(facts.dtype(readers[0].outputs[0]))


def _scales(node: ir.Node) -> bool:
    factor = constant(node.inputs[1]) if is_op(node, "Mul", "Div") else None
    return factor is not None and factor.size == 1


def _encoding(weights: ir.Value, region: Region | None, facts: Facts) -> FoundEncoding | None:
    """Return the codes of the weights, where all that read them read these."""
    unnormalized = None if region is None else find_exponentials(region.second)
    behind = look_behind(weights, facts)
    if unnormalized is not None:
        return replace(_encoding_of(unnormalized, facts), normalized=False)
    readers = behind.weights.consumers()
    if behind.guard != "none" or not readers or not all(is_op(node, "QuantizeLinear") for node in readers):
        return None
    if behind.weights.is_graph_output():
        return None
    found = {_encoding_of(node, facts) for node in readers}
    return found.pop() if len(found) == 1 else None


def _encoding_of(node: ir.Node, facts: Facts) -> FoundEncoding:
    dtype = _name(facts.dtype(node.outputs[0]))
    scale = constant(node.inputs[1])
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    array = None if zero is None else constant(zero)
    point = 0 if zero is None else None if array is None or array.size != 1 else int(array.astype(float).item())
    return FoundEncoding(dtype, None if scale is None or scale.size != 1 else float(scale.item()), point)


def _name(dtype: ir.DataType | None) -> str:
    return "unknown" if dtype is None else dtype.name.lower()


def _number(scale: float) -> str:
    inverse = round(1 / scale) if 0 < scale <= 1 else 0
    return f"1/{inverse}" if inverse > 1 and abs(scale * inverse - 1) < 2.0**-23 else f"{scale:.6g}"
