"""Models of transformers with a method in the softmax's place: `attn_implementation="softq"`."""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from softq.errors import InputError, UsageError
from softq.json_values import to_plain
from softq.methods import DEFAULT_METHOD, METHODS, OptionValue
from softq.plans import Plan, parse_fitted
from softq.torch.functional import Weighing, attention, weighing
from softq.torch.gradients import Backward

CONFIG = "softq"
"""What a model's config may name a method by: {"method": NAME, "bits": 3}, and under "layers" others by the
layer's number: {"layers": {"0": {"bits": 4}}}. Numbers that are fitted stand under "fitted", as in a plan."""

_MODEL = "base_model_prefix"
"""The attribute that models of transformers have and their parts do not."""
_NAMES: set[str] = set()
_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
_LAYERS, _METHOD, _BACKWARD, _FITTED = "layers", "method", "backward", "fitted"


def register(
    name: str = "softq", *, method: str = DEFAULT_METHOD, backward: Backward = "auto", **settings: OptionValue
) -> None:
    """Make a name known to transformers: `model.set_attn_implementation(name)`, or `attn_implementation=name`.

    Masks are registered with it: without them transformers makes none, and the future leaks into what is predicted. A
    model's config may say another method, or one for each layer (`CONFIG`); it is saved with the model.

    A model that is made with this name is warned of if attentions in it do not ask for their implementation by name: in
    those nothing changes (BLOOM, MPT, Falcon, DeBERTa-v2, GroupViT). `softq.torch.convert` takes such models.

    Args:
        name: What it is to be called there; one that is known is replaced.
        method: Name of the method.
        backward: What gradients go through, as in `softq.torch.weighing`.
        **settings: Options of the method.

    Raises:
        UsageError: transformers is not installed or older than 4.53; the method or an option is unknown.
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface, eager_mask
    except ImportError as error:
        raise UsageError(f"softq.torch.register needs transformers 4.53 or newer: {error}") from error
    usual = {_METHOD: method, _BACKWARD: backward, **settings}
    own = _weighing(_text(usual))

    def forward(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        scaling: float | None = None, dropout: float = 0.0, softcap: float | None = None, s_aux: Tensor | None = None,
        position_bias: Tensor | None = None, output_attentions: bool | None = None, cache: object = None, **_: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        if cache is not None:
            raise UsageError(f"{name}: continuous batching gives a paged cache; expected keys and values themselves")
        if position_bias is not None:
            attention_mask = position_bias if attention_mask is None else attention_mask + position_bias

        def attend(values: Tensor, dropout: float) -> Tensor:
            return attention(
                query, key, values, attention_mask, dropout, scale=scaling, enable_gqa=True,
                method=_of_layer(module, usual, own), softcap=softcap, sinks=s_aux,
            ).to(query.dtype)  # fmt: skip

        out = attend(value, dropout if module.training else 0.0).transpose(1, 2).contiguous()
        if not output_attentions:
            return out, None
        # A mean of unit vectors by the weights is the weights.
        units = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device)
        return out, attend(units.expand(*key.shape[:-1], -1), 0.0)

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, eager_mask)
    if not _NAMES:
        register_module_module_registration_hook(_warn_of_unused_name)
    _NAMES.add(name)


def _warn_of_unused_name(model: nn.Module, _: str, child: nn.Module | None) -> None:
    """Warn of the attentions in a new part of a model with a registered name that do not ask for one by name."""
    # Only models of transformers: each warns of its own parts.
    name = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if name not in _NAMES or not hasattr(model, _MODEL) or child is None or hasattr(child, _MODEL):
        return
    # Also classes of the model's file: a model with a table of attentions raises a KeyError before it has one of them.
    own = (c for c in vars(sys.modules[type(model).__module__]).values() if isinstance(c, type))
    kinds = {*map(type, child.modules()), *(kind for kind in own if issubclass(kind, nn.Module))}
    names = sorted(kind.__name__ for kind in kinds if _ATTENTION.search(kind.__name__) and not _asks_for_name(kind))
    if names:
        where = f"attentions of {type(model).__name__} ({', '.join(names)})"
        what = f"do not ask transformers for an implementation by name: {name!r} changes nothing in them"
        warnings.warn(f"{where} {what}; softq.torch.convert replaces the softmax of any module", stacklevel=2)


@cache
def _asks_for_name(kind: type[nn.Module]) -> bool:
    """Return whether the file of a class uses the table of attentions; of a class without source it is assumed."""
    try:
        return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):
        return True


def apply_plan(model: nn.Module, plan: Plan) -> None:
    """Write a plan of the exported model into a model's config: what its sites get, its layers get.

    It says nothing of the attention's implementation, and is saved with the model: `register` has to be called before
    the model runs.

    Args:
        model: A model of transformers; its sites are one per layer, in the order of the layers.
        plan: What `softq.convert` made for the model exported with eager attention, or `softq.plans.load_plan` read.

    Raises:
        UsageError: the model's config does not name its layers.
        InputError: the plan has another number of sites than the model has layers, or numbers that do not fit.
    """
    config = getattr(model, "config", None)
    layers = getattr(config, "num_hidden_layers", None)
    if config is None or not isinstance(layers, int):
        raise UsageError("the model has no config with num_hidden_layers; softq.torch.convert takes any module")
    if len(plan.sites) != layers:
        raise InputError(f"the plan has {len(plan.sites)} sites; the model has {layers} layers, each with one")
    found: dict[str, object] = {}
    for layer, site in enumerate(plan.sites):
        site.configure()
        found[str(layer)] = {
            _METHOD: site.method, **site.options, **({_FITTED: to_plain(site.fitted)} if site.fitted else {})
        }  # fmt: skip
    setattr(config, CONFIG, {_LAYERS: found})


def _of_layer(module: nn.Module, usual: Mapping[str, OptionValue], own: Weighing) -> Weighing:
    """Return the method of an attention: of its layer, of its model, or the one that was registered.

    Raises:
        UsageError: the config names no such option, or a layer that there is not.
    """
    config = getattr(module, "config", None)
    if getattr(config, CONFIG, None) is None:
        return own  # made already: torch.compile has nothing to look up
    given = _object(getattr(config, CONFIG, None), f"config.{CONFIG}")
    layers = {str(k): v for k, v in _object(given.get(_LAYERS), f"config.{CONFIG}: {_LAYERS}").items()}
    chosen = {k: v for k, v in given.items() if k != _LAYERS}
    if layers:
        number, count = getattr(module, "layer_idx", None), getattr(config, "num_hidden_layers", len(layers))
        unknown = set(layers) - set(map(str, range(count)))
        if number is None or unknown:
            known = f"the model has {count}" if unknown else f"{type(module).__name__} does not know its own number"
            raise UsageError(f"config.{CONFIG} has layers {', '.join(sorted(unknown or layers))}; {known}")
        chosen |= _object(layers.get(str(number)), f"config.{CONFIG}: layer {number}")
    # Options belong to their method: those of another one are no use to it.
    base = usual if chosen.get(_METHOD, usual[_METHOD]) == usual[_METHOD] else {_BACKWARD: usual[_BACKWARD]}
    try:
        if base is not usual:
            METHODS.get(chosen[_METHOD])  # A config is a file: it may name registered methods only.
        return _weighing(_text({**base, **chosen}))
    except (TypeError, UsageError) as error:
        raise UsageError(f"config.{CONFIG}: {error}") from error


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"{what} is {value!r}; expected an object with options by name")
    return cast("Mapping[str, Any]", value or {})


def _text(options: Mapping[str, object]) -> str:
    return json.dumps(options, sort_keys=True)


@lru_cache(maxsize=256)
def _weighing(text: str) -> Weighing:
    options = json.loads(text)
    fitted = options.pop(_FITTED, None)
    numbers = _object(fitted, f"config.{CONFIG}: {_FITTED}")
    given = {key: parse_fitted(value, f"config.{CONFIG}: {_FITTED} {key}") for key, value in numbers.items()}
    return weighing(fitted=None if fitted is None else given, **options)
