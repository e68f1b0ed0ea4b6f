"""The softmax of the k greatest scores as graphs write it: by a threshold, and by scattering the values of TopK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import softq
from softq.errors import UsageError
from softq.methods import METHODS
from tests.forms import run
from tests.rowhost import everywhere
from tests.test_forms_functions import SIZE, expected, feed, model, of_any_length
from tests.test_method_functions import kernel_of, probabilities, softmax, top_k
from tests.test_methods import default_program

K = 4
TOP = f"k = [{K}]; v, i = TopK<axis = -1>(x, k); "
LEAST = f"from = [{K - 1}]; to = [{K}]; last = [-1]; least = Slice(v, from, to, last); "
ZEROS = "s = Shape(x); zeros = ConstantOfShape(s); "
THRESHOLD = TOP + LEAST + "below = Less(x, least); out = -inf; z = Where(below, out, x); w = Softmax<axis = -1>(z)"

# What is written, and which of equal elements are kept.
SOFTMAX_LAST: dict[str, tuple[str, str]] = {
    "threshold": (THRESHOLD, "all"),
    "threshold-gathered": (
        TOP + f"n = Constant<value_int = {K - 1}>(); g = Gather<axis = -1>(v, n); least = Unsqueeze[-1](g); "
        "keep = GreaterOrEqual(x, least); out = -inf; z = Where(keep, x, out); w = Softmax<axis = -1>(z)", "all",
    ),
    "threshold-least": (
        TOP + "least = ReduceMin[-1](v); below = Less(x, least); out = -inf; z = Where(below, out, x); "
        "w = Softmax<axis = -1>(z)", "all",
    ),
    "threshold-of-all-sorted": (
        THRESHOLD.replace(TOP, f"k = [{SIZE}]; v, i = TopK<axis = -1>(x, k); "), "all",
    ),
    "scattered-into-minus-infinity": (
        TOP + "s = Shape(x); o = -inf; out = Expand(o, s); z = ScatterElements<axis = -1>(out, i, v); "
        "w = Softmax<axis = -1>(z)", "first",
    ),
    "scattered-mask": (
        TOP + "s = Shape(x); o = -inf; out = Expand(o, s); si = Shape(i); n = 0.0; none = Expand(n, si); "
        "m = ScatterElements<axis = -1>(out, i, none); z = Add(x, m); w = Softmax<axis = -1>(z)", "first",
    ),
}  # fmt: skip
SCATTERED: dict[str, tuple[str, str]] = {
    "scattered-weights": (
        TOP + ZEROS + "p = Softmax<axis = -1>(v); w = ScatterElements<axis = -1>(zeros, i, p)", "first",
    ),
    "normalized-again": (
        "p = Softmax<axis = -1>(x); k = [4]; v, i = TopK<axis = -1>(p, k); t = ReduceSum[-1](v); q = Div(v, t); "
        + ZEROS + "w = ScatterElements<axis = -1>(zeros, i, q)", "first",
    ),
    "struck-out-and-normalized-again": (
        "p = Softmax<axis = -1>(x); k = [4]; v, i = TopK<axis = -1>(p, k); " + LEAST
        + "n = 0.0; below = Less(p, least); q = Where(below, n, p); t = ReduceSum[-1](q); w = Div(q, t)", "all",
    ),
}  # fmt: skip
FORMS = {**SOFTMAX_LAST, **SCATTERED}


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    ("any_length", "name"),
    [(False, name) for name in FORMS] + [(True, name) for name in FORMS if name != "threshold-of-all-sorted"],
)
def test_it_is_found_with_its_k_and_replaced(any_length: bool, name: str) -> None:
    body, ties = FORMS[name]
    made = of_any_length(model(body)) if any_length else model(body)
    said = f"the function of the method top-k with k={K}, ties={ties}"
    assert said in softq.inspect(made)[-1].verdict.reason
    result = softq.convert(made, method="top-k")
    (planned,) = result.plan.sites
    assert (planned.method, dict(planned.options)) == ("top-k", {"k": K, "ties": ties})
    onnx.checker.check_model(result.model, full_check=True)
    left = {node.op_type for node in result.model.graph.node if not node.domain}
    assert left <= {"Transpose", "MatMul", "Mul", "Div", "Constant"}, left
    for seed in range(2):
        given = feed(seed)
        (got,), (before,) = run(result.model, given), run(made, given)
        want = expected(top_k(K), given)
        for found in (got, before):
            np.testing.assert_allclose(found, want, rtol=0, atol=3e-5 * np.abs(want).max())
    # Equal keys: the scores of a row tie, and onnxruntime decides as the method does.
    given = feed(7)
    given["K"][:, :, 3:8] = given["K"][:, :, 3:4]
    (got,), (before,) = run(result.model, given), run(made, given)
    np.testing.assert_allclose(got, before, rtol=0, atol=3e-5 * np.abs(before).max())
    assert softq.convert(made, plan=result.plan).model == result.model


@pytest.mark.parametrize("name", ["threshold", "scattered-weights"])
def test_more_than_the_rows_that_others_are_told_by(name: str) -> None:
    made = of_any_length(model(FORMS[name][0].replace("k = [4]", "k = [40]").replace("[3]", "[39]").replace(
        "to = [4]", "to = [40]"
    )))  # fmt: skip
    result = softq.convert(made, method="top-k")
    assert [planned.options["k"] for planned in result.plan.sites] == [40]
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=(2, 3, 57, 4)).astype(np.float32) for name in "QKV"}
    (got,), (want,) = run(result.model, given), run(made, given)
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", SOFTMAX_LAST)
def test_what_ends_in_a_softmax_takes_any_method(name: str) -> None:
    made, given = model(SOFTMAX_LAST[name][0]), feed(2)
    (planned,) = softq.convert(made, method="exact").plan.sites
    assert planned.method == "exact"
    (got,) = run(softq.convert(made, method="exact").model, given)
    want = expected(top_k(K), given)
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())
    with pytest.raises(UsageError, match="holds the function top-k with"):
        softq.convert(made, method="top-k", settings={"k": K + 1})


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_a_mask_in_front_stays_what_it_is(mask: float) -> None:
    """Also in rows of which fewer than k elements are left."""
    made = model(THRESHOLD, scores="h = Mul(QK, half); x = Add(h, bias)", given=f"float[{SIZE}, {SIZE}] bias")
    converted = softq.convert(made, method="top-k").model
    assert [node.op_type for node in converted.graph.node if node.domain == "softq"]
    given = feed(1) | {"bias": np.triu(np.full((SIZE, SIZE), mask), 1).astype(np.float32)}
    (got,), (want,) = run(converted, given), run(made, given)
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())


NEAR = {
    "another-axis": THRESHOLD.replace("TopK<axis = -1>", "TopK<axis = -2>").replace("last = [-1]", "last = [-2]"),
    "the-least": THRESHOLD.replace("TopK<axis = -1>", "TopK<axis = -1, largest = 0>"),
    "more-than-the-last": THRESHOLD.replace("Less(x", "LessOrEqual(x"),
    "of-other-scores": THRESHOLD.replace("TopK<axis = -1>(x, k)", "TopK<axis = -1>(y0, k)").replace(
        "k = [4]", "o = Abs(x); y0 = Neg(o); k = [4]", 1
    ),
    "finite": THRESHOLD.replace("out = -inf", "out = -5.0"),
    "divided-by-more": TOP + ZEROS + "k6 = [6]; v6, i6 = TopK<axis = -1>(x, k6); m = ReduceMax[-1](x); d = Sub(v, m); "
    "e = Exp(d); d6 = Sub(v6, m); e6 = Exp(d6); t = ReduceSum[-1](e6); p = Div(e, t); "
    "w = ScatterElements<axis = -1>(zeros, i, p)",
    "scattered-elsewhere": SCATTERED["scattered-weights"][0].replace(
        "p = Soft", "one = [1]; j0 = Add(i, one); nine = [9]; j = Mod(j0, nine); p = Soft"
    ).replace("zeros, i, p", "zeros, j, p"),
    "not-normalized-again": "p = Softmax<axis = -1>(x); k = [4]; v, i = TopK<axis = -1>(p, k); " + ZEROS
    + "w = ScatterElements<axis = -1>(zeros, i, v)",
    "with-an-eps": SCATTERED["normalized-again"][0].replace("q = Div(v, t)", "e = 1e-3; u = Add(t, e); q = Div(v, u)"),
    "all-of-them": THRESHOLD.replace(TOP, f"k = [{SIZE}]; v, i = TopK<axis = -1>(x, k); ").replace(LEAST, (
        f"from = [{SIZE - 1}]; to = [{SIZE}]; last = [-1]; least = Slice(v, from, to, last); "
    )),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_what_differs_is_none(name: str) -> None:
    # Of rows of one length what leaves out the 3 least keeps a known number.
    made = of_any_length(model(NEAR[name])) if name == "the-least" else model(NEAR[name])
    for site in softq.inspect(made):
        assert site.function is None
        assert "the operators before it" not in site.verdict.reason


def ranked(row: NDArray[np.float32], k: int, first: bool) -> NDArray[np.float64]:
    """Sorted, as the method is not."""
    order = np.argsort(-row.astype(np.float64), kind="stable")
    keep = np.zeros(row.shape, np.bool_)
    keep[order[:k]] = True
    if not first:
        keep = row >= row[order[:k]].min()
    return softmax(np.where(keep, row.astype(np.float64), -np.inf))


@pytest.mark.parametrize("ties", ["all", "first"])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_the_last_is_found_to_the_bit(ties: str, k: int) -> None:
    rng = np.random.default_rng(k)
    program = default_program(METHODS.get("top-k"), k=k, ties=ties)
    near = np.float32(5) + np.arange(60, dtype=np.float32) * np.float32(2.0**-21)  # neighbours among f32 numbers
    blocks = [
        rng.permuted(np.tile(near, (4, 1)), axis=1),
        rng.integers(-2, 3, size=(20, 60)).astype(np.float32),
        (rng.normal(size=(20, 60)) * 30).astype(np.float32),
        (rng.normal(size=(20, 60)) * 1e-5 + 700).astype(np.float32),
        np.full((1, 60), -1e9, np.float32),
        np.array([[3e38, -3e38, 1, 2, 3]], np.float32),
    ]
    for x in blocks:
        want = np.array([ranked(row, k, ties == "first") for row in x])
        # A weight is e^-d of a distance of f32, whose rounding is 2^-24 of it.
        np.testing.assert_allclose(probabilities(program, x), want, rtol=1e-5, atol=1e-37)
    # +inf takes all the weight, the first one where one is kept.
    x = np.array([[1, np.inf, np.inf, 0]], np.float32)
    want = [0, 1, 0, 0] if ties == "first" and k == 1 else [0, 0.5, 0.5, 0]
    assert probabilities(program, x).tolist() == [want]


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["all", "first"])
def test_runtimes_and_kernels_keep_the_same_elements(ties: str) -> None:
    program = default_program(METHODS.get("top-k"), masked=True, k=K, ties=ties)
    rng = np.random.default_rng(0)
    x = (np.rint(rng.normal(size=(8, 37)) * 4) / 4).astype(np.float32)
    keep = rng.random(x.shape) < 0.8
    keep[7] = False
    found: dict[str, Mapping[str, NDArray[Any]]] = dict(everywhere(program, x, ["weights"], valid=keep))
    kernel = kernel_of(program)
    if kernel is not None:
        found["kernel"] = kernel(x, valid=keep)
    for backend, out in found.items():
        for at in range(7):
            want = ranked(np.where(keep[at], x[at], -np.inf).astype(np.float32), K, ties == "first")
            np.testing.assert_array_equal(out["weights"][at] > 0, want > 0, err_msg=backend)
        assert not np.any(out["weights"][7])


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
def test_as_torch_exports_it(exporter: str) -> None:
    import io

    torch = pytest.importorskip("torch")

    def threshold(x: Any) -> Any:
        v, _ = torch.topk(x, K, dim=-1)
        return x.masked_fill(x < v[..., -1:], float("-inf")).softmax(-1)

    def scattered(x: Any) -> Any:
        v, i = torch.topk(x, K, dim=-1)
        return torch.zeros_like(x).scatter(-1, i, v.softmax(-1))

    def struck_out(x: Any) -> Any:
        v, i = torch.topk(x, K, dim=-1)
        return torch.full_like(x, float("-inf")).scatter(-1, i, v).softmax(-1)

    def masked(x: Any) -> Any:
        i = torch.topk(x, K, dim=-1)[1]
        mask = torch.full_like(x, float("-inf")).scatter(-1, i, 0.0)
        return (x + mask).softmax(-1)

    def nth(x: Any) -> Any:
        least = torch.sort(x, dim=-1, descending=True)[0][..., K - 1 : K]
        return torch.where(x >= least, x, torch.tensor(float("-inf"))).softmax(-1)

    functions: list[Callable[[Any], Any]] = [threshold, scattered, struck_out, masked, nth]
    for function in functions:

        class Attention(torch.nn.Module):
            def __init__(self, function: Callable[[Any], Any]) -> None:
                super().__init__()
                self.function = function

            def forward(self, q: Any, k: Any, v: Any) -> Any:
                return self.function(q @ k.transpose(-1, -2) * 0.5) @ v

        arguments = tuple(torch.from_numpy(array) for array in feed().values())
        if exporter == "dynamo":
            made = torch.onnx.export(Attention(function).eval(), arguments, dynamo=True, verbose=False).model_proto
        else:
            held = io.BytesIO()
            torch.onnx.export(Attention(function).eval(), arguments, held, opset_version=18, dynamo=False)
            made = onnx.load_from_string(held.getvalue())
        result = softq.convert(made, method="top-k")
        options: list[Mapping[str, object]] = [dict(planned.options) for planned in result.plan.sites]
        assert [found["k"] for found in options] == [K], function.__name__
        given = dict(zip([value.name for value in made.graph.input], feed(3).values(), strict=True))
        (got,), (want,) = run(result.model, given), run(made, given)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())
