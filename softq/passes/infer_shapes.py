"""Write types and shapes that ONNX can infer to the values of a model."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from softq.errors import InputError
from softq.modelfile.tensors import LARGE_BYTES, Held, replaced_tensors
from softq.passes import PassEntry
from softq.passes._graph import ModelView


class InferShapes(ir.passes.InPlacePass):
    """Adds what `onnx.shape_inference` finds, with the data of small constants; weights are not copied for it.

    What the model says stays unless more is known: a number takes the place of a name, a name the place of nothing.
    Where the model contradicts itself, its own word stays.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Infer; `modified` says whether more is known than before.

        Raises:
            InputError: types or shapes contradict each other.
        """
        try:
            proto = onnx.shape_inference.infer_shapes(_light(model), data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            raise InputError(f"shapes of the model contradict each other: {' '.join(str(error).split())}") from error
        inferred = ir.from_proto(proto)
        modified = False
        for ours, theirs in zip(ModelView(model).containers, ModelView(inferred).containers, strict=True):
            for node, twin in zip(ours.body, theirs.body, strict=True):
                for value, known in zip(node.outputs, twin.outputs, strict=True):
                    modified |= _learn(value, known)
        return ir.passes.PassResult(model, modified)


def _light(model: ir.Model) -> onnx.ModelProto:
    """Return the model with inputs in the place of its large initializers."""
    with replaced_tensors(model, _without_large):
        proto = ir.to_proto(model)
    _declare(proto.graph)
    return proto


def _without_large(held: Held) -> ir.TensorProtocol:
    tensor = held.tensor
    if tensor.dtype == ir.DataType.STRING or tensor.nbytes <= LARGE_BYTES:
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor("no-data", None, None, tensor.dtype, shape=shape, name=tensor.name or "")


def _declare(graph: onnx.GraphProto) -> None:
    large = [tensor for tensor in graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    present = {value.name for value in graph.input}
    for tensor in large:
        graph.initializer.remove(tensor)
        if tensor.name not in present:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))


def _learn(value: ir.Value, known: ir.Value) -> bool:
    modified = False
    if value.type is None and known.type is not None:
        value.type = known.type
        modified = True
    merged = _merge(value.shape, known.shape)
    if merged is not None and merged != value.shape:
        value.shape = merged
        modified = True
    return modified


def _merge(ours: ir.Shape | None, theirs: ir.Shape | None) -> ir.Shape | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    if len(ours) != len(theirs):
        return ours
    return ir.Shape([_dimension(a, b) for a, b in zip(ours, theirs, strict=True)])


def _dimension(ours: int | ir.SymbolicDim, theirs: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    if isinstance(ours, int):
        return ours
    return theirs if isinstance(theirs, int) or ours.value is None else ours


PASS = PassEntry("infer-shapes", InferShapes, "write down the types and shapes that ONNX can infer")
