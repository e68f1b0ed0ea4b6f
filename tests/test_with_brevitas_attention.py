"""Brevitas' attention by a method, where Brevitas is installed: `make integrations` runs this."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from softq.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.integrations]
NONE = dict.fromkeys(("q_scaled_quant", "k_transposed_quant", "v_quant"))


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("brevitas")


def tensors() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return [torch.randn(2, heads, 9, 16) for heads in (4, 2, 2)]


def test_without_quantizers_it_is_softqs_own() -> None:
    torch = pytest.importorskip("torch")
    st = pytest.importorskip("softq.torch")
    quant_attention = pytest.importorskip("softq.torch.brevitas").QuantAttention

    q, k, v = tensors()
    mask = torch.rand(9, 9) < 0.7
    made = quant_attention(st.Attention(bits=3), **NONE)
    for options in ({"enable_gqa": True, "attn_mask": mask}, {"enable_gqa": True, "is_causal": True, "scale": 0.1}):
        expected = st.attention(q, k, v, bits=3, **options)
        assert torch.allclose(made(q, k, v, **options), expected, atol=1e-6)


def test_exact_between_the_quantizers_is_brevitas_own() -> None:
    torch = pytest.importorskip("torch")
    own_class = pytest.importorskip("brevitas.nn").QuantScaledDotProductAttention
    st = pytest.importorskip("softq.torch")
    quant_attention = pytest.importorskip("softq.torch.brevitas").QuantAttention

    q, k, v = tensors()
    mask = torch.rand(9, 9) < 0.7
    mask[3] = False
    # Both learn their scales from the first calls.
    own, made = own_class(attn_output_weights_quant=None), quant_attention(st.Attention("exact"))
    for module in (own, made):
        module(q, k, v, attn_mask=mask, enable_gqa=True)
        module.eval()
    expected = own(q, k, v, attn_mask=mask, enable_gqa=True)
    assert torch.allclose(made(q, k, v, attn_mask=mask, enable_gqa=True), expected, atol=1e-5)
    assert (expected - quant_attention(**NONE)(q, k, v, attn_mask=mask, enable_gqa=True)).abs().max() > 1e-3


def test_gradients_go_through() -> None:
    quant_attention = pytest.importorskip("softq.torch.brevitas").QuantAttention

    given = [x.requires_grad_() for x in tensors()]
    quant_attention()(*given, enable_gqa=True).square().sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() and x.grad.abs().max() > 0 for x in given)


def test_what_is_refused() -> None:
    byte = pytest.importorskip("brevitas.quant.scaled_int").Uint8ActPerTensorFloat
    quant_attention = pytest.importorskip("softq.torch.brevitas").QuantAttention

    with pytest.raises(UsageError, match="attn_output_weights_quant is given"):
        quant_attention(attn_output_weights_quant=byte)
    made = quant_attention().eval()
    # Brevitas has no handler for it, and sets no export mode then; who brings one is told.
    made.export_handler = SimpleNamespace(prepare_for_export=lambda _: None, attach_debug_info=lambda _: None)
    made.export_mode = True
    with pytest.raises(UsageError, match="Brevitas exports no"):
        made(*tensors(), enable_gqa=True)
