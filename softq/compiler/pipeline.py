"""From a model to a program for a backend: the steps in their order."""

from __future__ import annotations

import onnx_ir as ir

from softq.artifact.program import Program
from softq.compiler.backend import Backend
from softq.compiler.frontend.importer import import_model
from softq.compiler.lower import lower
from softq.passes.move_integers import MoveIntegers
from softq.passes.multiply_integers import MultiplyIntegers
from softq.passes.prepare import prepare
from softq.passes.split_products import SplitProducts
from softq.provenance import row_functions


def compile_model(model: ir.Model, backend: Backend) -> Program:
    """Return the program of a converted model, which is not changed, with the kernels of a backend.

    Raises:
        RefusalError: an operator or a shape has no form in a built model; the message names it.
    """
    functions = row_functions(model)  # before anything touches their bodies
    prepared = prepare(model)
    for step in (MoveIntegers(), MultiplyIntegers(), SplitProducts()):
        step(prepared)
    return lower(import_model(prepared, functions, backend.supports), backend)
