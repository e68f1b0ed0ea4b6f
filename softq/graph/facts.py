"""Types and shapes of values, read from the model and, where it is silent, inferred on a copy without weights."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import onnx
import onnx_ir as ir

from softq.errors import InputError
from softq.graph.bodies import bind_attributes
from softq.graph.inference import Inferred, Known, NotInferredError, infer_shapes, read_values
from softq.graph.queries import is_op, operand, producer
from softq.graph.ranks import Dims, find_rank
from softq.graph.reference import Budget
from softq.graph.shape_stubs import insert_stubs
from softq.graph.view import FunctionId, ModelView, function_label
from softq.limits import current

UNKNOWN = "softq.unknown"
"""Domain of operators about which inference shall know nothing."""

SMALL = 1024
"""Bytes up to which a constant keeps its value in the copy: the operands of Reshape, Slice and their like."""


ASSUMED_KEY = "softq.assumed"
"""Key under which `locate` leaves the `Assumed` of a model in its meta."""


@dataclass(frozen=True)
class Assumed:
    """What the user says of a model that its graph does not prove.

    Attributes:
        masks: Names of tensors: of floats that are 0 where a position takes part and at most -1e4 elsewhere, or of
            integers that are 1 and 0.
        float32: Whether the softmax of double scores may be computed in float32.
    """

    masks: frozenset[str] = frozenset()
    float32: bool = False


NOTHING = Assumed()


@dataclass(frozen=True, eq=False)
class Facts:
    """Types and shapes of the values of a model; inference runs once, at the first question the model cannot answer."""

    view: ModelView
    _found: Inferred | None = field(default=None, repr=False)
    """What inference has found so far, where it still runs."""
    _ranks: dict[ir.Value, int | None] = field(default_factory=dict[ir.Value, int | None], repr=False)
    value_sets: dict[tuple[ir.Value, int], object] = field(
        default_factory=dict[tuple[ir.Value, int], object], repr=False
    )
    """What `softq.forms.matching.value_sets` found, by value and by how far it looked."""

    budget: Budget = field(default_factory=Budget, repr=False)
    """The elements that may be computed to tell functions by their values."""
    told: set[object] = field(default_factory=set[object], repr=False)
    """The functions that `budget` has paid for."""

    @property
    def assumed(self) -> Assumed:
        """What the user says of the model."""
        assumed = self.view.model.meta.get(ASSUMED_KEY)
        return assumed if isinstance(assumed, Assumed) else NOTHING

    def ask_again(self, model: ir.Model | None = None) -> Facts:
        """Return facts of the model as it still is, or of an equal one: all but inference is asked anew."""
        return Facts(ModelView(model or self.view.model), self.__dict__.get("_inferred"))

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """Return the element type of `value`, or None."""
        if value is None or value.dtype not in {None, ir.DataType.UNDEFINED}:
            return None if value is None else value.dtype
        known = self._find_known(value)
        return None if known is None else known.dtype

    def shape(self, value: ir.Value | None) -> Dims | None:
        """Return the shape of `value`: a number, a symbol or None for each axis; None if not even the rank is known."""
        if value is None:
            return None
        shape = self._known_shape(value)
        rank = None if shape is not None else find_rank(value, self._known_shape, self._ranks)
        # A Reshape to 10^12 axes never runs.
        return shape if rank is None or rank > current().rank else (None,) * rank

    def _known_shape(self, value: ir.Value) -> Dims | None:
        # onnx's version converter annotates the values it inserts as scalars, whatever they are.
        is_placeholder = value.shape == () and producer(value, "Softmax") is not None
        if value.shape is not None and not is_placeholder:
            return to_dims(value.shape)
        known = self._find_known(value)
        return None if known is None else known.shape

    def _find_known(self, value: ir.Value) -> Known | None:
        tensor = value.const_value
        if tensor is not None:
            return Known(tensor.dtype, tuple(int(d) for d in tensor.shape.numpy()))
        if value.graph is None or not value.name:
            return None
        container = self.view.by_graph.get(value.graph)
        return None if container is None else self._inferred.get((container.path, value.name))

    @cached_property
    def _inferred(self) -> Inferred:
        if self._found is not None:
            return self._found
        found: Inferred = {}
        functions: dict[FunctionId, onnx.FunctionProto] = {}
        with _as_help():
            light = copy_without_weights(self.view.model)
            insert_stubs(light)
            functions = {identifier: ir.to_proto(function) for identifier, function in light.functions.items()}
            found.update(_infer(ir.to_proto(light), ()))
        for identifier in _callers_first(self.view):
            with _as_help():
                found.update(self._infer_function(identifier, functions, found))
        return found

    def _infer_function(
        self, identifier: FunctionId, functions: Mapping[FunctionId, onnx.FunctionProto], found: Inferred
    ) -> Inferred:
        """Infer the body of a function for inputs that have what the operands of all its calls have in common."""
        function, calls = self.view.model.functions[identifier], self.view.calls[identifier]
        proto, so_far = functions[identifier], Facts(self.view, found)
        graph = onnx.GraphProto(name="body", node=proto.node)
        for node, original in zip(graph.node, function, strict=True):
            _bind(node, original, self.view)
        for index, value in enumerate(function.inputs):
            operands = [operand(call, index) for call in calls]
            known = [Known(so_far.dtype(given), so_far.shape(given)) for given in operands]
            graph.input.append(_value_info(value.name or "", _common(known)))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in proto.output)
        model = onnx.ModelProto(ir_version=10, graph=graph, opset_import=proto.opset_import)
        model.functions.extend(_called_by(proto, functions))
        return _infer(model, (function_label(identifier),))


@contextlib.contextmanager
def _as_help() -> Generator[None]:
    """Go on where onnx gives up on a model: then less is known; but not where it would go on for ever.

    Raises:
        InputError: a limit is passed.
    """
    try:
        yield
    except NotInferredError:
        pass
    except InputError:
        raise
    except Exception:
        pass


def _called_by(
    function: onnx.FunctionProto, functions: Mapping[FunctionId, onnx.FunctionProto]
) -> list[onnx.FunctionProto]:
    """Return what a function calls, directly or through others."""
    found: dict[FunctionId, onnx.FunctionProto] = {}
    bodies: list[onnx.FunctionProto | onnx.GraphProto] = [function]
    for body in bodies:
        for node in body.node:
            identifier = (node.domain, node.op_type, node.overload)
            if identifier in functions and identifier not in found:
                found[identifier] = functions[identifier]
                bodies.append(functions[identifier])
            bodies += (
                graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs) if graph.node
            )
    return list(found.values())


def drop_inferred_names(shape: Dims) -> Dims:
    """Return a shape without the symbols that inference made up, which mean nothing beyond one run of it."""
    return tuple(None if isinstance(d, str) and d.startswith("unk__") else d for d in shape)


def to_dims(shape: ir.Shape) -> Dims:
    """Return a shape as plain values."""
    return tuple(d if isinstance(d, int) else d.value for d in shape)


def _common(known: list[Known]) -> Known:
    """What holds for every one: a type all agree on, and the axes all agree on if all have one rank."""
    dtypes, shapes, shape = {k.dtype for k in known}, [k.shape for k in known if k.shape is not None], None
    if known and len(shapes) == len(known) and len({len(s) for s in shapes}) == 1:
        shape = tuple(column[0] if len(set(column)) == 1 else None for column in zip(*shapes, strict=True))
    return Known(dtypes.pop() if len(dtypes) == 1 else None, shape)


def _value_info(name: str, known: Known) -> onnx.ValueInfoProto:
    if known.dtype is None:
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(name, known.dtype.value, known.shape)


def _bind(proto: onnx.NodeProto, node: ir.Node, view: ModelView) -> None:
    """Put the values of a function's attributes in place of the references to them."""

    def value_of(reference: onnx.AttributeProto) -> onnx.AttributeProto | None:
        try:
            value = view.attribute(node, reference.name)
        except LookupError:
            # Without its attribute the node would be another operator: make it one that inference does not know.
            proto.domain = UNKNOWN
            return None
        return None if value is None else ir.to_proto(value)

    bind_attributes(proto, value_of)


