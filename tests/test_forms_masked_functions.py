"""Functions with a mask inside: what it hides gets no weight, wherever the graph strikes it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import softq
from softq.explanation import explain
from tests.forms import run
from tests.test_forms_functions import SIZE, SUM, feed, model

HIDE = "nil = 0.0; p = Where(keep, a, nil); "
OVER_SUM = "eps = 1e-8; " + SUM.format("p")

# What is written, the method, and what is hidden where all of a row is.
CASES: dict[str, tuple[str, str, str]] = {
    "softplus": ("a = Softplus(x); " + HIDE + OVER_SUM, "softplus", "zero"),
    "softplus-struck-out-by-a-product": (
        "a = Softplus(x); c = Cast<to = 1>(keep); p = Mul(a, c); " + OVER_SUM, "softplus", "zero",
    ),
    "softplus-hidden-where-true": (
        "a = Softplus(x); other = Not(keep); nil = 0.0; p = Where(other, nil, a); " + OVER_SUM, "softplus", "zero",
    ),
    "softplus-of-hidden-scores": (
        "out = -inf; a = Where(keep, x, out); p = Softplus(a); " + OVER_SUM, "softplus", "zero",
    ),
    "relu": ("a = Relu(x); " + HIDE + "t = ReduceL1[-1](p); least = 1e-12; u = Clip(t, least); w = Div(p, u)", "relu",
             "zero"),
    "relu-length": ("a = Relu(x); n = 9.0; p = Div(a, n); nil = 0.0; w = Where(keep, p, nil)", "relu", "zero"),
    "sigmoid": ("p = Sigmoid(x); nil = 0.0; w = Where(keep, p, nil)", "sigmoid", "zero"),
    "exponentials": ("b = 2.0; z = Sub(x, b); a = Exp(z); " + HIDE + "g = 100.0; w = Div(p, g)", "consmax", "zero"),
    "taylor": ("h = 0.5; c = 1.0; s = Mul(x, x); q = Mul(s, h); b = Add(x, c); a = Add(b, q); " + HIDE
               + "t = ReduceSum[-1](p); w = Div(p, t)", "taylor", "nan"),
    "softpick": (
        "m = ReduceMax[-1](x); nm = Neg(m); one = Exp(nm); z = Sub(x, m); e = Exp(z); "
        "d = Sub(e, one); r0 = Relu(d); a0 = Abs(d); nil = 0.0; r = Where(keep, r0, nil); a = Where(keep, a0, nil); "
        "t = ReduceSum[-1](a); eps = 0.01; u = Add(t, eps); w = Div(r, u)", "softpick", "",
    ),
}  # fmt: skip
RANKS = {"square": f"bool[{SIZE}, {SIZE}] keep", "keys": f"bool[2, 1, 1, {SIZE}] keep"}


def masks(rank: str) -> list[NDArray[np.bool_]]:
    if rank == "keys":
        some = np.random.default_rng(0).random((2, 1, 1, SIZE)) < 0.6
        some[1] = False
        return [some]
    causal = np.tril(np.ones((SIZE, SIZE), np.bool_))
    holes = causal.copy()
    holes[4] = False
    return [causal, holes]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_the_mask_is_the_method_s(name: str, rank: str) -> None:
    body, method, row = CASES[name]
    made = model(body, given=RANKS[rank])
    (site,) = softq.inspect(made, method=method)
    assert (site.form, site.mask, site.masked_row, site.verdict.action) == ("written-function", "where", row, "convert")
    result = softq.convert(made, method=method)
    onnx.checker.check_model(result.model, full_check=True)
    (call,) = [node for node in result.model.graph.node if node.domain == "softq"]
    assert call.op_type.endswith("_valid")
    left = {node.op_type for node in result.model.graph.node} - {call.op_type}
    assert left <= {"Transpose", "MatMul", "Mul", "Div", "Constant", "Not", "Where", "Greater"}, left
    for seed, keep in enumerate(masks(rank)):
        given = {**feed(seed), "keep": keep}
        (got,), (want,) = run(result.model, given), run(made, given)
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.nanmax(np.abs(want)))
    assert softq.convert(made, plan=result.plan).model == result.model
    assert "becomes the method's mask" in explain(made, site.id, method=method).mask


@pytest.mark.parametrize("kind", [np.bool_, np.float32])
def test_a_mask_that_is_a_constant(kind: type[np.generic]) -> None:
    """Of booleans, and of zeros and ones that the weights are multiplied by."""
    body = CASES["softplus"][0] if kind is np.bool_ else "a = Softplus(x); p = Mul(a, keep); " + OVER_SUM
    made = model(body, given=RANKS["square"])
    (causal, _) = masks("square")
    made.graph.initializer.append(onnx.numpy_helper.from_array(causal.astype(kind), "keep"))
    del made.graph.input[3]
    result = softq.convert(made, method="softplus")
    assert [planned.method for planned in result.plan.sites] == ["softplus"]
    (got,), (want,) = run(result.model, feed()), run(made, feed())
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


def test_rows_of_any_length() -> None:
    made = model(CASES["softplus"][0], given="bool[n, n] keep")
    for value in (*made.graph.input[:3], *made.graph.output):
        value.type.tensor_type.shape.dim[2].dim_param = "n"
    result = softq.convert(made, method="softplus")
    assert [planned.method for planned in result.plan.sites] == ["softplus"]
    rng = np.random.default_rng(0)
    given = {
        **{name: rng.normal(size=(2, 3, 14, 4)).astype(np.float32) for name in "QKV"},
        "keep": np.tril(np.ones((14, 14), np.bool_)),
    }
    (got,), (want,) = run(result.model, given), run(made, given)
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


SOFTPLUS = CASES["softplus"][0]
NEAR = {
    "hidden-in-the-sum-alone": "a = Softplus(x); nil = 0.0; k = Where(keep, a, nil); t = ReduceSum[-1](k); eps = 1e-8; "
                               "u = Add(t, eps); w = Div(a, u)",
    "summed-all-the-same": "p = Softplus(x); t = ReduceSum[-1](p); eps = 1e-8; u = Add(t, eps); q = Div(p, u); "
                           "nil = 0.0; w = Where(keep, q, nil)",
    "hidden-is-not-nothing": SOFTPLUS.replace("nil = 0.0", "nil = 0.001"),
    "its-maximum-sees-the-hidden": CASES["softpick"][0],
    "taken-away-by-half": "a = Softplus(x); c = Cast<to = 1>(keep); h = 0.5; ch = Mul(c, h); d = Add(ch, h); "
                          "p = Mul(a, d); " + OVER_SUM,
    "over-the-row-s-length": "a = Softplus(x); nil = 0.0; p = Where(keep, a, nil); w = ReduceMean[-1](p)",
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_what_differs_is_none(name: str) -> None:
    assert not [site for site in softq.inspect(model(NEAR[name], given=RANKS["square"])) if site.function is not None]


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
def test_as_torch_exports_them(exporter: str) -> None:
    import io

    torch = pytest.importorskip("torch")
    functional: Any = torch.nn.functional

    def over_sum(w: Any) -> Any:
        return w / (w.sum(-1, keepdim=True) + 1e-6)

    def tril(x: Any) -> Any:
        return torch.tril(torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool))

    functions: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
        "filled": ("softplus", lambda x, keep: over_sum(functional.softplus(x).masked_fill(~keep, 0.0))),
        "chosen": ("softplus", lambda x, _: over_sum(torch.where(tril(x), functional.softplus(x), 0.0))),
        "cast": ("softplus", lambda x, keep: over_sum(functional.softplus(x) * keep.to(x.dtype))),
        "floats": ("softplus", lambda x, _: over_sum(functional.softplus(x) * torch.tril(torch.ones(SIZE, SIZE)))),
        "normalized": ("relu", lambda x, keep: functional.normalize(functional.relu(x) * keep, p=1, dim=-1)),
        "sigmoid": ("sigmoid", lambda x, keep: torch.sigmoid(x - 2.0).masked_fill(~keep, 0.0)),
    }
    for name, (method, function) in functions.items():

        class Attention(torch.nn.Module):
            def __init__(self, function: Callable[[Any, Any], Any]) -> None:
                super().__init__()
                self.function = function
                self.register_buffer("keep", torch.from_numpy(masks("square")[0]))

            def forward(self, q: Any, k: Any, v: Any) -> Any:
                return self.function(q @ k.transpose(-1, -2) * 0.5, self.keep) @ v

        arguments = tuple(torch.from_numpy(array) for array in feed().values())
        if exporter == "dynamo":
            made = torch.onnx.export(Attention(function).eval(), arguments, dynamo=True, verbose=False).model_proto
        else:
            held = io.BytesIO()
            torch.onnx.export(Attention(function).eval(), arguments, held, opset_version=18, dynamo=False)
            made = onnx.load_from_string(held.getvalue())
        result = softq.convert(made, method=method)
        assert [planned.method for planned in result.plan.sites] == [method], name
        given = dict(zip([value.name for value in made.graph.input], feed(3).values(), strict=True))
        (got,), (want,) = run(result.model, given), run(made, given)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())


def test_two_masks_are_none() -> None:
    made = model(
        "a = Softplus(x); nil = 0.0; b = Where(keep, a, nil); p = Where(also, b, nil); " + OVER_SUM,
        given=f"bool[{SIZE}, {SIZE}] keep, bool[{SIZE}, {SIZE}] also",
    )
    assert not [site for site in softq.inspect(made) if site.function is not None]
