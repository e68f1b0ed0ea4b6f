"""Move the division of a replaced softmax behind the product with V: one division per output row, none per weight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.graph.edits import add_cast, add_constant, remove_if_unused, take_over
from softq.graph.queries import cast_target, chain_above, graph_of, producer
from softq.passes import PassEntry
from softq.passes.replace import Pair, add_function, divided, owners, pairs_of


class DeferNormalizer(ir.passes.InPlacePass):
    """Turns `(weights / normalizer) x V` into `(weights x V) / normalizer` where a MatMul has the weights at its left.

    The product is computed in float32, also in a model of float16: weights times V can leave float16's range before
    the division. A product with a V of one axis, or of unknown rank, stays as it is.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Defer what can be; `modified` says whether anything was."""
        found = [
            (product, value, pair)
            for value, pair in pairs_of(model)
            for product in products_with_v(value, pair.zero_rows)
        ]
        for product, value, pair in found:
            _defer(model, product, pair)
            remove_if_unused(value.producer())
        return ir.passes.PassResult(model, bool(found))


# Types whose products float32 holds without loss; casts to integers, bool or double mean something else.
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def products_with_v(probabilities: ir.Value, zero_rows: ir.Value | None) -> Iterator[ir.Node]:
    """Yield each MatMul in the same graph whose left operand is these probabilities.

    They may go through Identity, Cast, and the Where that makes the rows of `zero_rows` zeros.
    """
    for user in probabilities.consumers():
        if user.graph is not probabilities.graph or user.domain != "":
            continue
        guards = user.op_type == "Where" and zero_rows is not None and user.inputs[0] is zero_rows
        if user.op_type == "Identity" or guards or cast_target(user) in _FLOATS:
            yield from products_with_v(user.outputs[0], zero_rows)
        elif user.op_type == "MatMul" and user.inputs[0] is probabilities:
            v = user.inputs[1]
            has_rows = v is not None and v is not probabilities and v.shape is not None and len(v.shape) >= 2
            if v is not None and has_rows and v.dtype in _FLOATS:
                yield user


def _code_values(model: ir.Model, product: ir.Node, v: ir.Value, function: ir.Function, tape: Tape) -> ir.Value:
    """Return V with each of its columns coded, by a function that takes rows of keys."""
    assert v.shape is not None
    base, last = product.outputs[0].name or "product", len(v.shape) - 1
    order = [*range(last - 1), last, last - 1]
    turned = ir.Shape([v.shape[axis] for axis in order])
    for owner in (model, *owners(model, product)):
        owner.opset_imports[function.domain] = 1
    made = add_function(model, function)
    columns = ir.val(f"{base}.columns", ir.DataType.FLOAT, turned)
    tape.op("Transpose", [v], {"perm": order}, name=f"{base}.turn", output=columns)
    coded = ir.val(f"{base}.coded_columns", ir.DataType.FLOAT, turned)
    tape.op(made.name, [columns], domain=function.domain, name=f"{base}.code", output=coded)
    back = ir.val(f"{base}.coded_v", ir.DataType.FLOAT, v.shape)
    return tape.op("Transpose", [coded], {"perm": order}, name=f"{base}.turn_back", output=back)


def _defer(model: ir.Model, product: ir.Node, pair: Pair) -> None:
    v, old = product.inputs[1], product.outputs[0]
    assert v is not None
    tape = Tape()
    base = old.name or "product"
    if v.dtype is not ir.DataType.FLOAT:
        wide = ir.val(f"{base}.v", ir.DataType.FLOAT, v.shape)
        v = tape.op("Cast", [v], {"to": int(ir.DataType.FLOAT)}, name=f"{base}.widen", output=wide)
    if pair.values is not None:
        v = _code_values(model, product, v, pair.values, tape)
    weighted = ir.val(f"{base}.weighted", ir.DataType.FLOAT, old.shape)
    tape.op("MatMul", [pair.weights, v], name=product.name, output=weighted)
    quotient = divided(weighted, pair, tape, base, old.shape)
    # Where else has the condition in front of the row's zeros, the product is behind the guard.
    guards = (producer(value, "Where") for value in chain_above(product.inputs[0], "Identity", "Cast"))
    if pair.zero_rows is not None and any(node is not None and node.inputs[0] is pair.zero_rows for node in guards):
        # A row of zeros times V is a row of zeros, so the Where may as well come last.
        zero = add_constant(tape, np.array(0, np.float32), f"{base}.nothing")
        shown = ir.val(f"{base}.shown", ir.DataType.FLOAT, old.shape)
        quotient = tape.op("Where", [pair.zero_rows, zero, quotient], name=f"{base}.rows", output=shown)
    left = product.inputs[0]
    assert left is not None, "the weights are the left operand"
    result = add_cast(tape, quotient, old if old.dtype is not None else left, f"{base}.narrow")
    graph_of(product).insert_before(product, tape.nodes)
    take_over(old, result)
    remove_if_unused(product, left.producer())


PASS = PassEntry("defer-normalizer", DeferNormalizer, "Divide behind the product with V instead of before it")
