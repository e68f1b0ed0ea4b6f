"""Training with Brevitas' quantizers around softq's attention: `python examples/integrations/brevitas_attention.py`."""

from __future__ import annotations

import torch
from brevitas.graph.quantize import layerwise_quantize
from brevitas.nn import QuantLinear, ScaledDotProductAttention

import softq.torch as st
from softq.torch.brevitas import QuantAttention


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.mix, self.out = torch.nn.Linear(32, 96), ScaledDotProductAttention(), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        return self.out(self.mix(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


torch.manual_seed(0)
float_model, x = Model(), torch.randn(8, 16, 32)
before = float_model(x).detach()
attention = (QuantAttention, {"attention": lambda _: st.Attention(bits=4, backward="quantized")})
model = layerwise_quantize(float_model, {torch.nn.Linear: (QuantLinear, {}), ScaledDotProductAttention: attention})
distance = float((model(x) - before).detach().norm() / before.norm())

optimizer, losses = torch.optim.Adam(model.parameters(), 0.003), []
for _ in range(40):
    losses.append(torch.nn.functional.mse_loss(model(x), x.roll(1, 1)))
    optimizer.zero_grad()
    losses[-1].backward()
    optimizer.step()
replaced = sum(isinstance(part, QuantAttention) for part in model.modules())
print(f"{replaced} attention replaced; relative error {distance:.3f}; loss {losses[0]:.3f}, then {losses[-1]:.3f}")
assert (replaced, bool(losses[-1] < 0.9 * losses[0])) == (1, True)
assert 0 < distance < 0.1
