"""A model in Relax, and the import that gives it.

The importer extends TVM's own, so it takes exactly the version of TVM that it was written for;
`tests/test_native_version.py` fails loudly on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
import tvm

from softq.artifact.program import Limit
from softq.compiler.backend import KernelOperator
from softq.compiler.frontend.importer import Functions, Importer, known_operators
from softq.compiler.frontend.onnx_node import Array, Supports
from softq.compiler.frontend.preflight import check_supported
from softq.errors import SoftqError
from softq.modelfile import proto_without_weights
from softq.provenance import call_sites

TVM_VERSION = "0.27.0"
"""The version whose importer is extended here; a later patch of it is another matter than a later minor version."""


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
        dtypes: The element types, by value, that are not those of the integers that hold their bits.
    """

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Array]
    operators: Mapping[str, KernelOperator]
    limits: tuple[Limit, ...]
    dtypes: Mapping[str, str]


def import_model(model: ir.Model, functions: Functions, supports: Supports) -> Imported:
    """Return the model in Relax.

    Args:
        model: Prepared: no functions but softq's, no Constant nodes; it is not changed.
        functions: What each function of the model computes, by domain and name.
        supports: Says whether the backend has a kernel for an operator of operands of a type; TVM has the rest.

    Raises:
        RefusalError: an operator is not known, or a shape has no form; the message names it.
        SoftqError: the installed TVM is another than `TVM_VERSION`.
    """
    check_version()
    check_supported(model, functions, known_operators())
    importer = Importer(model.graph, functions, supports, call_sites(model), None)
    proto = proto_without_weights(model)
    try:
        module = importer.from_onnx(proto.graph, model.opset_imports.get("", 18))
    except SoftqError:
        importer.close()
        raise
    return Imported(
        module=module,
        inputs=importer.inputs,
        outputs=tuple(value.name or "" for value in model.graph.outputs),
        weights=importer.weights,
        operators=importer.context.operators,
        limits=tuple(importer.context.limits.values()),
        dtypes=importer.context.dtypes,
    )


def check_version() -> None:
    """Refuse a TVM whose importer this file does not know.

    Raises:
        SoftqError: naming both versions.
    """
    installed = str(tvm.__version__)
    if installed.split(".")[:3] != TVM_VERSION.split("."):
        raise SoftqError(f"build needs TVM {TVM_VERSION}, installed is {installed}; pip install 'softq[tvm]'")
