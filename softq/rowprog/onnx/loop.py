"""How a scan is written in ONNX: the operator Scan, its step as the body."""

from __future__ import annotations

import onnx_ir as ir

from softq.rowprog.onnx.carriers import Carrier, carrier
from softq.rowprog.onnx.walker import INT64, Emitted, Walker
from softq.rowprog.program import Node, ScanBody, body_of, result_of
from softq.rowprog.types import Kind


def scan(w: Walker, node: Node) -> Emitted:
    """Write the loop once; its other results find theirs."""
    body = body_of(node)
    count = len(body.states)
    kinds = [carrier(n.dtype, low, high) for n, (low, high) in zip(body.states, body.invariants, strict=True)]
    # The shape of a state must not change from step to step: the first ones are full already.
    states = [_full(w, arg, kind) for arg, kind in zip(node.args[:count], kinds, strict=True)]
    rows = [w.full(arg) for arg in node.args[count : count + len(body.elements)]]
    step, outputs = _step(w, body, kinds, [kind for _, kind in rows])
    axes = {"scan_input_axes": [-1] * len(rows)}
    if body.outputs:
        axes["scan_output_axes"] = [-1] * len(body.outputs)
    # Rows as [1, rows, N]: a step sees an element of each as scalars are written, [1, rows].
    length = w.add("Shape", w.inputs["scores"], start=-1)
    lead = w.add("Shape", states[0])
    shape = w.add("Concat", lead, length, axis=0)
    # onnxruntime 1.31 divides by zero in a Scan over no elements: then there is one, and what it gives is cut off.
    none = w.cast(w.add("Equal", length, w.constant([0], INT64)), ir.DataType.INT64)
    extra = w.add("Concat", lead, none, axis=0)
    given: list[ir.Value] = []
    for row, kind in rows:
        elements = w.add("Reshape", row, shape, allowzero=1)
        given.append(w.add("Concat", elements, w.add("Expand", w.like(0, kind), extra), axis=-1))
    results = w.add_many("Scan", [*states, *given], len(outputs), body=step, num_scan_inputs=len(rows), **axes)
    for other in w.proof.intervals:
        if other.op == "scan" and body_of(other) is body:
            position = result_of(other)
            value = results[position]
            if position >= count:
                value = w.add("Slice", value, w.constant([0], INT64), length, w.constant([-1], INT64))
                value = w.add("Reshape", value, w.add("Shape", w.inputs["scores"]), allowzero=1)
            w.keep(other, (value, outputs[position]))
    return w.compute(node)


def _full(w: Walker, node: Node, kind: Carrier) -> ir.Value:
    """Return a scalar as [1, rows], with the rows that reductions have: none of rows without elements."""
    value = w.carried(node, kind)
    return value if w.is_full(node) else w.flattened(value, w.column_shape())


def _step(w: Walker, body: ScanBody, states: list[Carrier], elements: list[Carrier]) -> tuple[ir.Graph, list[Carrier]]:
    """Return the body of the loop and the carriers of its results."""
    inner, inputs = w.within(), list[ir.Value]()
    for i, (place, kind) in enumerate(zip((*body.states, *body.elements), (*states, *elements), strict=True)):
        value = ir.Value(name=f"{w.next_name}_in{i}", type=ir.TensorType(kind.value))
        inputs.append(value)
        inner.keep(place, (value, kind))  # Scan drops the axis along which it goes, as scalars do
    results, kinds = list[ir.Value](), list[Carrier]()
    for i, n in enumerate((*body.next, *body.outputs)):
        assert n.kind is Kind.SCALAR, n
        value, carried = inner.compute(n)
        value = inner.flat(n, value)
        if not inner.is_full(n):
            value = inner.add("Expand", value, inner.add("Shape", inputs[0]))
        kinds.append(states[i] if i < len(states) else carried)
        # A node of its own for each result: the step may give back an input, or one value twice.
        value = inner.cast(value, kinds[i].value)
        value.type = ir.TensorType(kinds[i].value)
        results.append(value)
    return ir.Graph(inputs, results, nodes=inner.nodes_for(results), name=f"{w.next_name}_step"), kinds
