"""softq.torch: softmaxes, attentions and their gradients beside torch's own, and modules that keep what was fitted."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import run

torch = pytest.importorskip("torch")

import softq.torch as st  # noqa: E402

F = torch.nn.functional

CURVE = {"r": (1.5, 2.5), "first": (0.4, 0.2), "shift": (0.0, 0.3), "slope": (0.2, 0.1)}
PER_HEAD: dict[str, Any] = dict.fromkeys(CURVE, "head")


@pytest.fixture
def qkv() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, h, n, 16, requires_grad=True) for h, n in ((6, 10), (3, 12), (3, 12)))
    return query, key, value


def with_gradients(attend: Callable[[], Any], inputs: tuple[Any, ...]) -> list[Any]:
    out = attend()
    weights = torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape).sin()
    return [out, *torch.autograd.grad((out * weights).sum(), inputs)]


def assert_all_close(found: list[Any], wanted: list[Any], tolerance: float = 2e-6) -> None:
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def masks() -> dict[str, dict[str, Any]]:
    torch.manual_seed(1)
    some = torch.rand(2, 1, 10, 12) < 0.7
    some[..., 0] = True
    return {
        "none": {}, "causal": {"is_causal": True}, "bool": {"attn_mask": some},
        "added": {"attn_mask": torch.randn(10, 12)},
        "empty": {"attn_mask": torch.arange(10)[:, None] > 2}, "scale": {"scale": 0.3},
    }  # fmt: skip


@pytest.mark.parametrize("mask", masks())
def test_the_exact_attention_is_torchs_with_its_gradients(mask: str, qkv: tuple[Any, Any, Any]) -> None:
    given = masks()[mask]
    wanted = with_gradients(lambda: F.scaled_dot_product_attention(*qkv, enable_gqa=True, **given), qkv)
    assert_all_close(with_gradients(lambda: st.attention(*qkv, enable_gqa=True, method="exact", **given), qkv), wanted)


@pytest.mark.parametrize("mask", masks())
def test_straight_through_the_gradient_of_the_scores_is_the_exact_softmaxs(
    mask: str, qkv: tuple[Any, Any, Any]
) -> None:
    given = masks()[mask]
    exact = with_gradients(lambda: F.scaled_dot_product_attention(*qkv, enable_gqa=True, **given), qkv)
    found = with_gradients(lambda: st.attention(*qkv, enable_gqa=True, bits=3, **given), qkv)
    assert_all_close(found[1:3], exact[1:3])
    # V was multiplied with other weights, and its gradient knows.
    assert not torch.allclose(found[3], exact[3], atol=1e-3)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_gradient_of_quantized_weights_is_the_jacobian_of_these_weights(
    dropout: float, qkv: tuple[Any, Any, Any]
) -> None:
    query, key, value = qkv
    method = METHODS.get("deferred-log")
    program = method.program(method.resolve(method.configure({"bits": 2}), False))
    scores = (query @ key.repeat_interleave(2, 1).transpose(-2, -1) / 4).detach().requires_grad_()
    values = value.repeat_interleave(2, 1).detach().requires_grad_()
    ran = run(program, scores.detach().numpy())
    p = torch.from_numpy(np.divide(ran["weights"], ran["normalizer"], dtype=np.float32))
    torch.manual_seed(5)
    keep = F.dropout(torch.ones_like(scores), dropout)
    upstream = torch.randn(2, 6, 10, 16)
    torch.manual_seed(5)
    # The identity as queries and the scores as keys: products are the scores themselves.
    identity = torch.eye(10).expand(2, 6, 10, 10)
    out = st.attention(identity, scores.transpose(-2, -1), values, scale=1.0, dropout_p=dropout, bits=2,
                       backward="quantized")  # fmt: skip
    torch.testing.assert_close(out, (p * keep) @ values, rtol=1e-5, atol=1e-6)
    of_scores, of_values = torch.autograd.grad(out, (scores, values), upstream)
    of_p = upstream @ values.transpose(-2, -1) * keep
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    torch.testing.assert_close(of_scores, (jacobian @ of_p[..., None])[..., 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(of_values, (p * keep).transpose(-2, -1) @ upstream, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("backward", ["float", "quantized"])
def test_in_blocks_of_queries_it_is_the_same(mask: str, backward: Any, qkv: tuple[Any, Any, Any]) -> None:
    given: dict[str, Any] = {"enable_gqa": True, "bits": 3, "backward": backward, **masks()[mask]}
    wanted = with_gradients(lambda: st.attention(*qkv, **given), qkv)
    found = with_gradients(lambda: st.attention(*qkv, block=4, **given), qkv)
    assert_all_close(found, wanted, 1e-5)


def test_in_blocks_sinks_and_what_is_learned_have_their_gradients() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 2, 9, 8, requires_grad=True) for _ in range(3)]
    sinks = torch.randn(2, requires_grad=True)
    module = st.Attention(method="ssmax", s="head", fitted={"s": (0.4, 0.5)}, learn=("s",))
    every = (*inputs, sinks, *module.parameters())
    whole, blocks = (
        with_gradients(lambda: st.attention(*inputs, is_causal=True, method=module.method, sinks=sinks, block=block),  # noqa: B023
                       every) for block in (None, 4)
    )  # fmt: skip
    assert_all_close(blocks, whole, 1e-5)


@pytest.mark.parametrize("backward", ["float", "quantized"])
def test_in_blocks_the_gradient_is_computed_again_in_the_types_of_the_call(
    backward: Any, qkv: tuple[Any, Any, Any]
) -> None:
    def attend(block: int | None) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return st.attention(*qkv, enable_gqa=True, bits=2, backward=backward, block=block).float()

    # One step of bfloat16 is 2^-8; another code would be a multiple of that.
    assert_all_close(with_gradients(lambda: attend(4), qkv), with_gradients(lambda: attend(None), qkv), 2**-7)
    long = [torch.randn(1, 512, 8).bfloat16().requires_grad_() for _ in range(3)]
    whole, blocks = (torch.autograd.grad(st.attention(*long, block=block).sum(), long) for block in (None, 2))
    for mine, other in zip(blocks, whole, strict=True):
        # A sum of 256 parts in bfloat16 is off by several percent.
        assert float((mine - other).float().norm()) < 2**-7 * float(other.float().norm())


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("backward", ["float", "quantized"])
def test_what_stands_for_a_derivative_has_none(block: int | None, backward: Any, qkv: tuple[Any, Any, Any]) -> None:
    out = st.attention(*qkv, enable_gqa=True, backward=backward, block=block)
    (first,) = torch.autograd.grad(out.square().sum(), qkv[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()


LONG = """
import resource
import torch
import softq.torch as st

