"""softq.torch.flex_attention beside the attention that holds all scores, on scores that are exact in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from softq.errors import RefusalError, UsageError
from softq.methods import METHODS

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

import softq.torch as st  # noqa: E402
import softq.torch.flex  # noqa: E402
from softq.torch.elements import elements_of  # noqa: E402

N = 150
CURVE = {"r": (1.5, 2.5, 1.0, 2.0), "first": (0.4, 0.2, 0.1, 0.3), "shift": (0.0, 0.3, 0.1, 0.2),
         "slope": (0.2, 0.1, 0.0, 0.3)}  # fmt: skip
PER_HEAD: dict[str, Any] = dict.fromkeys(CURVE, "head")
STATEFUL = ("deferred-log-octaves", "deferred-log-online", "edge-moe", "exact-online", "two-pass")
IN_GROUPS = ("mxfp4", "mxfp8", "nvfp4")


def given(length: int = N, heads: int = 4, keys: int = 2) -> tuple[Any, Any, Any]:
    """Small multiples of powers of 2: sums of their products have no roundings, so that codes are the same."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((heads, 2), (keys, 4), (keys, 4))
    query, key, value = (
        torch.randint(-4, 5, (2, h, length, 16), generator=generator) / divisor for h, divisor in sizes
    )
    return query, key, value


def window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 40) & (i != 7)


def sloped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score - (i - j).abs() * (h + 1) / 64


def dense_parts() -> tuple[Any, Any]:
    i, j = torch.arange(N)[:, None], torch.arange(N)
    return window(None, None, i, j), -(i - j).abs() * torch.arange(1, 5)[:, None, None] / 64


def assert_close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert float(wanted.std()) > 0.001


