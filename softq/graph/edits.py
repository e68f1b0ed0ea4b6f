"""Small changes to a graph, shared by the passes that write nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


def cast_like(value: ir.Value, like: ir.Value, before: list[ir.Node], name: str) -> ir.Value:
    """Append a cast of a float32 value to the type of another, if that is known and different."""
    if like.dtype is None or like.dtype is ir.DataType.FLOAT:
        return value
    node = ir.node("Cast", [value], {"to": int(like.dtype)}, name=name)
    before.append(node)
    out = node.outputs[0]
    out.name, out.type, out.shape = f"{name}.out", like.type, value.shape
    return out


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Give every user of `old` the value `new`, and its name, so that the model's interface stays as it was."""
    name = old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    if name is not None:
        old.name = f"{name}.replaced"
        new.name = name
    if new.type is None:
        new.type = old.type
    new.shape = old.shape if old.shape is not None else new.shape


def constant(value: NDArray[np.generic], name: str, before: list[ir.Node]) -> ir.Value:
    """Append a Constant node (functions know no initializers) and return its value."""
    node = ir.node("Constant", [], {"value": ir.tensor(value, name=name)}, name=f"{name}.const")
    before.append(node)
    out = node.outputs[0]
    out.name, out.type, out.shape = name, ir.TensorType(ir.DataType.from_numpy(value.dtype)), ir.Shape(value.shape)
    return out


def floats(value: ir.Value, name: str, shape: ir.Shape | None) -> ir.Value:
    """Name a new float32 value and return it."""
    value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), shape
    return value


def scalar_shape(shape: ir.Shape | None) -> ir.Shape | None:
    """Return the shape of one number a row."""
    return None if shape is None else ir.Shape([*list(shape)[:-1], 1])


def remove_if_unused(node: ir.Node) -> None:
    """Remove a node whose results nobody reads, and then what it alone kept alive.

    Nodes that were unused before are not touched: a model keeps what softq did not make superfluous.
    """
    pending = [node]
    while pending:
        dead = pending.pop()
        if dead.graph is None or any(out.uses() or out.is_graph_output() for out in dead.outputs):
            continue
        # Bodies of If, Loop and Scan read values that do not show among the node's inputs.
        sources = [value.producer() for value in dead.inputs if value is not None]
        dead.graph.remove(dead, safe=True)
        pending += [source for source in sources if source is not None]
