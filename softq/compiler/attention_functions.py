"""The attentions that a converted model calls as functions, each as a model of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.compiler.attention_shapes import Dims, common_dims, solve
from softq.errors import RefusalError
from softq.graph.edits import remove_if_unused
from softq.graph.queries import constant_tensor, graph_of, is_op, producer
from softq.modelfile import as_model
from softq.passes.expand_functions import ExpandFunctions
from softq.passes.fuse_attentions import calls_row_function
from softq.passes.infer_shapes import InferShapes
from softq.passes.inline_functions import inline_calls
from softq.passes.replace import FUNCTION_DOMAIN
from softq.provenance import RowFunction, row_functions
from softq.rowprog.ranges import prove
from softq.site import META_KEY

_GREATEST_BYTE, _GREATEST_WORD = 255, (1 << 15) - 1


@dataclass(frozen=True)
class AttentionFunction:
    """An attention of a model.

    Attributes:
        model: What it computes, with the types and lengths of its inputs; calls of row functions stay.
        sites: Ids of the softmaxes in it.
    """

    model: ir.Model
    sites: Sequence[str]


@dataclass(frozen=True)
class FoundFunctions:
    """The functions of softq's domain that a model calls.

    Attributes:
        rows: What each row function computes, by name, if it is called outside attentions, too.
        sites: Ids of the softmaxes that each row function computes outside attentions, by its name.
        attentions: The attentions by name.
        called: All row functions, by domain and name.
    """

    rows: Mapping[str, RowFunction]
    sites: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    attentions: Mapping[str, AttentionFunction] = field(default_factory=dict[str, AttentionFunction])
    called: Mapping[tuple[str, str], RowFunction] = field(default_factory=dict[tuple[str, str], RowFunction])


def find_functions(model: ir.Model) -> FoundFunctions:
    """Return the functions of softq's domain that a model calls; it is not changed.

    Raises:
        RefusalError: there is none, or one is not that of the plan in the model's metadata.
    """
    flat = as_model(model)
    if ExpandFunctions()(flat).modified:  # Calls of softq's functions may stand in the model's own.
        InferShapes()(flat)
    called = row_functions(flat)
    if not called:
        raise RefusalError(
            f"the model calls no function of the domain {FUNCTION_DOMAIN}, for which there could be operators; "
            "convert it first, without --inline"
        )
    opened = as_model(model)
    inline_calls(opened, lambda function: function.domain != FUNCTION_DOMAIN)
    known = _values(flat)
    calls: dict[str, list[ir.Node]] = {}
    for node in opened.graph.all_nodes():
        if node.domain == FUNCTION_DOMAIN:
            calls.setdefault(node.op_type, []).append(node)
    attentions: dict[str, AttentionFunction] = {}
    bodies = [function for function in opened.functions.values() if not calls_row_function(function)]
    sites = {name: [_site(node) for node in nodes] for name, nodes in calls.items()}
    for (_, name, _), function in opened.functions.items():
        if name in calls and calls_row_function(function):
            attentions[name] = AttentionFunction(_model(function, calls[name], known, bodies, called), sites.pop(name))
    rows = {name: function for (_, name), function in called.items() if name in sites}
    return FoundFunctions(rows, sites, attentions, called)


def _values(model: ir.Model) -> Mapping[str, ir.Value]:
    """Return the values of the graph and its bodies by name."""
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [value for node in model.graph.all_nodes() for value in node.outputs]
    return {str(value.name): value for value in values}


def _site(node: ir.Node) -> str:
    return node.metadata_props.get(META_KEY, node.name or "")


def _model(
    function: ir.Function,
    calls: Sequence[ir.Node],
    known: Mapping[str, ir.Value],
    rows: Iterable[ir.Function],
    called: Mapping[tuple[str, str], RowFunction],
) -> ir.Model:
    """Return a model of a function for what its calls give it.

    Raises:
        RefusalError: the calls give other types, or the number of axes is not known.
    """
    copy = function.clone()
    given = [[_known(call.inputs[i], known) for call in calls] for i in range(len(copy.inputs))]
    dims: list[Dims] = []
    for own, values in zip(copy.inputs, given, strict=True):
        label = f"function {FUNCTION_DOMAIN}::{function.name}: {own.name}"
        types = {value.dtype for value in values}
        if len(types) != 1 or None in types:
            raise RefusalError(f"{label} has no one element type in the model")
        shapes = [value.shape for value in values]
        if len({None if shape is None else len(shape) for shape in shapes} - {None}) != 1 or None in shapes:
            raise RefusalError(f"{label} has an unknown number of axes; convert without --fuse-attention")
        own.type = values[0].type
        dims.append(common_dims([shape for shape in shapes if shape is not None], str(own.name)))
    for own, solved in zip(copy.inputs, solve(copy, dims), strict=True):
        own.shape = ir.Shape(solved)
    for node in list(copy):
        if is_op(node, "MatMul"):
            _decode_last(node)
    for node in list(copy):
        if node.domain == FUNCTION_DOMAIN:
            node.metadata_props[META_KEY] = f"{FUNCTION_DOMAIN}::{function.name}"
            if (kind := _integers_of(called[node.domain, node.op_type])) is not None:
                _code_weights(node, kind)
    (result,) = copy.outputs
    result.type = _known(calls[0].outputs[0], known).type
    copy.graph.name = function.name
    return ir.Model(copy.graph, ir_version=10, functions=[row.clone() for row in rows])


def _integers_of(row: RowFunction) -> ir.DataType | None:
    """Return the type of integers in which products take the weights of a row function; None if there is none."""
    weights = row.program.outputs.get("weights")
    if weights is None or not weights.dtype.is_integer:
        return None
    proved = prove(row.program, max_length=row.max_length).filled[weights]
    kinds = {ir.DataType.UINT8: _GREATEST_BYTE, ir.DataType.INT16: _GREATEST_WORD}
    fits = proved.low >= 0 and not proved.nan
    return next((kind for kind, greatest in kinds.items() if fits and proved.high <= greatest), None)


def _code_weights(call: ir.Node, kind: ir.DataType) -> None:
    """Say what integers the weights are where a product takes them with values that are codes: a product of integers.

    That is not in the model itself: other runtimes might add products of bytes with and without a sign in 16 bits.
    """
    weights = call.outputs[0]
    for product in list(weights.consumers()):
        first, *others = product.inputs if is_op(product, "MatMul") else (None,)
        if first is weights and all(producer(value, "DequantizeLinear") is not None for value in others):
            tape = Tape()
            codes = tape.op("Cast", [weights], {"to": int(kind)})
            if kind is ir.DataType.UINT8:
                given = (tape.op("Constant", [], {"value": ir.tensor(x)}) for x in (np.float32(1), np.uint8(0)))
                number = tape.op("DequantizeLinear", [codes, *given])
            else:
                number = tape.op("Cast", [codes], {"to": int(ir.DataType.FLOAT)})
            product.replace_input_with(0, number)
            graph_of(product).insert_before(product, tape.nodes)


def _decode_last(product: ir.Node) -> None:
    """Put what makes numbers of an operand's codes, all with one scale, behind what lays out and repeats its heads."""
    for position, operand in enumerate(product.inputs):
        moves: list[ir.Node] = []
        value = operand
        while (move := producer(value, "Transpose", "Unsqueeze", "Expand", "Reshape")) is not None:
            moves.append(move)
            value = move.inputs[0]
        decode = producer(value, "DequantizeLinear")
        scale = None if decode is None else constant_tensor(decode.inputs[1])
        if not moves or decode is None or scale is None or scale.shape.rank():
            continue
        tape, (codes, *given) = Tape(), decode.inputs
        for move in reversed(moves):
            codes = tape.op(move.op_type, [codes, *move.inputs[1:]], move.attributes)
        product.replace_input_with(position, tape.op("DequantizeLinear", [codes, *given]))
        graph_of(product).insert_before(product, tape.nodes)
        remove_if_unused(moves[0])


def _known(value: ir.Value | None, known: Mapping[str, ir.Value]) -> ir.Value:
    assert value is not None, "attentions have no optional inputs"
    return known.get(str(value.name), value)
