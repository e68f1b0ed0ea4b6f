"""The call that takes a softmax's place: a function of a method's program, and the arrays that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.methods import METHODS, Options
from softq.plans import SitePlan
from softq.rowprog import Program
from softq.rowprog.onnx import VALUES_DOMAIN, Emission, arguments, emit, emit_exposed, emit_with_bounds, signature

EXPOSED_KEY = "softq.exposed"
"""Key under which `Replace` leaves a list of `Exposed` in the meta of a model."""


ROW_KEY = "softq.row"
"""Key under which `Replace` leaves a `RowCall` in the meta of each call of a row function."""


@dataclass(frozen=True)
class RowCall:
    """What a call of a row function stands for.

    Attributes:
        site: Id of the site.
        drop_in: Whether its weights approximate those of the softmax, which sees the differences of scores alone.
        greatest: What no weight exceeds, if they come with their sum and are known not to be negative; else None.
        integers: Whether the weights are integers.
    """

    site: str
    drop_in: bool
    greatest: float | None
    integers: bool


@dataclass(frozen=True)
class Call:
    """What takes a softmax's place.

    Attributes:
        function: The function, which other calls share: a model gets a copy.
        arrays: What it is given behind the scores and their mask, by name and in the order of its inputs.
        row: What it stands for.
        values: What codes each column of V, [..., D, N], in a product that is divided at last; None where V stays.
    """

    function: ir.Function
    arrays: Mapping[str, NDArray[np.generic]]
    row: RowCall
    values: ir.Function | None = None


@dataclass(frozen=True)
class CallContext:
    """Where a call stands: what the function depends on beside method and options.

    Attributes:
        masked: Whether it is given a mask.
        opset: The model's version of the default domain.
        max_length: Greatest length of a row.
    """

    masked: bool
    opset: int
    max_length: int


@dataclass(frozen=True)
class Exposed:
    """A call whose arrays are inputs of the graph.

    Attributes:
        site: Id of the site.
        context: Where it stands.
        function: The function that is called.
        inputs: The graph's inputs for its arrays, in their order.
    """

    site: str
    context: CallContext
    function: ir.Function
    inputs: tuple[ir.Value, ...]


def make_call(planned: SitePlan, context: CallContext, *, exposed: bool) -> Call:
    """Return the call for what a plan says of a site.

    Args:
        planned: Method, options and fitted numbers.
        context: Where the call is to stand.
        exposed: Whether the program's own numbers and tables are arrays too, so that other options can share its body.

    Raises:
        ProofError: the program has no proof for rows of this length.
        RefusalError: a value fits no type of ONNX runtimes.
        UsageError: an option is wrong.
    """
    options = planned.configure()
    program, emission = _emit(planned.method, options, context, exposed)
    values = arguments(program, METHODS.get(planned.method).parameters(options, planned.fitted))
    names = signature(program)[1 + context.masked :]
    arrays = dict(zip(names, values, strict=True))
    own = emission.function.inputs[len(signature(program)) :]
    arrays |= {str(value.name): array for value, array in zip(own, emission.constants, strict=True)}
    method = METHODS.get(planned.method)
    weights = emission.weights
    greatest = float(weights.high) if weights is not None and weights.low >= 0 and not weights.nan else None
    # Exponentials of distances; range analysis follows the numbers that compute them and not what they mean.
    greatest = 1.0 if method.logarithms and weights is not None else greatest
    integers = program.is_pair and program.outputs["weights"].dtype.is_integer
    row = RowCall(planned.id, method.drop_in, greatest, integers)
    return Call(emission.function, arrays, row, _emit_values(planned.method, options, context))


@lru_cache(maxsize=64)
def _emit(method: str, options: Options, context: CallContext, exposed: bool) -> tuple[Program, Emission]:
    """Return what the sites of a model share: the proof takes longer than all the rest."""
    program = METHODS.get(method).program(options, masked=context.masked)
    if exposed:
        return program, emit_exposed(program, opset=context.opset, max_length=context.max_length)
    return program, emit_with_bounds(program, opset=context.opset, max_length=context.max_length)


@lru_cache(maxsize=64)
def _emit_values(method: str, options: Options, context: CallContext) -> ir.Function | None:
    program = METHODS.get(method).values_program(options)
    if program is None:
        return None
    return emit(program, opset=context.opset, max_length=context.max_length, domain=VALUES_DOMAIN)


def same_function(a: ir.Function, b: ir.Function) -> bool:
    """Return whether two functions have the same interface, nodes and opsets, whatever their constants are called."""
    left, right = (ir.to_proto(function) for function in (a, b))
    for proto in (left, right):
        for node in proto.node:
            for attribute in node.attribute:
                attribute.t.ClearField("name")
    fields = ("input", "output", "node", "opset_import")
    return all(list(getattr(left, field)) == list(getattr(right, field)) for field in fields)