def _callers_first(view: ModelView) -> list[FunctionId]:
    order: list[FunctionId] = []
    waiting = dict(view.calls)
    while waiting:
        ready = [
            name
            for name, calls in waiting.items()
            if all(view.container_of(call).function not in waiting for call in calls)
        ]
        if not ready:
            # Functions that call each other in a circle are no ONNX; checkers say so, and nothing is known of them.
            break
        order.extend(ready)
        for name in ready:
            del waiting[name]
    return [name for name in order if view.calls[name]]


def _infer(model: onnx.ModelProto, prefix: tuple[str, ...]) -> Inferred:
    return read_values(infer_shapes(model).graph, prefix)


def copy_without_weights(model: ir.Model) -> ir.Model:
    """Return a copy in which each large constant comes from an operator that inference does not know, with its type.

    Operators that inference may not survive are casts, whose results have the same shape and type.
    Nodes that are not in the model stand first in their graph, domain `UNKNOWN` and without inputs.
    """
    copy = model.clone()
    for container in ModelView(copy).containers:
        container.body.opset_imports[UNKNOWN] = 1
        for value in list(container.graph.initializers.values()):
            tensor = value.const_value
            small = None if tensor is None else _in_memory(tensor)
            if small is not None:
                value.const_value = small
                continue
            assert value.name is not None, "an initializer has a name"
            container.graph.initializers.pop(value.name)
            if not value.is_graph_input():
                _annotate(value, tensor)
                source = ir.Node(UNKNOWN, "Weight", [], outputs=[value])
                if len(container.graph):
                    container.graph.insert_before(container.graph[0], source)
        for node in list(container.body):
            tensor = node.attributes.get_tensor("value") if is_op(node, "Constant") else None
            if tensor is not None and tensor.nbytes > SMALL:
                _annotate(node.outputs[0], tensor)
                node.attributes.clear()
                node.domain = UNKNOWN
            elif (is_op(node, "EyeLike") and "dtype" in node.attributes) or is_op(node, "RegexFullMatch"):
                # Their inference in onnx 1.23 reads through a null pointer where the type of the input is not known.
                dtype = node.attributes.get_int("dtype", ir.DataType.BOOL)
                node.op_type = "Cast"
                node.attributes.clear()
                node.attributes.add(ir.AttrInt64("to", dtype))
    return copy


def _annotate(value: ir.Value, tensor: ir.TensorProtocol | None) -> None:
    # A new type object: the copy shares the old one with the model.
    if tensor is not None:
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())


def _in_memory(tensor: ir.TensorProtocol) -> ir.TensorProtocol | None:
    if tensor.nbytes > SMALL or tensor.dtype == ir.DataType.STRING:
        return None
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype) if isinstance(tensor, ir.ExternalTensor) else tensor
