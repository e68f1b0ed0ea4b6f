"""ONNX into Relax: TVM's importer, with the domain of operators, shape arithmetic and softq's own kernels.

This file alone touches private parts of TVM (the methods that `Importer` overrides), so it takes exactly the version
that it was written for; `tests/test_native_version.py` fails loudly on another.

What is different from TVM's importer:

* An operator counts with its domain; every one that is unknown is named before anything is imported.
* Shape arithmetic is computed while importing (`shape_folding`), so that every shape is an expression over the
  dimensions of the inputs. A shape that depends on data is a refusal.
* Weights stay where they are: large initializers become parameters that are read when the weights file is written.
* Functions of softq's domain, Softmax and matrix products become calls of kernels (`converters`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import tvm
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from softq.artifact.abi import DTYPES
from softq.artifact.program import Limit
from softq.compiler.backend import KernelOperator
from softq.compiler.frontend.converters import converters
from softq.compiler.frontend.converters.softmaxes import softq_function
from softq.compiler.frontend.model_interface import check_output, element_type, input_shape
from softq.compiler.frontend.onnx_node import Array, ImportContext, Node, Supports, constant
from softq.compiler.frontend.shape_folding import FOLDERS, LARGEST, sizes
from softq.compiler.tir.symbolic import expression, plain
from softq.errors import RefusalError, SoftqError
from softq.graph.queries import MOVES_ONLY
from softq.modelfile import proto_without_weights
from softq.provenance import RowFunction, call_sites

TVM_VERSION = "0.27.0"
"""The version whose importer is extended here; a later patch of it is another matter than a later minor version."""

SMALL = 256
"""Initializers of at most so many elements become constants of the program."""


@dataclass(frozen=True)
class Imported:
    """A model in Relax.

    Attributes:
        module: Its function `main` takes the model's inputs, then the weights.
        inputs: The model's names of the inputs.
        outputs: The model's names of the outputs.
        weights: The arrays of the weights by the name of the parameter.
        operators: What the external functions that `main` calls mean, by name.
        limits: What must hold for the dimensions.
    """

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Array]
    operators: Mapping[str, KernelOperator]
    limits: tuple[Limit, ...]


def import_model(model: ir.Model, functions: Mapping[tuple[str, str], RowFunction], supports: Supports) -> Imported:
    """Return the model in Relax.

    Args:
        model: Prepared: no functions but softq's, no Constant nodes; it is not changed.
        functions: What each function of the model computes, by domain and name.
        supports: Says whether the backend has a kernel for an operator of operands of a type; TVM has the rest.

    Raises:
        RefusalError: an operator is not known, or a shape depends on data; the message names it.
        SoftqError: the installed TVM is another than `TVM_VERSION`.
    """
    check_version()
    importer = Importer(model, functions, supports)
    proto = proto_without_weights(model)
    try:
        module = importer.from_onnx(proto.graph, model.opset_imports.get("", 18))
    except SoftqError:
        # TVM prints a warning behind the error if a block is left open; there is none before the first operator.
        with contextlib.suppress(RuntimeError):
            importer.bb._end_block()  # pyright: ignore[reportPrivateUsage]
        raise
    return Imported(
        module=module,
        inputs=tuple(importer._input_names),  # pyright: ignore[reportPrivateUsage]
        outputs=tuple(value.name or "" for value in model.graph.outputs),
        weights=importer.weights,
        operators=importer.context.operators,
        limits=tuple(importer.context.limits.values()),
    )


def last_line(error: Exception) -> str:
    """Return what an error of TVM says in the end; before it stand programs and pointers to places in them."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # An operator's description is longer than what is said about it.
    return re.sub(r'ir\.Op\(span=.*?name="([\w.]+)".*?support_level=\d+\)', r"\1", lines[-1].strip())


def check_version() -> None:
    """Refuse a TVM whose importer this file does not know.

    Raises:
        SoftqError: naming both versions.
    """
    installed = str(tvm.__version__)
    if installed.split(".")[:3] != TVM_VERSION.split("."):
        raise SoftqError(f"build needs TVM {TVM_VERSION}, installed is {installed}; pip install 'softq[tvm]'")


