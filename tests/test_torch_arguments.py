"""softq.torch: whatever does not fit is one line, and tensors of odd shapes and devices are no error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from softq.errors import UsageError

torch = pytest.importorskip("torch")

import softq.torch as st  # noqa: E402

F = torch.nn.functional
X = torch.arange(20.0).reshape(4, 5).sin()
Q = torch.arange(64.0).reshape(1, 2, 4, 8).sin()
FOUR = torch.ones(1, 4, 4, 8)
PER_HEAD: dict[str, Any] = {"steps": "equal", "distance": "float", "r": "head"}


def attend(**more: Any) -> Any:
    return st.attention(**{"query": Q, "key": Q, "value": Q, **more})


def softmax_of(number: Any, scope: str = "site", **more: Any) -> Any:
    options = {**PER_HEAD, "r": scope}
    return st.Softmax(fitted={"r": number}, **options, **more)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: st.softmax(X.numpy()), "scores are a ndarray; expected floats"),
        (lambda: st.softmax(X, 2), r"dim is 2; scores are \(4, 5\)"),
        (lambda: st.softmax(X, -3), r"dim is -3; scores are \(4, 5\)"),
        (lambda: st.softmax(X, None), "dim is None"),  # pyright: ignore[reportArgumentType]
        (lambda: st.softmax(X, valid=torch.ones(4, 5)), r"valid is \(4, 5\) torch.float32; expected bool"),
        (lambda: st.softmax(X, valid=torch.ones(4, dtype=torch.bool)), r"valid is \(4,\) torch.bool; expected bool"),
        (lambda: st.softmax(X, valid=torch.ones(2, 4, 5, dtype=torch.bool)), r"that broadcasts to \(4, 5\)"),
        (lambda: attend(query=Q[0, 0, 0]), "expected floats with at least 2 axes"),
        (lambda: attend(query=Q.int(), key=Q.int()), r"query is \(1, 2, 4, 8\) torch.int32"),
        (lambda: attend(key=Q.half()), "expected query and key of one type"),
        (lambda: attend(key=Q[..., :6]), r"expected \[..., L, E\], \[..., S, E\] and \[..., S, D\]"),
        (lambda: attend(value=Q[..., :3, :]), r"expected \[..., L, E\], \[..., S, E\] and \[..., S, D\]"),
        (lambda: attend(query=Q[..., :0], key=Q[..., :0]), r"query is \(1, 2, 4, 0\)"),
        (lambda: attend(query=FOUR), "leading axes that broadcast, or enable_gqa"),
        (lambda: attend(query=FOUR[:, :3], enable_gqa=True), "3 heads of queries are no multiple of 2"),
        (lambda: attend(query=FOUR, value=Q[:, :0], enable_gqa=True), "4 heads of queries are no multiple of 0"),
        (lambda: st.attention(X, X, X, enable_gqa=True), "enable_gqa asks for an axis of heads"),
        (lambda: attend(attn_mask=torch.ones(4, 4, dtype=torch.int64)), "expected bool or floats that broadcast"),
        (lambda: attend(attn_mask=torch.ones(5, 1, 4, 4)), r"that broadcast to \(1, 2, 4, 4\)"),
        (lambda: attend(attn_mask=torch.ones(3, 4)), r"attn_mask is \(3, 4\) torch.float32"),
        # Each block would have taken some of these rows.
        (lambda: attend(attn_mask=torch.ones(9, 4), block=2), r"attn_mask is \(9, 4\) torch.float32"),
        (lambda: attend(dropout_p=-0.5), "dropout_p is -0.5; allowed is 0 to 1"),
        (lambda: attend(dropout_p=1.5), "dropout_p is 1.5; allowed is 0 to 1"),
        (lambda: attend(softcap=0.0), "softcap is 0.0; expected a number above 0"),
        (lambda: attend(softcap=math.nan), "softcap is nan; expected a number above 0"),
        (lambda: attend(block=2.5), "block is 2.5 with dropout_p=0.0"),
        (lambda: attend(sinks=torch.zeros(3)), r"sinks are \(3,\); expected one per head of scores \(1, 2, 4, 4\)"),
        (lambda: attend(sinks=torch.zeros(1)), "expected one per head"),
        (lambda: st.attention(X, X, X, sinks=torch.zeros(4)), "expected one per head"),
        (lambda: softmax_of(math.nan), "r is nan; expected one number per site, from 0.125 to 2048"),
        (lambda: softmax_of(-5.0), "r is -5.0; expected one number per site"),
        (lambda: softmax_of((1.0, 2.0)), r"r is \(1.0, 2.0\); expected one number per site"),
        (lambda: softmax_of(1.0, "head"), "r is 1.0; expected one number per head"),
        (lambda: softmax_of((), "head"), r"r is \(\); expected one number per head"),
        (lambda: softmax_of((1.0, 3.0), "head", dim=0)(torch.zeros(2, 2, 2)), "the softmax's axis has to be behind"),
        (
            lambda: st.weighing(fitted={"r": (1.0, 2.0), "first": (0.1,), "shift": (0.0, 0.0)}, r="head", first="head",
                                shift="head"),
            "fitted numbers are for another number of heads each",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        call()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("method", ["deferred-log", "exact"])
def test_transforms_of_torch_func_are_refused(method: str) -> None:
    def call(x: Any) -> Any:
        return st.softmax(x, method=method).square().sum()

    for transform in (torch.func.vmap, torch.func.grad, torch.func.jacrev):
        with pytest.raises(UsageError, match=r"runs under no transform of torch.func"):
            transform(call)(X)
    assert call(X).ndim == 0


def test_a_learned_number_that_is_none_is_said() -> None:
    module = softmax_of(1.0, learn=("r",))
    module.get_parameter("r").data.fill_(math.nan)
    with pytest.raises(UsageError, match="r is nan; expected one number per site"):
        module(X)


def test_numbers_per_head_hold_with_any_axis_behind_the_heads() -> None:
    scores = torch.randn(3, 2, 5, 6, generator=torch.Generator().manual_seed(0)) * 3
    one, other = (softmax_of((1.0, 3.0), "head", dim=dim) for dim in (-2, -1))
    assert torch.equal(one(scores), other(scores.mT).mT)
    assert not torch.equal(one(scores)[:, 0], softmax_of(3.0, dim=-2)(scores)[:, 0])
    assert torch.equal(one(scores)[:, 1], softmax_of(3.0, dim=-2)(scores)[:, 1])


def test_keys_and_values_may_have_other_numbers_of_heads() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, 5, 8) for heads in (4, 2, 1))
    wanted = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    torch.testing.assert_close(st.attention(query, key, value, enable_gqa=True, method="exact"), wanted)


@pytest.mark.parametrize("method", ["exact", "deferred-log", "i-exp", "top-k"])
def test_shapes_and_types_are_those_of_devices_without_memory(method: str) -> None:
    shape = torch.empty(3, 5, dtype=torch.float16, device="meta")
    assert st.softmax(shape, method=method).is_meta
    query = torch.empty(2, 3, 5, 8, device="meta")
    out = st.attention(query, query, query, is_causal=True, method=method)
    assert (out.shape, out.dtype, out.is_meta) == (query.shape, query.dtype, True)


@pytest.mark.parametrize("method", ["exact", "deferred-log"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4), (2, 1)])
def test_empty_and_single_rows(shape: tuple[int, ...], method: str) -> None:
    scores = torch.zeros(shape, requires_grad=True)
    found = st.softmax(scores, method=method)
    assert torch.equal(found, torch.softmax(scores, -1))
    found.sum().backward()
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(shape))


@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (3, 0)])
@pytest.mark.parametrize("block", [None, 2])
def test_attentions_without_queries_or_keys(queries: int, keys: int, block: int | None) -> None:
    query, key, value = (torch.ones(1, 2, n, 8, requires_grad=True) for n in (queries, keys, keys))
    out = st.attention(query, key, value, block=block)
    assert torch.equal(out, torch.zeros(1, 2, queries, 8))
    out.sum().backward()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (query, key, value))


def test_views_are_as_their_copies() -> None:
    torch.manual_seed(0)
    wide = torch.randn(2, 4, 6, 16)
    query, key, value = wide[..., ::2].transpose(1, 2), wide[:1, :, :, 8:].mT.mT.transpose(1, 2), wide[..., 8:].mT.mT
    value = value.transpose(1, 2)
    mask = (torch.arange(4) < 3).expand(4, 4)
    found = st.attention(query, key.expand(2, -1, -1, -1), value, mask)
    wanted = st.attention(*(x.contiguous() for x in (query, key.repeat(2, 1, 1, 1), value, mask)))
    torch.testing.assert_close(found, wanted)
    assert torch.equal(st.softmax(wide[:1].expand(3, 4, 6, 16), 1), st.softmax(wide[:1].repeat(3, 1, 1, 1), 1))
