"""Reading back what `convert` wrote into a model: its plan, and the row program behind each function."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import onnx_ir as ir

from softq.errors import InputError, ProofError, RefusalError
from softq.files import parse_json
from softq.passes.replace import FUNCTION_DOMAIN
from softq.passes.rewriting.calls import same_function
from softq.plans import DEFAULT_MAX_LENGTH, PLAN_KEY, Plan, SitePlan, parse_plan
from softq.rowprog import Program
from softq.rowprog.onnx import VALUES_DOMAIN, emit, function_name
from softq.site import META_KEY


@dataclass(frozen=True)
class RowFunction:
    """What a function of softq's domain computes.

    Attributes:
        program: The row program.
        max_length: Greatest length of a row that the function was proved for.
        sites: What the plan says of the softmaxes that may call it: those with this method and these options.
    """

    program: Program
    max_length: int
    sites: tuple[SitePlan, ...] = ()


def plan_of(model: ir.Model) -> Plan | None:
    """Return the plan that a converted model carries, or None.

    Raises:
        InputError: it is damaged.
    """
    text = model.metadata_props.get(PLAN_KEY)
    if text is None:
        return None
    try:
        data = parse_json(text)
    except ValueError as error:
        raise InputError(f"the plan in the model's metadata ({PLAN_KEY}) is no JSON: {error}") from error
    return parse_plan(data, f"the plan in the model's metadata ({PLAN_KEY})")


def row_functions(model: ir.Model) -> dict[tuple[str, str], RowFunction]:
    """Return the row program of each function of softq's domains that the model calls.

    The program is traced again from the plan in the model's metadata, and what it is emitted as has to be the function
    in the model: what a kernel computes is what the model says.

    Raises:
        InputError: the plan is damaged.
        RefusalError: a function is not that of the plan, because another softq made it or someone changed it.
    """
    domains = (FUNCTION_DOMAIN, VALUES_DOMAIN)
    called = {node.op_identifier()[:2] for node in model.graph.all_nodes() if node.domain in domains}
    if not called:
        return {}
    plan = plan_of(model)
    programs: dict[tuple[str, str], Program] = {}
    planned: dict[tuple[str, str], list[SitePlan]] = {}
    for site in () if plan is None else plan.sites:
        method, options = site.find_method(), site.configure()
        of_site = [(FUNCTION_DOMAIN, method.program(options, masked=masked)) for masked in (False, True)]
        of_values = method.values_program(options)
        of_site += [] if of_values is None else [(VALUES_DOMAIN, of_values)]
        for domain, program in of_site:
            programs[domain, function_name(program)] = program
            planned.setdefault((domain, function_name(program)), []).append(site)
    found: dict[tuple[str, str], RowFunction] = {}
    for identifier, function in model.functions.items():
        if identifier[:2] not in called:
            continue
        key = identifier[:2]
        if plan is None or key not in programs:
            raise RefusalError(
                f"function {'::'.join(key)} is not in a plan of the model's metadata; convert the original "
                "model with this softq, and keep the metadata"
            )
        length = _proved_length(model, function, programs[key], plan.max_length)
        found[key] = RowFunction(programs[key], length, tuple(planned[key]))
    return found


def _proved_length(model: ir.Model, function: ir.Function, program: Program, max_length: int) -> int:
    """Return the greatest length that the function is proved for, after checking that it is the program's."""
    # A function is proved for the greatest static length of its sites, or for the plan's where one is not static.
    lengths = {max_length}
    for node in model.graph.all_nodes():
        if node.domain == function.domain and node.op_type == function.name and node.inputs[0] is not None:
            shape = node.inputs[0].shape
            last = shape[-1] if shape is not None and len(shape) else None
            if isinstance(last, int):
                lengths.add(last)
    for length in sorted(lengths, reverse=True):  # one body often serves them all
        with suppress(ProofError):
            opset = function.opset_imports[""]
            bodies = (emit(program, opset=opset, max_length=length, trims=trims) for trims in (True, False))
            if any(same_function(function, body) for body in bodies):
                return length
    raise RefusalError(
        f"function {function.domain}::{function.name} is not what this softq makes of the plan; "
        "convert the original model again"
    )


def function_lengths(model: ir.Model) -> dict[str, int]:
    """Return the functions of softq's domain that a model calls, with the greatest length that a row may have in each.

    Where the model gives no number that is the length that the plan in its metadata was proved for.

    Raises:
        InputError: the plan is damaged.
    """
    plan = plan_of(model)
    most = DEFAULT_MAX_LENGTH if plan is None else plan.max_length
    bodies = (function for function in model.functions.values() if function.domain == FUNCTION_DOMAIN)
    nodes = [*model.graph.all_nodes(), *(node for body in bodies for node in body.all_nodes())]
    found: dict[str, int] = {}
    for node in nodes:
        if node.domain == FUNCTION_DOMAIN:
            scores = node.inputs[0] if node.inputs else None
            last = None if scores is None or not scores.shape else scores.shape[-1]
            found[node.op_type] = max(found.get(node.op_type, 0), last if isinstance(last, int) else most)
    return found


def call_sites(model: ir.Model) -> dict[str, str]:
    """Return the id of the softmax that each call of a function computes, by the name of its first output."""
    return {
        node.outputs[0].name or "": node.metadata_props[META_KEY]
        for node in model.graph.all_nodes()
        if META_KEY in node.metadata_props
    }
