"""ONNX's shape inference, asked here alone: at once where it cannot explode, else in a process with limits.

Inference runs in C++, cannot be interrupted, and takes what memory it wants. `softq.graph.growth` tells the models of
which that is bounded; any other is given to a process of its own that may take so much memory and time and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import onnx
import onnx_ir as ir

from softq.address_space import ApartError, run_apart
from softq.errors import InputError, root_line
from softq.graph.growth import may_explode
from softq.graph.queries import unique_path
from softq.graph.ranks import Dims
from softq.limits import current


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of one value."""

    dtype: ir.DataType | None
    shape: Dims | None


Inferred = dict[tuple[tuple[str, ...], str], Known]
"""What inference found, by path of the container and name of the value."""


class NotInferredError(InputError):
    """ONNX's inference gives up on a model, as it does on one that contradicts itself."""


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the types and shapes that ONNX infers, with the data of small constants.

    Raises:
        InputError: inference takes more memory or time than `softq.limits` allows.
        NotInferredError: ONNX refuses the model.
    """
    if may_explode(model):
        return _infer_apart(model)
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=True)
    except Exception as error:
        raise NotInferredError(f"ONNX cannot infer the model's shapes: {root_line(error, 200)}") from error


def _infer_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    limits = current()
    try:
        return onnx.ModelProto.FromString(
            run_apart(_infer_bytes, model.SerializeToString(), limits.memory, limits.seconds)
        )
    except ApartError as error:
        if not error.limit:
            raise NotInferredError(f"ONNX cannot infer the model's shapes: {error}") from error
        raise InputError(
            f"the sizes in the model grow so much that ONNX cannot infer its shapes within {error.limit}"
        ) from error


def _infer_bytes(source: BinaryIO, out: BinaryIO) -> None:
    model = onnx.ModelProto.FromString(source.read())
    inferred = onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=True)
    out.write(inferred.SerializeToString())


def read_values(graph: onnx.GraphProto, path: tuple[str, ...]) -> Inferred:
    """Return what a model says of the values of a graph and of the bodies inside; paths are those of `ModelView`."""
    found: Inferred = {}
    taken: set[tuple[str, ...]] = set()
    _read_graph(graph, path, taken, found)
    return found


def _read_graph(graph: onnx.GraphProto, path: tuple[str, ...], taken: set[tuple[str, ...]], found: Inferred) -> None:
    path = unique_path(path, taken) if path else path
    types = {value.name: value.type for value in (*graph.output, *graph.value_info)}
    for value in graph.input:
        found[path, value.name] = _read_type(value.type)
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name:
                found[path, name] = _read_type(types[name]) if name in types else _NOTHING
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                bodies = [(attribute.name, attribute.g)]
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                bodies = [(f"{attribute.name}[{place}]", body) for place, body in enumerate(attribute.graphs)]
            else:
                continue
            for name, body in bodies:
                _read_graph(body, (*path, f"{_label(node, index)}.{name}"), taken, found)


_NOTHING = Known(None, None)


def _label(node: onnx.NodeProto, index: int) -> str:
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return node.name or next(filter(None, node.output), f"{operator}#{index}")


def _read_type(kind: onnx.TypeProto) -> Known:
    if not kind.HasField("tensor_type"):
        form, shape = ir.serde.deserialize_type_proto_for_type(kind), ir.serde.deserialize_type_proto_for_shape(kind)
        dims = None if shape is None else tuple(dim if isinstance(dim, int) else dim.value for dim in shape)
        return Known(None if form is None else form.dtype, dims)
    tensor = kind.tensor_type
    dtype = ir.DataType(tensor.elem_type) if tensor.HasField("elem_type") else None
    return Known(dtype, tuple(map(_read_dim, tensor.shape.dim)) if tensor.HasField("shape") else None)


def _read_dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    field = dim.WhichOneof("value")
    return None if field is None else dim.dim_value if field == "dim_value" else dim.dim_param
