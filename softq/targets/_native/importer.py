# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""ONNX into Relax: TVM's importer, with the domain of operators, shape arithmetic and softq's own kernels.

This file alone touches private parts of TVM (the methods that `Importer` overrides), so it takes exactly the version
that it was written for; `tests/test_native_version.py` fails loudly on another.

What is different from TVM's importer:

* An operator counts with its domain; every one that is unknown is named before anything is imported.
* Shape arithmetic is computed while importing (`folding`), so that every shape is an expression over the dimensions of
  the inputs. A shape that depends on data is a refusal.
* Weights stay where they are: large initializers become parameters that are read when the weights file is written.
* Functions of softq's domain, Softmax and matrix products become calls of kernels (`calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import tvm
from numpy.typing import NDArray
from onnx import numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from softq.artifact.program import Limit
from softq.errors import RefusalError, SoftqError
from softq.modelfile import proto_without_weights
from softq.provenance import RowFunction, call_sites
from softq.targets._native.calls import KernelCall, SizesCall, constant
from softq.targets._native.converters import CONVERTERS
from softq.targets._native.folding import FOLDERS, LARGEST, Sizes, sizes, static
from softq.targets._native.sizes import plain

TVM_VERSION = "0.27.0"
"""The version whose importer is extended here; a later patch of it is another matter than a later minor version."""

SMALL = 256
"""Initializers of at most so many elements become constants of the program."""

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Imported:
    """A model in Relax.

    Attributes:
        module: Its function `main` takes the model's inputs, then the weights.
        inputs: The model's names of the inputs.
        outputs: The model's names of the outputs.
        weights: The arrays of the weights by the name of the parameter.
        calls: What the external functions that `main` calls mean, by name.
        limits: What must hold for the dimensions.
    """

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Array]
    calls: Mapping[str, KernelCall]
    limits: tuple[Limit, ...]


def import_model(model: ir.Model, functions: Mapping[tuple[str, str], RowFunction]) -> Imported:
    """Return the model in Relax.

    Args:
        model: Prepared: no functions but softq's, no Constant nodes; it is not changed.
        functions: What each function of the model computes, by domain and name.

    Raises:
        RefusalError: an operator is not known, or a shape depends on data; the message names it.
        SoftqError: the installed TVM is another than `TVM_VERSION`.
    """
    check_version()
    importer = Importer(model, functions)
    proto = proto_without_weights(model)
    module = importer.from_onnx(proto.graph, model.opset_imports.get("", 18))
    return Imported(
        module=module,
        inputs=tuple(value.name or "" for value in model.graph.inputs if value.name in importer.inputs),
        outputs=tuple(value.name or "" for value in model.graph.outputs),
        weights=importer.weights,
        calls=importer.calls,
        limits=tuple(importer.limits),
    )


def last_line(error: Exception) -> str:
    """Return what an error of TVM says in the end; before it stand programs and pointers to places in them."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1].strip()


def check_version() -> None:
    """Refuse a TVM whose importer this file does not know.

    Raises:
        SoftqError: naming both versions.
    """
    installed = str(tvm.__version__)
    if installed.split(".")[:3] != TVM_VERSION.split("."):
        raise SoftqError(f"build needs TVM {TVM_VERSION}, installed is {installed}; pip install 'softq[tvm]'")


@dataclass
class Node:
    """One ONNX node while it is imported: what converters see.

    Attributes:
        importer: The importer.
        name: Name of its first output.
        operator: Its type.
        inputs: Names of the inputs, empty where one is left out.
        outputs: Names of the outputs.
        attributes: Values by name; tensors as arrays.
        opset: Version of the default domain.
    """

    importer: Importer
    name: str
    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    opset: int
    functions: Mapping[tuple[str, str], RowFunction] = field(default_factory=dict)

    def has(self, position: int) -> bool:
        """Say whether the input is given."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def tensor(self, position: int) -> relax.Expr:
        """Return an input as a tensor."""
        return self.importer.tensor(self.inputs[position])

    def shape(self, position: int) -> list[Any]:
        """Return the dimensions of an input."""
        return self.importer.dims(self.tensor(position), self.inputs[position])

    def sizes(self, position: int) -> Sizes:
        """Return an input as sizes.

        Raises:
            RefusalError: it depends on data.
        """
        known = self.importer.sizes_of(self.inputs[position])
        if known is None:
            raise RefusalError(
                f"{self.operator} {self.name!r}: {self.inputs[position]!r} gives a shape that depends on data; "
                "a built model knows shapes from the shapes of its inputs"
            )
        return known

    def emit(self, value: relax.Expr, hint: str | None = None) -> relax.Expr:
        """Bind a value to a variable."""
        return self.importer.bb.emit(value, name_hint=hint or "v")

    def call(self, name: str, call: KernelCall, arguments: Sequence[relax.Expr], types: Any) -> relax.Expr:
        """Return the result of a kernel of our own."""
        self.importer.calls[name] = call
        return self.emit(relax.op.call_dps_packed(name, relax.Tuple(list(arguments)), types))

    def array(self, position: int) -> Array | None:
        """Return the values of an input that is an initializer, else None."""
        return self.importer.initializers.get(self.inputs[position])

    def require(self, limit: Limit) -> None:
        """Note what must hold for the dimensions."""
        same = [(x.size, x.low, x.high) for x in self.importer.limits]
        if (limit.size, limit.low, limit.high) not in same:
            self.importer.limits.append(limit)


