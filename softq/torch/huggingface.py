"""Models of transformers with a method in the softmax's place: `attn_implementation="softq"`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from softq.errors import UsageError
from softq.methods import DEFAULT_METHOD, OptionValue
from softq.torch.functional import Weighing, attention, weighing
from softq.torch.gradients import Backward

CONFIG = "softq"
"""What a model's config may name a method by: {"method": NAME, "bits": 3}, and under "layers" others by the
layer's number: {"layers": {"0": {"bits": 4}}}."""

_LAYERS = "layers"


def register(
    name: str = "softq", *, method: str = DEFAULT_METHOD, backward: Backward = "auto", **settings: OptionValue
) -> None:
    """Make a name known to transformers: `model.set_attn_implementation(name)`, or `attn_implementation=name`.

    Masks are registered with it: without them transformers makes none, and the future leaks into what is predicted. A
    model's config may say another method, or one for each layer (`CONFIG`); it is saved with the model.

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
    usual = {"method": method, "backward": backward, **settings}
    _weighing(_text(usual))

    def forward(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        scaling: float | None = None, dropout: float = 0.0, softcap: float | None = None, s_aux: Tensor | None = None,
        position_bias: Tensor | None = None, **_: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        if position_bias is not None:
            attention_mask = position_bias if attention_mask is None else attention_mask + position_bias
        out = attention(
            query, key, value, attention_mask, dropout if module.training else 0.0, scale=scaling, enable_gqa=True,
            method=_of_layer(module, usual), softcap=softcap, sinks=s_aux,
        )  # fmt: skip
        return out.to(query.dtype).transpose(1, 2).contiguous(), None

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, eager_mask)


def _of_layer(module: nn.Module, usual: Mapping[str, OptionValue]) -> Weighing:
    """Return the method of an attention: of its layer, of its model, or the one that was registered."""
    given: Mapping[str, Any] = getattr(getattr(module, "config", None), CONFIG, None) or {}
    layers: Mapping[str, Mapping[str, OptionValue]] = given.get(_LAYERS, {})
    chosen = {k: v for k, v in given.items() if k != _LAYERS} | dict(
        layers.get(str(getattr(module, "layer_idx", "")), {})
    )
    # Options belong to their method: those of another one are no use to it.
    base = usual if chosen.get("method", usual["method"]) == usual["method"] else {"backward": usual["backward"]}
    return _weighing(_text({**base, **chosen}))


def _text(options: Mapping[str, OptionValue]) -> str:
    return json.dumps(options, sort_keys=True)


@lru_cache(maxsize=256)
def _weighing(text: str) -> Weighing:
    return weighing(**json.loads(text))
