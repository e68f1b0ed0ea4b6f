"""Any module with its softmaxes replaced: traced by torch.export, judged as the ONNX model of the same trace.

The verdicts, the fits and the plan are those of `softq.convert`: it is given what torch.onnx makes of the traced
program, and each site of it is found again in the trace by the name that torch.onnx leaves at its node. So a plan that
was made here converts the exported model, and the other way round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

import softq.conversion
from softq.errors import RefusalError, UsageError
from softq.methods import OptionValue
from softq.plans import Plan, SitePlan
from softq.site import Site
from softq.torch.gradients import Backward
from softq.torch.modules import Attention, Softmax

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch.onnx writes, at each node, the modules and at last the node of the trace that it was made of."""


@dataclass(frozen=True)
class Converted:
    """What `convert` returns.

    Attributes:
        module: The traced module, with modules of softq in the place of its softmaxes and attentions.
        sites: Every softmax, with its verdict.
        plan: What was done to each; `softq.convert` does the same to the exported model by it.
        exported: The ONNX model that the plan was made for: what `torch.onnx.export` writes with the same arguments.
        warnings: What the user should know, one sentence each.
    """

    module: GraphModule
    sites: tuple[Site, ...]
    plan: Plan
    exported: ir.Model
    warnings: tuple[str, ...]


def convert(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *,
    dynamic_shapes: Any = None, calibration: Iterable[tuple[Any, ...]] | None = None, backward: Backward = "auto",
    **options: Any,
) -> Converted:  # fmt: skip
    """Return a module with softq's methods in the place of its softmaxes and attentions; the argument stays as it is.

    What is traced is the mode that the module is in: train it after `model.train()`, evaluate it after `model.eval()`.
    Judged, fitted and exported is what it is in evaluation: nothing is dropped there.

    Args:
        model: The module; torch.export has to be able to trace it.
        args: Arguments of a call.
        kwargs: Arguments by name.
        dynamic_shapes: Which axes may change, as in `torch.export.export`.
        calibration: Arguments of further calls, on which options are fitted: tensors in the order of the call's; what
            is no tensor is as in the first.
        backward: What gradients go through, as in `softq.torch.weighing`.
        **options: `method`, `bits`, `settings`, `plan`, `sites`, `all_sites` and others of `softq.convert`.

    Raises:
        UsageError: torch cannot trace or export the module, or as in `softq.convert`.
        RefusalError: a softmax was converted that is no operator of torch; or as in `softq.convert`.
    """
    traced = _trace(model, args, kwargs, dynamic_shapes)
    trained = any(part.training for part in model.modules())
    with _evaluating(model):
        exported = _export(model, args, kwargs, dynamic_shapes)
        if trained and _softmaxes(traced) != _softmaxes(_trace(model, args, kwargs, dynamic_shapes)):
            raise UsageError("the module has other softmaxes in training than in evaluation: convert it after eval()")
    data = None if calibration is None else list(_feeds(exported, calibration))
    conversion = softq.conversion.convert(exported, calibration=data, **options)
    module = traced.module()
    assert isinstance(module, GraphModule)
    nodes = {node.name: node for node in module.graph.nodes}
    places = dict(_places(exported))
    for planned in conversion.plan.sites:
        node = nodes.get(places.get(planned.id, ""))
        if node is None or node.target not in _REPLACED:
            raise RefusalError(f"site {planned.id} is no softmax or attention of torch; name others with `sites`")
        _REPLACED[node.target](module, node, planned, backward)
    module.graph.lint()
    module.recompile()
    return Converted(module, conversion.sites, conversion.plan, exported, conversion.warnings)