class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer with the parts replaced that the module's docstring names."""

    def __init__(self, model: ir.Model, functions: Mapping[tuple[str, str], RowFunction], supports: Supports) -> None:
        super().__init__({}, "float32", keep_params_in_input=True, sanitize=False)
        self.functions = functions
        initializers = {
            name: value.const_value.numpy()
            for name, value in model.graph.initializers.items()
            if value.const_value is not None
        }
        self.context = ImportContext(self.bb, supports, initializers, call_sites(model), self._nodes)
        self.weights: dict[str, Array] = {}
        self.used = {value.name for node in model.graph for value in node.inputs if value is not None}
        self.used.update(value.name for value in model.graph.outputs)
        self.types = {
            value.name or "": (
                None if value.dtype is None else value.dtype.numpy().name,
                None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape],
            )
            for node in model.graph
            for value in node.outputs
        }

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        names = {d.dim_param for value in graph.input for d in value.type.tensor_type.shape.dim}
        known: dict[str, tirx.Var] = {}
        for value in graph.input:
            if value.name in self._nodes:
                continue  # An initializer: what callers may replace is a constant in a built model.
            dtype = element_type(value, "input")
            dims = [expression(d) for d in input_shape(value, names, known)]
            variable = self._new_var(value.name, shape=dims, dtype=dtype)
            self._nodes[value.name] = self._inputs[value.name] = variable
            self._input_names.append(value.name)
            self._num_input += 1
        for value in graph.output:
            check_output(value)

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        for position, (name, array) in enumerate(self.context.initializers.items()):
            if name not in self.used:
                continue
            if str(array.dtype) not in _TYPES:
                raise RefusalError(f"initializer {name!r} is {array.dtype}, which has no kernels")
            if array.size <= LARGEST and array.dtype.kind in "iu":
                self.context.sizes[name] = sizes(array.tolist(), array.shape), str(array.dtype)
            if array.size <= SMALL:
                self._nodes[name] = constant(array)
                continue
            variable = self._new_var(f"w{position}", shape=list(array.shape), dtype=str(array.dtype))
            self._nodes[name] = variable
            self._params[name] = (variable, 0)
            self.weights[variable.name] = array

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        known = onnx_frontend._get_convert_map()  # pyright: ignore[reportPrivateUsage]
        missing: dict[str, str] = {}
        for node in graph.node:
            standard = node.domain in ("", "ai.onnx")
            here = node.op_type in known or node.op_type in converters() or node.op_type in FOLDERS
            tensors = not re.search("Sequence|Optional", node.op_type)
            if (node.domain, node.op_type) in self.functions or (standard and here and tensors):
                continue
            missing.setdefault(f"{node.domain}::{node.op_type}" if not standard else node.op_type, node.output[0])
        if missing:
            names = ", ".join(f"{operator} (first at {output!r})" for operator, output in missing.items())
            raise RefusalError(f"TVM has no operator for: {names}")

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for proto in graph.node:
            node = Node(
                self.context,
                next((o for o in proto.output if o), proto.name),
                proto.op_type,
                list(proto.input),
                list(proto.output),
                {a.name: _value(a) for a in proto.attribute},
                self.opset,
            )
            if proto.domain in ("", "ai.onnx") and node.fold():
                continue
            try:
                results = self._results(proto, node)
            except SoftqError:
                raise
            except Exception as error:
                raise RefusalError(f"TVM cannot import {proto.op_type} {node.name!r}: {last_line(error)}") from error
            for position, name in enumerate(proto.output):
                if name not in self.used:
                    continue
                if position >= len(results) or (position and proto.op_type in _FIRST_ONLY):
                    raise RefusalError(f"TVM has no output {position} of {proto.op_type} {node.name!r}: {name!r}")
                self._nodes[name] = results[position]
                self._check(node, name, results[position])
        for output in graph.output:
            self.context.tensor(output.name)

    def _results(self, proto: onnx.NodeProto, node: Node) -> list[relax.Expr]:
        function = self.functions.get((proto.domain, proto.op_type))
        if function is not None:
            return softq_function(node, function)
        converter = converters().get(proto.op_type)
        results = None if converter is None else converter(node)
        if results is not None:
            return results
        given = onnx_frontend.onnx_input()
        for name in proto.input:
            given.append(self.context.tensor(name) if name else None)
        attributes = self._parse_attr(proto.attribute)
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(proto.output)}
        result = self._convert_operator(proto.op_type, given, attributes, self.opset)
        if isinstance(result, relax.Tuple):
            return [self.bb.emit(field, name_hint="v") for field in result.fields]
        result = self.bb.emit(result, name_hint="v")
        if isinstance(result.ty, relax.TupleType):
            return [self.bb.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]
        return [result]

    def _check(self, node: Node, name: str, result: relax.Expr) -> None:
        """Refuse a result whose type is not the one that ONNX infers, as far as ONNX can tell."""
        what = f"{node.operator} {name!r}"
        shape = getattr(result.ty, "shape", None)
        if not isinstance(result.ty, relax.TensorType):
            raise RefusalError(f"{what} gives no tensor, and a built model has nothing else")
        if shape is None or not hasattr(shape, "values"):
            raise RefusalError(
                f"{what} has a shape that depends on data, or on dimensions that are not known to be equal; "
                "a built model knows shapes from the shapes of its inputs"
            )
        keeps = node.operator in _BFLOAT16 or any(name == node.operator for _, name in self.functions)
        if str(result.ty.dtype) not in _TYPES and not (keeps and str(result.ty.dtype) == "bfloat16"):
            raise RefusalError(f"{what} is {result.ty.dtype}, which has no kernels")
        dtype, dims = self.types.get(name, (None, None))
        found = [plain(d) for d in shape.values]
        if dtype is not None and str(result.ty.dtype) != dtype:
            raise RefusalError(f"TVM gives {result.ty.dtype} for {what}, which is {dtype} in ONNX")
        if dims is None:
            return
        pairs = zip(found, dims, strict=False)
        if len(found) != len(dims) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            raise RefusalError(f"TVM gives the shape {found} for {what}, which is {dims} in ONNX")


_TYPES = frozenset(DTYPES)

_BFLOAT16 = MOVES_ONLY | {"Cast", "CastLike", "Identity", "Softmax"}
"""What takes bfloat16 inside a model: rows compute in float32, and moving is not computing."""

_FIRST_ONLY = frozenset({"LayerNormalization", "BatchNormalization", "MaxPool"})
"""Operators whose further outputs TVM makes up."""


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value
