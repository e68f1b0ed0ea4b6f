"""From a model to a program for a machine: the steps in their order."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._prepare import prepare
from softq.passes.move_integers import MoveIntegers
from softq.passes.multiply_integers import MultiplyIntegers
from softq.passes.split_products import SplitProducts
from softq.provenance import row_functions
from softq.targets._contract import Built
from softq.targets._native.importer import import_model
from softq.targets._native.lower import lower
from softq.targets._native.machine import Machine


def build(model: ir.Model, machine: Machine) -> Built:
    """Return the program of a converted model, which is not changed."""
    functions = row_functions(model)  # before anything touches their bodies
    prepared = prepare(model)
    for step in (MoveIntegers(), MultiplyIntegers(), SplitProducts()):
        step(prepared)
    return Built(lower(import_model(prepared, functions), machine), machine)
