"""From a model to a program for a machine: the steps in their order."""

from __future__ import annotations

import onnx_ir as ir

from softq.artifact.machine import Machine
from softq.codegen.cpu.backend import Kernels
from softq.compiler.frontend.importer import ALL_OFFERED, Imported, Offered, import_model
from softq.compiler.lowering.lower import lower
from softq.passes.move_integers import MoveIntegers
from softq.passes.multiply_integers import MultiplyIntegers
from softq.passes.prepare import prepare
from softq.passes.split_products import SplitProducts
from softq.provenance import row_functions
from softq.targets._contract import Built


def build(model: ir.Model, machine: Machine) -> Built:
    """Return the program of a converted model, which is not changed."""
    found = imported(model, MoveIntegers(), MultiplyIntegers(), SplitProducts())
    return Built(lower(found, Kernels(machine)), machine)


def imported(model: ir.Model, *steps: ir.passes.InPlacePass, offered: Offered = ALL_OFFERED) -> Imported:
    """Return a converted model, which is not changed, in Relax, after these steps on its prepared copy."""
    functions = row_functions(model)  # before anything touches their bodies
    prepared = prepare(model)
    for step in steps:
        step(prepared)
    return import_model(prepared, functions, offered)
