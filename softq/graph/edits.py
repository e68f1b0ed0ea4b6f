"""Small changes to a graph, shared by the passes that write nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape

from softq.graph.queries import graph_of


def add_cast(tape: Tape, value: ir.Value, like: ir.Value, name: str) -> ir.Value:
    """Append a cast of a float32 value to the type of another, if that is known and different."""
    if like.dtype is None or like.dtype is ir.DataType.FLOAT:
        return value
    out = ir.val(f"{name}.out", shape=value.shape, type=like.type)
    return tape.op("Cast", [value], {"to": int(like.dtype)}, name=name, output=out)


def add_constant(tape: Tape, array: NDArray[np.generic], name: str) -> ir.Value:
    """Append a Constant node (functions know no initializers) and return its value."""
    out = ir.val(name, ir.DataType.from_numpy(array.dtype), array.shape)
    return tape.op("Constant", [], {"value": ir.tensor(array, name=name)}, name=f"{name}.const", output=out)


def row_shape(shape: ir.Shape | None) -> ir.Shape | None:
    """Return the shape of one number per row of a tensor."""
    return None if shape is None else ir.Shape([*list(shape)[:-1], 1])


def take_over(old: ir.Value, new: ir.Value, *, except_by: ir.Node | None = None) -> None:
    """Give every user of `old`, except one node, the value `new` and its name, so that the interface stays as it was.

    Args:
        old: The value whose name, and type and shape where `new` has none, go to `new`.
        new: What is read instead.
        except_by: A node that computes `new` of `old` and goes on reading it; None if there is none.
    """
    name = old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    if except_by is not None:
        except_by.replace_input_with(0, old)
    if name is not None:
        old.name = f"{name}.replaced"
        new.name = name
    if new.type is None:
        new.type = old.type
    new.shape = old.shape if old.shape is not None else new.shape


def put_in_place(
    old: ir.Node, nodes: Sequence[ir.Node], heir: ir.Node, kept: Sequence[ir.Value], new: Sequence[ir.Value]
) -> None:
    """Put nodes in the place of one.

    Args:
        old: The node that goes.
        nodes: What takes its place.
        heir: Which of them gets its name and notes.
        kept: Results of `old`.
        new: What takes their places, and gets their names and notes.
    """
    heir.name = old.name
    for giver, taker in [(old, heir), *zip(kept, new, strict=True)]:
        taker.doc_string = giver.doc_string
        taker.metadata_props.update(giver.metadata_props)
        taker.meta.update(giver.meta)
    ir.convenience.replace_nodes_and_values(graph_of(old), old, [old], nodes, kept, new)


def remove_if_unused(*nodes: ir.Node | None) -> None:
    """Remove each node whose results nobody reads, and then what it alone kept alive.

    Nodes that were unused before are not touched: a model keeps what softq did not make superfluous.
    """
    pending = [*nodes][::-1]
    while pending:
        dead = pending.pop()
        if dead is None or dead.graph is None or any(out.uses() or out.is_graph_output() for out in dead.outputs):
            continue
        # Bodies of If, Loop and Scan read values that do not show among the node's inputs.
        sources = [value.producer() for value in dead.inputs if value is not None]
        dead.graph.remove(dead, safe=True)
        pending += sources