def test_masks_biases_groups_and_numbers_per_head_are_those_of_the_attention() -> None:
    query, key, value = given()
    allowed, bias = dense_parts()
    mask = flex.create_block_mask(window, None, None, N, N, device="cpu", BLOCK_SIZE=32)
    made = st.weighing("deferred-log", fitted=CURVE, **PER_HEAD)
    found = st.flex_attention(query, key, value, sloped, mask, enable_gqa=True, method=made)
    added = bias.masked_fill(~allowed, -math.inf)
    assert_close(found, st.attention(query, key, value, added, enable_gqa=True, method=made))
    # One query sees nothing.
    assert bool(found[..., 7, :].eq(0).all())
    other = st.weighing("deferred-log", fitted={k: v[::-1] for k, v in CURVE.items()}, **PER_HEAD)
    assert float((found - st.attention(query, key, value, added, enable_gqa=True, method=other)).abs().max()) > 1e-3


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("method", [name for name in METHODS.entries() if name not in STATEFUL + IN_GROUPS])
def test_every_method_is_that_of_the_attention_without_a_compiler(
    method: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softq.torch.flex, "_compiled", lambda *_: flex.flex_attention)
    query, key, value = given()
    mask = flex.create_block_mask(window, None, None, N, N, device="cpu", BLOCK_SIZE=32) if masked else None
    made = st.weighing(method)

    def attend() -> Any:
        return st.flex_attention(query, key, value, None, mask, enable_gqa=True, method=made)

    wanted = st.attention(query, key, value, dense_parts()[0] if masked else None, enable_gqa=True, method=made)
    if method == "bias-corrected":
        with pytest.raises(RefusalError, match="bias-corrected has weights below 0"):
            attend()
    else:
        assert_close(attend(), wanted)


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in METHODS.entries() if name not in (*STATEFUL, *IN_GROUPS, "bias-corrected")),
    *(("deferred-log", {"bits": bits}) for bits in (2, 3, 8)), ("deferred-log", {"rest": "mean"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("method", "settings"), SETTINGS, ids=str)
def test_a_method_is_that_of_the_attention(method: str, settings: dict[str, Any]) -> None:
    query, key, value = given()
    made = st.weighing(method, **settings)
    assert_close(st.flex_attention(query, key, value, enable_gqa=True, method=made),
                 st.attention(query, key, value, enable_gqa=True, method=made))  # fmt: skip


@pytest.mark.slow
def test_half_precision_has_weights_in_single() -> None:
    query, key, value = given()
    found = st.flex_attention(*(x.bfloat16() for x in (query, key, value)), enable_gqa=True, bits=3)
    assert found.dtype is torch.bfloat16
    wanted = st.attention(query, key, value, enable_gqa=True, bits=3)
    # A step of bfloat16 is 2^-8: weights are rounded for the product, and the result once more.
    torch.testing.assert_close(found.float(), wanted, rtol=2**-6, atol=2**-7)


@pytest.mark.slow
def test_what_is_no_number_makes_its_row_none() -> None:
    query, key, value = given()
    query[0, 1, 5, 3] = math.nan
    found = st.flex_attention(query, key, value, enable_gqa=True, bits=3)
    assert bool(found[0, 1, 5].isnan().all())
    found[0, 1, 5] = 0
    assert bool(found.isfinite().all())


def causal_blocks(length: int, block: int) -> Any:
    """Return the causal mask; `create_block_mask` would hold a matrix."""
    count = torch.arange(1, length // block + 1, dtype=torch.int32)
    indices = torch.arange(length // block, dtype=torch.int32).expand(len(count), -1).contiguous()
    return flex.BlockMask.from_kv_blocks(
        count[None, None], indices[None, None], BLOCK_SIZE=block, mask_mod=lambda b, h, i, j: i >= j,
        seq_lengths=(length, length),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_long_contexts_need_no_matrix_of_scores(causal: bool) -> None:
    resource = pytest.importorskip("resource")
    length = 16384

    def attend(n: int) -> tuple[tuple[Any, Any, Any], Any]:
        tensors = tuple(x[:1] for x in given(n, 1, 1))
        return tensors, st.flex_attention(*tensors, block_mask=causal_blocks(n, 128) if causal else None, bits=3)

    # The first call takes what is needed once: the compiler, above all. A matrix of float32 alone is 1 GiB.
    attend(512)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (query, key, value), found = attend(length)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
    with torch.no_grad():
        assert_close(found, st.attention(query, key, value, is_causal=causal, bits=3, block=128))


def test_what_every_element_needs_is_told_from_what_a_row_has() -> None:
    elements = elements_of("deferred-log", st.weighing("deferred-log").options)
    assert [[node.op for node in sweep.reductions] for sweep in elements.sweeps] == [["row_max", "row_max"]]
    assert not elements.normalized
    for name in STATEFUL:
        with pytest.raises(RefusalError, match=r"carries a state from key to key.*attention\(block=...\)"):
            elements_of(name, st.weighing(name).options)
    for name in IN_GROUPS:
        with pytest.raises(RefusalError, match=r"maxima over groups of keys.*attention\(block=...\)"):
            elements_of(name, st.weighing(name).options)


def mask_of(queries: int, keys: int, heads: int | None = None) -> Any:
    return flex.create_block_mask(lambda b, h, q, k: q >= k, None, heads, queries, keys, device="cpu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v: st.flex_attention(q.requires_grad_(), k, v, enable_gqa=True), "has no gradient"),
        (lambda q, k, v: st.flex_attention(q[0], k, v), "expected .batch, heads, N, E."),
        (lambda q, k, v: st.flex_attention(q, k, v, method=st.weighing(), bits=3), "give them to weighing"),
        (lambda q, k, v: st.flex_attention(q, k, v, method="none-such"), "none-such"),
        (lambda q, k, v: st.flex_attention(q, k, v), "expected leading axes that broadcast, or enable_gqa"),
        (lambda q, k, v: st.flex_attention(q.int(), k.int(), v, enable_gqa=True), "torch.int32"),
        # The kernel would read behind the values.
        (lambda q, k, v: st.flex_attention(q, k, v[:, :, :3], enable_gqa=True), r"expected \[..., L, E\]"),
        (lambda q, k, v: st.flex_attention(q, k, v[:, :1], enable_gqa=True), "keys as many as values"),
        (lambda q, k, v: st.flex_attention(q, k, v, block_mask=mask_of(7, 8), enable_gqa=True), "block_mask is"),
        (lambda q, k, v: st.flex_attention(q, k, v, block_mask=mask_of(8, 9), enable_gqa=True), "block_mask is"),
        (lambda q, k, v: st.flex_attention(q, k, v, block_mask=mask_of(8, 8, 3), enable_gqa=True), "block_mask is"),
        (
            lambda q, k, v: st.flex_attention(
                q, k, v, enable_gqa=True,
                method=st.Attention(bits=3, r="site", steps="equal", distance="float", fitted={"r": 1.0},
                                    learn=("r",)).method,
            ),
            "flex_attention has no gradient",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_a_line(call: Callable[..., Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(*given(8))


@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (3, 0)])
def test_without_queries_or_keys_there_is_nothing_to_compile(queries: int, keys: int) -> None:
    query, key = torch.ones(1, 2, queries, 8), torch.ones(1, 2, keys, 8)
    assert torch.equal(st.flex_attention(query, key, key), torch.zeros(1, 2, queries, 8))


@pytest.mark.slow
def test_under_autocast_it_is_the_attention_of_halves() -> None:
    query, key, value = given()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = (attend(query, key, value, enable_gqa=True, bits=3)
                         for attend in (st.flex_attention, st.attention))  # fmt: skip
    assert found.dtype is wanted.dtype is torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=2**-6, atol=2**-7)


def test_without_a_compiler_it_is_refused() -> None:
    with (
        torch._inductor.config.patch({"cpp.cxx": ("/no/such/compiler",), "force_disable_caches": True}),
        pytest.raises(RefusalError, match=r"torch.compile makes no flex_attention here \([^\n]+$"),
    ):
        st.flex_attention(*given(24), enable_gqa=True, bits=5)
