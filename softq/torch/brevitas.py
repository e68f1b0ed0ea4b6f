"""Brevitas' attention with a method in the softmax's place, between its quantizers of Q, K and V."""

from __future__ import annotations

import math
from typing import Any

from brevitas.nn import QuantScaledDotProductAttention
from torch import Tensor

from softq.errors import UsageError
from softq.torch.modules import Attention


class QuantAttention(QuantScaledDotProductAttention):
    """`brevitas.nn.QuantScaledDotProductAttention` around a `softq.torch.Attention`.

    Q, K and V go through Brevitas' quantizers; scores have none, and weights need none: the method gives codes of its
    own, whose weights are multiplied with V before they are divided by their sum. Brevitas' handlers of exports know
    only its own class, so that one in export mode is refused: export the model as it was and convert that.

    Args:
        attention: The method with its options; `softq.torch.Attention()` if None.
        **quantizers: Brevitas' own arguments: `q_scaled_quant`, `k_transposed_quant`, `v_quant`, `sdpa_output_quant`
            and their options, `pre_process_q`, ...

    Raises:
        UsageError: a quantizer of scores or weights is given.
    """

    def __init__(self, attention: Attention | None = None, **quantizers: Any) -> None:
        taken = [name for name in quantizers if name.startswith(("softmax_input_", "attn_output_weights_"))]
        if taken:
            raise UsageError(f"{taken[0]} is given; the method takes the place of quantizers of scores and weights")
        super().__init__(softmax_input_quant=None, attn_output_weights_quant=None, **quantizers)
        self.attention = Attention() if attention is None else attention

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the attention output as `softq.torch.attention` does, of quantized tensors.

        Args:
            query: [..., heads, L, E].
            key: [..., heads, S, E]; with `enable_gqa` fewer heads.
            value: [..., heads, S, D].
            attn_mask: bool or floats that are added, broadcastable to [..., heads, L, S].
            dropout_p: Share of the weights that is dropped, in training.
            is_causal: Whether query i sees keys up to i alone.
            scale: What Q is multiplied by before it is quantized; by default 1 / sqrt(E).
            enable_gqa: Whether keys and values have fewer heads.

        Raises:
            UsageError: as in `softq.torch.attention`; the module is in export mode.
        """
        if self.export_mode:
            raise UsageError("Brevitas exports no softq.torch.Attention: export the float model and convert it")
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        query, key, value = self.pre_process_q(query), self.pre_process_k(key), self.pre_process_v(value)
        query, key = self.q_scaled_quant(query * factor), self.k_transposed_quant(key.transpose(-2, -1))
        out = self.attention(
            query, key.transpose(-2, -1), self.v_quant(value), attn_mask, dropout_p, is_causal, 1.0, enable_gqa
        )
        return self.sdpa_output_quant(out)
