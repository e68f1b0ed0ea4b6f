"""Any module with its softmaxes replaced: traced by torch.export, judged as the ONNX model of the same trace.

The verdicts, the fits and the plan are those of `softq.convert`: it is given what torch.onnx makes of the traced
program, and each site of it is found again in the trace by the name that torch.onnx leaves at its node. So a plan that
was made here converts the exported model, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir
import torch
from torch import nn
from torch.fx import GraphModule, Node

import softq.conversion
from softq.conversion import Conversion
from softq.errors import RefusalError, UsageError
from softq.methods import FITTED_SCOPES, METHODS, OptionValue
from softq.modelfile import graph_hash, weights_fingerprint
from softq.plans import Plan, SitePlan
from softq.site import Site
from softq.torch.gradients import Backward
from softq.torch.modules import Attention, Softmax
from softq.torch.traced_module import TRACED_IN_TRAINING, TracedModule
from softq.torch.tracing import SOFTMAXES, Traced, feeds, places, trace

_OF_EXPORTS = ("allow_substitute", "inline", "fuse_attention", "qdq")
"""Options of `softq.convert` that a plan does not settle."""


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

    module: TracedModule
    sites: tuple[Site, ...]
    plan: Plan
    exported: ir.Model
    warnings: tuple[str, ...]
    _traced: Traced = field(repr=False)
    _options: Mapping[str, Any] = field(repr=False)

    def export(self) -> Conversion:
        """Return the converted ONNX model with the weights and the numbers that the module has now.

        The argument of `convert` is exported with these weights and its own softmaxes, and converted by
        `trained_plan`. Its graph may be another one than before training: exporters leave out biases of zero.

        Raises:
            UsageError: as in `convert`.
            RefusalError: as in `convert`.
        """
        exported = self._traced.export(self.module.state_dict())
        before, after = dict(places(self.exported)), dict(places(exported))
        now = {after[site.id]: site.id for site in softq.conversion.inspect(exported) if site.id in after}
        plan = self.trained_plan()
        plan = replace(
            plan, graph=graph_hash(exported), weights=weights_fingerprint(exported),
            sites=tuple(replace(site, id=now[before[site.id]]) for site in plan.sites),
            rewrites={now[before[name]]: rewrite for name, rewrite in plan.rewrites.items()},
        )  # fmt: skip
        return softq.conversion.convert(exported, plan=plan, **self._options)

    def trained_plan(self) -> Plan:
        """Return the plan with the numbers that the module has now, where some of them are learned."""
        sites: list[SitePlan] = []
        for planned, made in zip(self.plan.sites, self._made(), strict=True):
            now = made.fitted()
            kept = {name: value for name, value in planned.spread.items() if now[name] == planned.fitted[name]}
            sites.append(replace(planned, fitted=now, spread=kept))
        return replace(self.plan, sites=tuple(sites))

    def _made(self) -> list[Softmax | Attention]:
        return [module for module in self.module.modules() if isinstance(module, (Softmax, Attention))]


def convert(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *,
    dynamic_shapes: Any = None, calibration: Iterable[tuple[Any, ...]] | None = None, backward: Backward = "auto",
    learn: Sequence[str] = (), **options: Any,
) -> Converted:  # fmt: skip
    """Return a module with softq's methods in the place of its softmaxes and attentions.

    The argument keeps its own; weights are shared, so that training the one trains the other.
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
        learn: Names of the method's options that are learned, per head where the heads are known: from what was fitted,
            or from the option's own number.
        **options: `method`, `bits`, `settings`, `plan`, `sites`, `all_sites` and others of `softq.convert`.

    Raises:
        UsageError: torch cannot trace or export the module, or as in `softq.convert`.
        RefusalError: a softmax was converted that is no operator of torch; or as in `softq.convert`.
    """
    traced = trace(model, args, kwargs, dynamic_shapes)
    data = None if calibration is None else list(feeds(traced.exported, calibration))
    conversion = softq.conversion.convert(traced.exported, calibration=data, **options)
    known = {site.id: site for site in conversion.sites}
    sites = tuple(_with_learned(planned, known[planned.id], learn) for planned in conversion.plan.sites)
    plan = replace(conversion.plan, sites=sites)
    module = replace_softmaxes(traced, plan, backward, learn)
    kept = {name: value for name, value in options.items() if name in _OF_EXPORTS}
    return Converted(module, conversion.sites, plan, traced.exported, conversion.warnings, traced, kept)


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


def replace_softmaxes(
    traced: Traced, plan: Plan, backward: Backward = "auto", learn: Sequence[str] = ()
) -> TracedModule:
    """Return a new module of the trace with what a plan says in it; weights are shared, not copied.

    Raises:
        RefusalError: a site of the plan is no operator of torch.
    """
    own = traced.program.module()
    assert isinstance(own, GraphModule)
    module = TracedModule(own, own.graph)
    module.meta[TRACED_IN_TRAINING] = traced.training
    nodes = {node.name: node for node in module.graph.nodes}
    origins = dict(places(traced.exported))
    for planned in plan.sites:
        node = nodes.get(origins.get(planned.id, ""))
        if node is None or node.target not in _REPLACED:
            raise RefusalError(f"site {planned.id} is no softmax or attention of torch; name others with `sites`")
        _REPLACED[node.target](module, node, planned, backward, tuple(learn))
    module.graph.lint()
    # Sets the mode, of torch's own modules too.
    return module.train(traced.training)


def _with_learned(planned: SitePlan, site: Site, learn: Sequence[str]) -> SitePlan:
    """Return what a site gets, with numbers per head, or for the site, of the options that are learned.

    Raises:
        UsageError: the method has no such option, or it is none that is fitted.
    """
    heads = None if site.head_axis is None or site.shape is None else site.shape[site.head_axis]
    options, fitted = dict(planned.options), dict(planned.fitted)
    for name in learn:
        if name in fitted:
            continue
        method = METHODS.get(planned.method)
        able = [key for key, spec in method.options.specs().items()
                if set(FITTED_SCOPES) <= set(spec.words) and key not in dict(method.choices)]  # fmt: skip
        if name not in able:
            raise UsageError(f"{planned.method}: {name} cannot be learned; {', '.join(able) or 'nothing of it'} can")
        number = options[name]
        assert isinstance(number, (int, float)), "options are resolved, and what is fitted has its numbers"
        # Numbers per head hold for the third axis from the end.
        per_head = isinstance(heads, int) and site.head_axis == -3
        options[name] = "head" if per_head else "site"
        fitted[name] = (float(number),) * heads if isinstance(heads, int) and per_head else float(number)
    return replace(planned, options=options, fitted=fitted)


Replace = Callable[[GraphModule, Node, SitePlan, Backward, tuple[str, ...]], None]


def _replace_softmax(
    module: GraphModule, node: Node, planned: SitePlan, backward: Backward, learn: tuple[str, ...]
) -> None:
    values, dim, *kind = _arguments(node, ("input", "dim", "dtype"))
    with module.graph.inserting_before(node):
        if kind and kind[0] is not None:
            values = module.graph.call_function(torch.ops.aten.to.dtype, (values, kind[0]))
        made = Softmax(dim, planned.method, backward=backward, learn=learn, **_options(planned))
        _put(module, node, made, (values,), {})


def _replace_attention(
    module: GraphModule, node: Node, planned: SitePlan, backward: Backward, learn: tuple[str, ...]
) -> None:
    made = Attention(planned.method, backward=backward, learn=learn, **_options(planned))
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
    module.add_submodule(name, made)
    with module.graph.inserting_before(node):
        call = module.graph.call_module(name, args, dict(kwargs))
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    module.graph.erase_node(node)


_REPLACED: Mapping[Any, Replace] = dict(
    zip(SOFTMAXES, (_replace_softmax, _replace_softmax, _replace_attention), strict=True)
)
"""By the operators of torch that they replace."""
