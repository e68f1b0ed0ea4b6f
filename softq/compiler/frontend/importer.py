"""ONNX into Relax: TVM's importer, with the domain of operators, shape arithmetic and softq's own kernels.

This file alone touches private parts of TVM (the methods that `Importer` overrides); `imported` takes exactly the
version that it was written for.

What is different from TVM's importer:

* An operator counts with its domain; every one that is unknown is named before anything is imported.
* Shape arithmetic is computed while importing (`shape_folding`), so that every shape is an expression over the
  dimensions of the inputs, and over those that are measured while the model runs.
* If, Loop and Scan are imported as bodies of their own (`Importer.body`).
* Weights stay where they are: large initializers become parameters that are read when the weights file is written.
* Functions of softq's domain, Softmax and matrix products become calls of kernels (`converters`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import tvm
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from softq.compiler.frontend.broadcasting import broadcast_inputs
from softq.compiler.frontend.converters import converters, full_name
from softq.compiler.frontend.converters.softmaxes import softq_function
from softq.compiler.frontend.element_types import BITS, PLAIN, clean, held, held_array
from softq.compiler.frontend.graph_facts import GraphFacts, node_name
from softq.compiler.frontend.model_interface import check_output, element_type, input_shape
from softq.compiler.frontend.onnx_node import Array, ImportContext, Node, Supports, constant
from softq.compiler.frontend.preflight import WAY_OUT, missing_operators
from softq.compiler.frontend.shape_folding import LARGEST, sizes
from softq.compiler.ops.control_flow import Body
from softq.compiler.tir.symbolic import expression, plain
from softq.compiler.tvm_errors import refusal_of
from softq.errors import RefusalError, SoftqError
from softq.input_shapes import open_axes
from softq.provenance import RowFunction

Functions = Mapping[tuple[str, str], RowFunction]
"""What each function of a model computes, by domain and name."""

_HIDDEN = "If, hidden"

SMALL = 256
"""Initializers of at most so many elements become constants of the program."""


def known_operators() -> Collection[str]:
    """Return the operators of the default domain that TVM imports."""
    return onnx_frontend._get_convert_map()  # pyright: ignore[reportPrivateUsage]


class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer with the parts replaced that the module's docstring names."""

    def __init__(
        self,
        graph: ir.Graph,
        functions: Functions,
        supports: Supports,
        sites: Mapping[str, str],
        around: Importer | None,
    ) -> None:
        """Prepare the import of a graph.

        Args:
            graph: The main graph, or a body.
            functions: What each function of the model computes, by domain and name.
            supports: Says whether the backend has a kernel for an operator of operands of a type.
            sites: The id of each softmax by the name of the node's first output.
            around: What imports the graph around a body.
        """
        super().__init__({}, "float32", keep_params_in_input=True, sanitize=False)
        self.functions, self._around = functions, around
        self.graph = GraphFacts(graph, {} if around is None else around.graph.dtypes)
        known = {} if around is None else around.context.initializers
        self.context = ImportContext(self.bb, supports, {**known, **self.graph.arrays}, sites, self._nodes, self)
        self.context.dtypes = self.graph.dtypes
        self.weights: dict[str, Array] = {}
        if around is not None:
            self.context.operators = around.context.operators
            self.context.numbers = around.context.numbers
            self.weights = around.weights
        self._formals: list[relax.TensorType] = []
        self._captured: list[relax.Expr] = []
        self._option = open_axes(graph) if around is None else around._option

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the graph's inputs, initializers left out."""
        return tuple(self._input_names)

    def close(self) -> None:
        """Close the block of an import that failed: TVM prints a warning behind the error if one is left open."""
        with contextlib.suppress(RuntimeError):  # There is none before the first operator.
            self.bb._end_block()  # pyright: ignore[reportPrivateUsage]

    def body(
        self, node: Node, attribute: str, formals: Sequence[relax.TensorType], number: tirx.Var | None = None
    ) -> Body:
        """Import a body with inputs of these types; the first may be known as a size."""
        graph = self.graph.body(node, attribute)
        inner = Importer(graph, self.functions, self.context.supports, self.context.sites, self)
        inner._formals = list(formals)
        if number is not None:
            inner.context.sizes[graph.inputs[0].name or ""] = sizes(number, ()), "int64"
        outputs = [value.name or "" for value in graph.outputs]
        proto = onnx.GraphProto()
        proto.CopyFrom(node.attributes[attribute])  # The import adds outputs; a body may be imported again.
        module = inner.from_onnx(proto, self.opset)
        values = tuple(map(inner.context.tensor, outputs))
        limits = tuple(inner.context.limits.values())
        return Body(module, tuple(inner._inputs.values()), tuple(inner._captured), values, limits)

    def inline(self, node: Node, attribute: str) -> list[relax.Expr]:
        """Import a body without inputs in the place of its node."""
        proto = node.attributes[attribute]
        self.graph.add(self.graph.body(node, attribute))
        for name in (tensor.name for tensor in proto.initializer):
            array = self.graph.arrays[name]
            self.context.initializers = {**self.context.initializers, name: array}
            self._know_array(name, array)
            self._nodes[name] = constant(array)
        for inner in proto.node:
            # A body's own outputs are computed: where one is a constant, it is a node.
            value = next((one.t for one in inner.attribute if one.name == "value"), None)
            if inner.op_type == "Constant" and value is not None and value.data_type == onnx.TensorProto.INT64:
                self._know_array(inner.output[0], numpy_helper.to_array(value))
        self._check_for_unsupported_ops(proto)
        self._import_nodes(proto)
        for name, output in zip(node.outputs, proto.output, strict=True):
            if output.name in self.context.sizes:
                self.context.sizes[name] = self.context.sizes[output.name]
        return [self.context.tensor(output.name) for output in proto.output]

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        if self._around is not None:
            for value, ty in zip(graph.input, self._formals, strict=True):
                if not value.type.tensor_type.elem_type:
                    self.graph.check_known(value.name, str(ty.dtype))
                self._add_input(value.name, ty)
            self._capture(self._around)
            return
        names = {d.dim_param for value in graph.input for d in value.type.tensor_type.shape.dim}
        known: dict[str, tirx.Var] = {}
        for value in graph.input:
            if value.name in self.graph.arrays:
                continue  # An initializer, used or not: what callers may replace is a constant in a built model.
            dtype = held(element_type(value, "input"))
            dims = [expression(d) for d in input_shape(value, names, known)]
            self._add_input(value.name, relax.TensorType(dims, dtype))
        for value in graph.output:
            check_output(value)

    def _add_input(self, name: str, ty: relax.TensorType) -> None:
        variable = self._new_var(name, shape=list(ty.shape.values), dtype=str(ty.dtype))
        self._nodes[name] = self._inputs[name] = variable
        self._input_names.append(name)
        self._num_input += 1

    def _capture(self, around: Importer) -> None:
        """Make what a body takes from around it its own: sizes and constants as they are, tensors as inputs."""
        for name in sorted(self.graph.used - {*self.graph.arrays, *self._nodes, *self.graph.types}):
            if name in around.context.sizes:
                self.context.sizes[name] = around.context.sizes[name]
            if name in self.context.initializers or name not in around.context.sizes:
                tensor = around.context.tensor(name)
                if isinstance(tensor, relax.Var):
                    self._captured.append(tensor)
                    self._add_input(name, tensor.ty)
                else:
                    self._nodes[name] = tensor

    def _know_array(self, name: str, array: Array) -> None:
        if str(array.dtype) not in PLAIN:
            raise RefusalError(f"initializer {name!r} is {array.dtype}, which has no kernels")
        if array.size <= LARGEST and array.dtype.kind in "iu" and name not in self.context.dtypes:
            self.context.sizes[name] = sizes(array.tolist(), array.shape), str(array.dtype)

    def from_onnx(self, graph: Any, opset: int) -> tvm.IRModule:
        """Return a graph in Relax, with dataflow: where TVM finds an If, which is hidden here, it leaves that out."""
        for node in graph.node:
            node.op_type = _HIDDEN if node.op_type == "If" else node.op_type
        return super().from_onnx(graph, opset)

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.op_type = "If" if node.op_type == _HIDDEN else node.op_type
        prefix = "w" if self._around is None else f"w{len(self.weights)}_"
        for position, (name, array) in enumerate(self.graph.arrays.items()):
            if name not in self.graph.used:
                continue
            self._know_array(name, array)
            if array.size <= SMALL:
                self._nodes[name] = constant(array)
                continue
            variable = self._new_var(f"{prefix}{position}", shape=list(array.shape), dtype=str(array.dtype))
            self._nodes[name] = variable
            self._params[name] = (variable, 0)
            self.weights[variable.name] = array

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        # Of bodies that sizes choose, only what is imported counts.
        refused = missing_operators(
            ((n.domain, n.op_type, node_name(n)) for n in graph.node), self.functions, known_operators()
        )
        if refused:
            raise RefusalError(f"{refused}; {WAY_OUT}")

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        if self._around is None:
            for name, given in self._inputs.items():
                dtype = self.context.dtypes.get(name, "")
                if BITS.get(dtype, 8) < 8:
                    self._nodes[name] = clean(self.bb, given, dtype)
        self._import_nodes(graph)
        for output in graph.output:
            self.context.tensor(output.name)
        for number, call in enumerate(self.context.measured):
            self._nodes[f"measured {number}"] = call
            graph.output.append(onnx.helper.make_empty_tensor_value_info(f"measured {number}"))

    def _import_nodes(self, graph: onnx.GraphProto) -> None:
        for proto in graph.node:
            node = Node(
                self.context,
                node_name(proto),
                proto.op_type,
                list(proto.input),
                list(proto.output),
                {a.name: _value(a) for a in proto.attribute},
                self.opset,
            )
            self.graph.check_operands(node, proto.domain)
            try:
                if not (proto.domain in ("", "ai.onnx") and node.fold()):
                    self._import_node(proto, node)
            except SoftqError as error:
                raise self._with_option(error, node) from error
            except Exception as error:
                what = f"TVM cannot import {proto.op_type} {node.name!r}"
                raise self._with_option(refusal_of(what), node) from error

    def _import_node(self, proto: onnx.NodeProto, node: Node) -> None:
        results = self._results(proto, node)
        for position, name in enumerate(proto.output):
            if name not in self.graph.used:
                continue
            if position >= len(results):
                raise RefusalError(f"TVM has no output {position} of {proto.op_type} {node.name!r}: {name!r}")
            self._nodes[name] = results[position]
            self.graph.check(node, name, results[position])

    def _with_option(self, error: SoftqError, node: Node) -> SoftqError:
        """Return a refusal that tells how inputs of the model are fixed, where a node's operands have open axes."""
        if not isinstance(error, RefusalError) or not self._option or self._option in str(error):
            return error
        known = [self.context.sizes[name][0].ravel() for name in node.inputs if name in self.context.sizes]
        shapes = (getattr(self._nodes.get(name), "ty", None) for name in node.inputs)
        known += [ty.shape.values for ty in shapes if hasattr(getattr(ty, "shape", None), "values")]
        if all(isinstance(plain(dim), int) for dims in known for dim in dims):
            return error
        return RefusalError(f"{error}; fixed axes of the inputs may do: {self._option}")

    def _results(self, proto: onnx.NodeProto, node: Node) -> list[relax.Expr]:
        function = self.functions.get((proto.domain, proto.op_type))
        if function is not None:
            return softq_function(node, function)
        broadcast_inputs(node)
        converter = converters().get(full_name(proto.domain, proto.op_type))
        results = None if converter is None else converter(node)
        if results is not None:
            return results
        given = onnx_frontend.onnx_input()
        for name in node.inputs:
            given.append(self.context.tensor(name) if name else None)
        attributes = self._parse_attr(proto.attribute)
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(proto.output)}
        result = self._convert_operator(proto.op_type, given, attributes, self.opset)
        if isinstance(result, relax.Tuple):
            return [self.bb.emit(field, name_hint=node.name) for field in result.fields]
        result = self.context.emit(result, node.name)
        if isinstance(result.ty, relax.TupleType):
            return [self.bb.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]
        return [result]


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return held_array(numpy_helper.to_array(value))
    return value.decode() if isinstance(value, bytes) else value