def calibrate(model: nn.Module, batches: Iterable[tuple[Any, ...]], **options: Any) -> Plan:
    """Return the plan that fits a module on batches; `plan.to_text()` is the file that `softq convert --plan` takes.

    Args:
        model: The module.
        batches: Arguments of calls; the first is traced, and what differs between batches is named in `dynamic_shapes`.
        **options: As in `convert`.

    Raises:
        UsageError: there is no batch; or as in `convert`.
        RefusalError: as in `convert`.
    """
    calls = list(batches)
    if not calls:
        raise UsageError("calibrate: there is no batch")
    return convert(model, calls[0], calibration=calls, **options).plan


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _softmaxes(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    return [(node.name, node.target) for node in program.graph.nodes if node.target in _REPLACED]


def _trace(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:  # torch names no class for what it cannot trace
        raise UsageError(f"torch.export cannot trace the module: {_first_line(error)}") from error


def _export(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> ir.Model:
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        # Traced once more, as users would: of a program that was traced, axes have other names. A dictionary at the end
        # would be taken for arguments by name.
        positional = (*args, {}) if args and isinstance(args[-1], dict) else args
        program = torch.onnx.export(
            model, positional, kwargs=dict(kwargs or {}), dynamic_shapes=dynamic_shapes, dynamo=True, verbose=False
        )
    except Exception as error:  # nor for what it cannot export
        raise UsageError(f"torch.onnx cannot export the module: {_first_line(error.__cause__ or error)}") from error
    finally:
        log.setLevel(level)
    assert program is not None
    return program.model


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _feeds(model: ir.Model, calls: Iterable[tuple[Any, ...]]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield calls as inputs of the exported model, by name.

    Raises:
        UsageError: a call has another number of tensors than the model has inputs, or of a type that NumPy has not.
    """
    names = [str(value.name) for value in model.graph.inputs]
    for call in calls:
        values = [x for x in tree_leaves(call) if isinstance(x, Tensor)]
        if len(values) != len(names):
            raise UsageError(f"calibration: a call has {len(values)} tensors; the module takes {len(names)}")
        if any(x.dtype is torch.bfloat16 for x in values):
            raise UsageError("calibration: a tensor is bfloat16; fit the module in float32")
        yield {name: value.detach().cpu().numpy() for name, value in zip(names, values, strict=True)}


def _places(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield each value's name with that of the node of the trace that it was made of."""
    for node in model.graph:
        scopes = node.metadata_props.get(_SCOPES)
        if scopes is None:
            continue
        # A list of names as Python prints it.
        last = scopes.rsplit("'", 2)[-2] if scopes.count("'") > 1 else ""
        for value in node.outputs:
            yield str(value.name), last


def _replace_softmax(module: GraphModule, node: Node, planned: SitePlan, backward: Backward) -> None:
    values, dim, *kind = _arguments(node, ("input", "dim", "dtype"))
    with module.graph.inserting_before(node):
        if kind and kind[0] is not None:
            values = module.graph.call_function(torch.ops.aten.to.dtype, (values, kind[0]))
        made = Softmax(dim, planned.method, backward=backward, **_options(planned))
        _put(module, node, made, (values,), {})


def _replace_attention(module: GraphModule, node: Node, planned: SitePlan, backward: Backward) -> None:
    made = Attention(planned.method, backward=backward, **_options(planned))
    _put(module, node, made, node.args, node.kwargs)


def _options(planned: SitePlan) -> dict[str, Any]:
    fitted = {"fitted": planned.fitted} if planned.fitted else {}
    options: Mapping[str, OptionValue] = planned.options
    return {**options, **fitted}


def _arguments(node: Node, names: Sequence[str]) -> list[Any]:
    """Return a call's arguments in the order of the operator's, as far as they are given."""
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return [given[name] for name in names if name in given]


def _put(module: GraphModule, node: Node, made: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    name = f"softq_{node.name}"
    made.train(module.training)
    module.add_submodule(name, made)
    with module.graph.inserting_before(node):
        call = module.graph.call_module(name, args, dict(kwargs))
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    module.graph.erase_node(node)


_REPLACED: Mapping[Any, Callable[[GraphModule, Node, SitePlan, Backward], None]] = {
    torch.ops.aten.softmax.int: _replace_softmax,
    torch.ops.aten.special_softmax.default: _replace_softmax,
    torch.ops.aten.scaled_dot_product_attention.default: _replace_attention,
}
"""By the operators of torch that they replace."""
