"""A module as torch.export traces it, and as torch.onnx exports it, with the way from one to the other."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from softq.calibration.rows import input_specs, io_specs
from softq.data import SHARED, without_samples
from softq.errors import UsageError, root_cause
from softq.torch.traced_module import TracedModule

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch.onnx writes, at each node, the modules and at last the node of the trace that it was made of."""

_ELSEWHERE = re.compile(r" (For more information, run with|See the stack trace) .*")
"""Where messages of torch point to more."""

SOFTMAXES = (
    torch.ops.aten.softmax.int,
    torch.ops.aten.special_softmax.default,
    torch.ops.aten.scaled_dot_product_attention.default,
)
"""The operators of torch that hold a softmax."""


@dataclass(frozen=True)
class Traced:
    """A module's trace, in which softmaxes are replaced, and the ONNX model by which they are judged.

    Attributes:
        program: What torch.export traced, in the mode that the module was in.
        exported: What torch.onnx makes of the module in evaluation.
        training: Whether the module was in training.
        model: The module.
        args: Arguments of the call that was traced.
        kwargs: Its arguments by name.
        dynamic_shapes: Which axes may change.
    """

    program: torch.export.ExportedProgram
    exported: ir.Model
    training: bool
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] | None
    dynamic_shapes: Any

    def export(self, state: Mapping[str, Tensor]) -> ir.Model:
        """Return what torch.onnx makes of the module with other weights; names that it has not are left out.

        Raises:
            UsageError: torch cannot export it.
        """
        trained = copy.deepcopy(self.model)
        trained.load_state_dict({name: state[name] for name in trained.state_dict() if name in state}, strict=False)
        return _export(trained.eval(), self.args, self.kwargs, self.dynamic_shapes)


def trace(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> Traced:
    """Return what `softq.torch.convert` replaces softmaxes in; its arguments are those of `convert`.

    Raises:
        UsageError: torch cannot trace or export the module, or it has other softmaxes in training than in evaluation,
            or is what `convert` returned.
    """
    if isinstance(model, TracedModule):
        raise UsageError("the module was converted already: convert the one that it was made from")
    program = _trace(model, args, kwargs, dynamic_shapes)
    training = any(part.training for part in model.modules())
    with evaluating(model):
        exported = _export(model, args, kwargs, dynamic_shapes)
        if training and _softmaxes(program) != _softmaxes(_trace(model, args, kwargs, dynamic_shapes)):
            raise UsageError("the module has other softmaxes in training than in evaluation: convert it after eval()")
    return Traced(program, exported, training, model, args, kwargs, dynamic_shapes)


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Have a module in evaluation meanwhile."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _softmaxes(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    return [(node.name, node.target) for node in program.graph.nodes if node.target in SOFTMAXES]


def _trace(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:  # torch names no class for what it cannot trace
        raise UsageError(f"torch.export cannot trace the module: {_reason(error)}") from error


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
        raise UsageError(f"torch.onnx cannot export the module: {_reason_of_node(error)}") from error
    finally:
        log.setLevel(level)
    assert program is not None
    return program.model


def _reason(error: BaseException) -> str:
    """Return what torch says of an error as one line: the rest of its text is on where to read more.

    Of axes that cannot change as was asked, the lines that follow say why not, and what to ask for instead.
    """
    first, *rest = str(error).strip().splitlines() or [type(error).__name__]
    first = _ELSEWHERE.sub("", first)
    if first.startswith("Constraints violated"):
        why = [line.strip() for line in takewhile(str.strip, rest)]
        told = " ".join([first.rstrip("!") + ":", *(line.removeprefix("- ") for line in why)])
        return re.sub(r"\.? Suggested fixes:", ". Suggested fixes:", told)
    if " " not in first:  # an operator's name
        first = f"{type(error).__name__}: {first}"
    told = first.endswith(":")
    more = [line.strip() for line in rest if line.strip()]
    return " ".join([first, *more[:told], *(line for line in more[told:] if line.startswith("Caused by:"))])


def _reason_of_node(error: Exception) -> str:
    """Return why torch.onnx cannot export, with the node of the trace that it was at."""
    at, root = error.__cause__ or error, root_cause(error)
    return _reason(at) if root is at else f"{_reason(root)} ({_reason(at)})"


def feeds(model: ir.Model, calls: Iterable[tuple[Any, ...]]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield calls as inputs of the exported model, by name.

    Raises:
        UsageError: a call has another number of tensors than the model has inputs, or of a type that NumPy has not.
    """
    shared = without_samples(*io_specs(model))
    names = [SHARED * (spec in shared) + spec.name for spec in input_specs(model)]
    for call in calls:
        values = [x for x in tree_leaves(call) if isinstance(x, Tensor)]
        if len(values) != len(names):
            raise UsageError(f"calibration: a call has {len(values)} tensors; the module takes {len(names)}")
        if any(x.dtype is torch.bfloat16 for x in values):
            raise UsageError("calibration: a tensor is bfloat16; fit the module in float32")
        yield {name: value.detach().cpu().numpy() for name, value in zip(names, values, strict=True)}


def places(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield each value's name with that of the node of the trace that it was made of."""
    for node in model.graph:
        scopes = node.metadata_props.get(_SCOPES)
        if scopes is None:
            continue
        # A list of names as Python prints it.
        last = scopes.rsplit("'", 2)[-2] if scopes.count("'") > 1 else ""
        for value in node.outputs:
            yield str(value.name), last