class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer with the parts replaced that the module's docstring names."""

    def __init__(self, model: ir.Model, functions: Mapping[tuple[str, str], RowFunction]) -> None:
        super().__init__({}, "float32", keep_params_in_input=True, sanitize=False)
        self.functions = functions
        self.sites = call_sites(model)
        self.initializers: dict[str, Array] = {
            name: value.const_value.numpy()
            for name, value in model.graph.initializers.items()
            if value.const_value is not None
        }
        self.weights: dict[str, Array] = {}
        self.calls: dict[str, KernelCall] = {}
        self.transposes: dict[str, tuple[str, list[int]]] = {}
        self.limits: list[Limit] = []
        self.types = {
            value.name or "": (
                None if value.dtype is None else value.dtype.numpy().name,
                None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape],
            )
            for node in model.graph
            for value in node.outputs
        }
        self._sizes: dict[str, Sizes] = {}

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the inputs of the graph that are no initializers."""
        return self._input_names

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        for position, (name, array) in enumerate(self.initializers.items()):
            if array.size <= LARGEST and array.dtype.kind in "iu":
                self._sizes[name] = sizes(array.tolist(), array.shape)
            if array.size <= SMALL:
                self._nodes[name] = constant(array)
                continue
            variable = self._new_var(f"w{position}", shape=list(array.shape), dtype=str(array.dtype))
            self._nodes[name] = variable
            self._params[name] = (variable, 0)
            self.weights[variable.name] = array

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        known = onnx_frontend._get_convert_map()
        missing: dict[str, str] = {}
        for node in graph.node:
            standard = node.domain in ("", "ai.onnx")
            if (node.domain, node.op_type) in self.functions or (
                standard and (node.op_type in known or node.op_type in CONVERTERS or node.op_type in FOLDERS)
            ):
                continue
            missing.setdefault(f"{node.domain}::{node.op_type}" if not standard else node.op_type, node.output[0])
        if missing:
            names = ", ".join(f"{operator} (first at {output!r})" for operator, output in missing.items())
            raise RefusalError(f"TVM has no operator for: {names}")

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for proto in graph.node:
            node = Node(
                self,
                next((o for o in proto.output if o), proto.name),
                proto.op_type,
                list(proto.input),
                list(proto.output),
                {a.name: _value(a) for a in proto.attribute},
                self.opset,
                self.functions,
            )
            if proto.domain in ("", "ai.onnx") and self._fold(node):
                continue
            try:
                results = self._results(proto, node)
            except SoftqError:
                raise
            except Exception as error:
                raise RefusalError(f"TVM cannot import {proto.op_type} {node.name!r}: {last_line(error)}") from error
            for name, result in zip(proto.output, results, strict=False):
                if name:
                    self._nodes[name] = result
                    self._check(node, name, result)
        for output in graph.output:
            self._nodes[output.name] = self.tensor(output.name)

    def _results(self, proto: onnx.NodeProto, node: Node) -> list[relax.Expr]:
        if (proto.domain, proto.op_type) in self.functions:
            return CONVERTERS["softq"](node)
        converter = CONVERTERS.get(proto.op_type)
        if converter is not None:
            return converter(node)
        given = onnx_frontend.onnx_input()
        for name in proto.input:
            given.append(self.tensor(name) if name else None)
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
        dtype, dims = self.types.get(name, (None, None))
        found = [plain(d) for d in shape.values]
        if dtype is not None and str(result.ty.dtype) != dtype:
            raise RefusalError(f"TVM gives {result.ty.dtype} for {what}, which is {dtype} in ONNX")
        if dims is None:
            return
        pairs = zip(found, dims, strict=False)
        if len(found) != len(dims) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            raise RefusalError(f"TVM gives the shape {found} for {what}, which is {dims} in ONNX")

    def _fold(self, node: Node) -> bool:
        """Compute a node on sizes, if its inputs are known as such."""
        if node.operator in ("Shape", "Size"):
            dims = sizes(self.dims(self.tensor(node.inputs[0]), node.inputs[0]))
            if node.operator == "Size":
                result = FOLDERS["ReduceProd"]([dims], {"keepdims": 0})
            else:
                result = dims[slice(node.attributes.get("start", 0), node.attributes.get("end"))]
        else:
            fold = _cast if node.operator == "Cast" else FOLDERS.get(node.operator)
            given = [self._sizes.get(name) for name in node.inputs if name]
            if fold is None or not given or any(x is None for x in given) or not all(node.inputs):
                return False
            result = fold([x for x in given if x is not None], node.attributes)
        if result is None or result.size > LARGEST:
            return False
        self._sizes[node.outputs[0]] = result
        self._types[node.outputs[0]] = self._type_of(node)
        return True

    @property
    def _types(self) -> dict[str, str]:
        return self.__dict__.setdefault("_size_types", {})

    def _type_of(self, node: Node) -> str:
        if node.operator == "Cast":
            return _CASTS[node.attributes["to"]]
        if node.operator == "Equal":
            return "bool"
        if node.operator in ("Shape", "Size"):
            return "int64"
        if node.operator == "ConstantOfShape":
            return str(node.attributes["value"].dtype)
        like = node.inputs[1 if node.operator in ("Where", "CastLike") else 0]
        known = self._types.get(like)
        return known if known is not None else str(self.initializers[like].dtype)

    def sizes_of(self, name: str) -> Sizes | None:
        """Return a value as sizes, or None if it is not known before the run."""
        return self._sizes.get(name)

    def tensor(self, name: str) -> relax.Expr:
        """Return a value as a tensor; sizes are written into one where an operator takes them as data."""
        if name not in self._nodes:
            if name not in self._sizes:
                raise RefusalError(f"TVM gives no {name!r}, which the model uses")
            values, dtype = self._sizes[name], self._types[name]
            self._nodes[name] = self.written(values, dtype)
        return self._nodes[name]

    def written(self, values: Sizes, dtype: str) -> relax.Expr:
        """Return sizes as a tensor."""
        numbers = static(values)
        if numbers is not None:
            return constant(numbers.astype(dtype))
        self.calls["sizes"] = SizesCall()
        flat = relax.ShapeExpr(list(values.ravel()))
        written = relax.op.call_dps_packed("sizes", relax.Tuple([flat]), relax.TensorType((values.size,), "int64"))
        result = self.bb.emit(written)
        if values.shape != (values.size,):
            result = self.bb.emit(relax.op.reshape(result, list(values.shape)))
        return result if dtype == "int64" else self.bb.emit(relax.op.astype(result, dtype))

    def dims(self, value: relax.Expr, name: str) -> list[Any]:
        """Return the dimensions of a tensor.

        Raises:
            RefusalError: they depend on data.
        """
        shape = getattr(value.ty, "shape", None)
        if shape is None or not hasattr(shape, "values"):
            raise RefusalError(f"the shape of {name!r} depends on data; a built model knows shapes from its inputs'")
        return list(shape.values)


_CASTS = {
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.BOOL: "bool",
}


def _cast(inputs: Sequence[Sizes], attributes: Mapping[str, Any]) -> Sizes | None:
    to = attributes["to"]
    if to == onnx.TensorProto.BOOL:
        numbers = static(inputs[0])
        return None if numbers is None else sizes((numbers != 0).astype(int).tolist(), numbers.shape)
    return inputs[0] if to in _CASTS else None


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value


Converter = Callable[[Node], "list[relax.Expr]"]