torch.set_num_threads(1)
torch.manual_seed(0)
length = 16384
query, key, value = (torch.randn(1, 1, length, 16, requires_grad=True) for _ in range(3))
# The first call takes what is needed once; a whole matrix of float32 alone is 1 GiB.
st.attention(query[..., :64, :], key[..., :64, :], value[..., :64, :], block=16).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = st.attention(query, key, value, is_causal=True, block=128)
out.sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
rows = slice(8000, 8004)
allowed = torch.arange(length) <= torch.arange(8000, 8004)[:, None]
torch.testing.assert_close(
    out[..., rows, :], st.attention(query[..., rows, :], key, value, allowed), rtol=1e-5, atol=1e-5
)
"""


@pytest.mark.slow
def test_long_contexts_need_no_matrix_of_scores() -> None:
    pytest.importorskip("resource")
    # By itself: what other tests left in the allocator's hands does not count.
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 3 << 18  # KiB: three quarters of the matrix


def test_cap_and_sinks_are_those_of_the_models_that_have_them(qkv: tuple[Any, Any, Any]) -> None:
    query, key, value = qkv
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    sinks = torch.randn(6, requires_grad=True)

    def written() -> Any:
        scores = 2.0 * torch.tanh(query @ key.transpose(-2, -1) / 4 / 2.0)
        beside = torch.cat([scores, sinks.reshape(1, -1, 1, 1).expand(2, 6, 10, 1)], -1)
        return torch.softmax(beside, -1)[..., :-1] @ value

    inputs = (*qkv, sinks)
    wanted = with_gradients(written, inputs)
    for backward in ("exact", "float"):
        found = with_gradients(
            lambda: st.attention(
                query, key, value, method="exact", softcap=2.0, sinks=sinks, backward=cast("Any", backward)  # noqa: B023
            ), inputs,
        )  # fmt: skip
        assert_all_close(found, wanted)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_a_softmax_goes_along_any_axis(dim: int) -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5, 7, requires_grad=True)
    assert_all_close(
        with_gradients(lambda: st.softmax(scores, dim, method="exact"), (scores,)),
        with_gradients(lambda: torch.softmax(scores, dim), (scores,)),
    )
    valid = torch.rand(3, 5, 7) < 0.5
    masked = st.softmax(scores, dim, valid=valid, bits=3)
    assert bool((masked[~valid] == 0).logical_or(masked[~valid].isnan()).all())
    # A row without a valid element has no softmax.
    assert bool(masked.isnan().any(dim).eq(~valid.any(dim)).all())


def test_half_precision_and_autocast_have_the_types_that_torch_gives(qkv: tuple[Any, Any, Any]) -> None:
    halves = [x.detach().half() for x in qkv]
    assert st.attention(*halves, enable_gqa=True).dtype is torch.float16
    assert st.softmax(halves[0]).dtype is torch.float16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, own = (attend(*qkv, enable_gqa=True) for attend in (st.attention, F.scaled_dot_product_attention))
    assert found.dtype is own.dtype is torch.bfloat16
    torch.testing.assert_close(found, own, rtol=0.2, atol=0.1)
    # Weights of many bits, summed over many keys, are more than float16 holds.
    long = torch.zeros(1, 1, 1000, 8, dtype=torch.float16)
    assert bool(st.attention(long, long, long + 1).eq(1).all())


def test_codes_are_those_of_the_interpreter_for_each_head() -> None:
    made = st.weighing("deferred-log", fitted=CURVE, **PER_HEAD)
    scores = torch.randn(3, 2, 5, 30) * 3
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure(PER_HEAD), True)
    wanted = run(method.program(options), scores.numpy(), params=method.parameters(options, CURVE))
    expected = np.divide(wanted["weights"], wanted["normalizer"])
    np.testing.assert_allclose(st.softmax(scores, method=made).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [st.Softmax, st.Attention])
def test_a_module_keeps_its_fitted_numbers(kind: Any, tmp_path: Any) -> None:
    made = kind(method="deferred-log", fitted=CURVE, **PER_HEAD)
    torch.save(made.state_dict(), tmp_path / "state.pt")
    other = kind(method="deferred-log", fitted={k: v[::-1] for k, v in CURVE.items()}, **PER_HEAD)
    inputs = [torch.randn(2, 2, 6, 6) * 3 for _ in range(1 if kind is st.Softmax else 3)]
    assert not torch.equal(made(*inputs), other(*inputs))
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(made(*inputs), other(*inputs))
    assert torch.equal(made(*inputs), copy.deepcopy(made)(*inputs))
    assert torch.equal(made(*inputs), pickle.loads(pickle.dumps(made))(*inputs))
    assert "deferred-log, bits=4" in repr(made)


@pytest.mark.parametrize("learn", [(), ("r",)])
def test_a_module_made_without_memory_has_what_it_loads(learn: tuple[str, ...]) -> None:
    made = st.Softmax(fitted=CURVE, learn=learn, **PER_HEAD)
    with torch.device("meta"):
        other = st.Softmax(fitted={k: v[::-1] for k, v in CURVE.items()}, learn=learn, **PER_HEAD)
    other.load_state_dict(made.state_dict(), assign=True)
    scores = torch.randn(2, 2, 6, 6) * 3
    assert torch.equal(other(scores), made(scores))
    assert other.fitted() == made.fitted()


def test_a_model_in_half_precision_keeps_the_numbers_of_its_methods() -> None:
    module = st.Softmax(method="consmax", beta="head", gamma="site", fitted={"beta": (1.003, 2.0), "gamma": 50.77},
                        learn=("beta",))  # fmt: skip
    scores = torch.randn(2, 2, 5, 5)
    wanted = module(scores)
    assert torch.equal(torch.nn.Sequential(module).bfloat16()(scores), wanted)


def test_what_is_learned_moves_and_stays_within_its_limits() -> None:
    module = st.Softmax(method="consmax", beta="head", gamma="site", fitted={"beta": (1.0, 2.0), "gamma": 50.0},
                        learn=("beta", "gamma"))  # fmt: skip
    optimizer = torch.optim.SGD(module.parameters(), lr=1000.0)
    scores = torch.randn(4, 2, 5, 5)
    module(scores).sum().backward()
    assert all(p.grad is not None and bool(p.grad.ne(0).all()) for p in module.parameters())
    optimizer.step()
    fitted = module.fitted()
    assert fitted["gamma"] != 50.0
    assert isinstance(fitted["beta"], tuple)
    # The plan's numbers give the same softmax.
    again = st.Softmax(method="consmax", beta="head", gamma="site", fitted=fitted)
    torch.testing.assert_close(again(scores), module(scores).detach())


LEARNED = [
    ({"r": "head", "first": "head", "shift": "head", "slope": "head"}, CURVE, ("r", "first")),
    ({"r": "site", "steps": "equal", "distance": "float"}, {"r": 1.5}, ("r",)),
]


@pytest.mark.parametrize(("settings", "fitted", "learn"), LEARNED, ids=["per head", "site"])
@pytest.mark.parametrize("block", [None, 5])
def test_the_gradient_of_a_learned_curve_is_the_slope_of_the_loss(
    settings: Any, fitted: Any, learn: Any, block: int | None
) -> None:
    generator = torch.Generator().manual_seed(3)
    query, key, value, wanted = (torch.randn(8, 2, 64, 16, generator=generator).double().float() for _ in range(4))
    module = st.Attention(method="deferred-log", bits=3, fitted=fitted, learn=learn, **settings)

    def loss() -> Any:
        return (module(query * 3, key, value, block=block) * wanted).sum()

    loss().backward()
    for name in learn:
        number = module.get_parameter(name)
        assert number.grad is not None
        # Independent of the formula: the loss for one number, of one head, a little below and above.
        for at in range(number.numel()):
            here, ends = number.detach().flatten()[at].item(), []
            reach = max(abs(here), 1.0) / 16
            for side in (-reach, reach):
                with torch.no_grad():
                    number.view(-1)[at] = here + side
                    ends.append(loss().item())
                    number.view(-1)[at] = here
            slope = (ends[1] - ends[0]) / (2 * reach)
            assert number.grad.flatten()[at].item() == pytest.approx(slope, rel=1e-3, abs=1e-2), name


def test_a_softmax_learns_its_curve_and_says_it_as_plans_do() -> None:
    scores = torch.randn(4, 2, 40, 40, generator=torch.Generator().manual_seed(5)) * 3
    module = st.Softmax(method="deferred-log", bits=4, r="head", steps="equal", distance="float",
                        fitted={"r": (4.0, 0.3)}, learn=("r",))  # fmt: skip
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    errors: list[float] = []
    for _ in range(60):
        error = (module(scores) - torch.softmax(scores, -1)).square().sum()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    # 15 steps of 1 / r octaves: neither a range of 4 octaves nor steps of 3 are good.
    assert errors[-1] < errors[0] / 4
    fitted = module.fitted()
    again = st.Softmax(method="deferred-log", bits=4, r="head", steps="equal", distance="float", fitted=fitted)
    assert torch.equal(again(scores), module(scores))
    module.get_parameter("r").data.fill_(-3.0)
    assert module.fitted()["r"] == (0.125, 0.125)


def test_a_number_beyond_its_limit_finds_its_way_back() -> None:
    module = st.Softmax(method="consmax", beta="site", gamma="site", fitted={"beta": 1.0, "gamma": 50.0},
                        learn=("gamma",))  # fmt: skip
    module.get_parameter("gamma").data.fill_(-5.0)
    module(torch.randn(3, 5)).sum().backward()
    gradient = module.get_parameter("gamma").grad
    assert gradient is not None
    # A sum that is to be less asks for more gamma.
    assert gradient.item() < 0
    assert module.fitted() == {"beta": 1.0, "gamma": 2.0**-20}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: st.softmax(x, method="softmax"), "softmax"),
        (lambda x: st.softmax(x, bits=99), "bits"),
        (lambda x: st.softmax(x.int()), "expected floats"),
        (lambda x: st.softmax(x, backward="exact"), "deferred-log rounds"),
        (lambda x: st.softmax(x, backward=cast("Any", "none")), "allowed are auto, float, quantized, exact"),
        (lambda x: st.softmax(x, method=st.weighing(), bits=3), "give them to weighing"),
        (lambda x: st.weighing("deferred-log", r="site", fitted={}), "fitted numbers are given for"),
        (lambda x: st.attention(x, x, x, attn_mask=x > 0, is_causal=True), "expected one of them"),
        (lambda x: st.attention(x, x, x, block=0), "at least 1 query"),
        (lambda x: st.attention(x, x, x, block=1, dropout_p=0.1), "no dropout"),
        (lambda x: st.attention(x.expand(4, 4, 4), *[x.expand(3, 4, 4)] * 2, enable_gqa=True), "no multiple of 3"),
        (lambda x: st.Softmax(method="ssmax", s="head", fitted={"s": (0.4, 0.5)})(x), "for 2 heads; scores are"),
        (lambda x: st.Softmax(method="deferred-log", learn=("r",)), "r cannot be learned"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(torch.zeros(4, 4))


@pytest.mark.slow
def test_a_compiled_attention_has_no_break_and_the_same_gradients(qkv: tuple[Any, Any, Any]) -> None:
    made = st.weighing(bits=3)

    def attend() -> Any:
        return st.attention(*qkv, is_causal=True, enable_gqa=True, method=made)

    compiled = torch.compile(attend, fullgraph=True)
    assert_all_close(with_gradients(compiled, qkv), with_gradients(attend, qkv))
