"""Every form of a softmax in a model of its own: found, converted, and the same results in onnxruntime.

Tolerances: a float32 softmax of 5 elements and its conversion by the method `exact` differ by the rounding of some
exponentials, sums and quotients, each 2^-24 relatively: 1e-5 and 1e-6 leave room for their sum. In float16 (2^-11) they
are 4e-3 and 1e-3. NaN has to be where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from _pytest.mark.structures import ParameterSet
from numpy.typing import NDArray

import softq
from tests.forms import Array, Case, Feeds, run
from tests.forms_masked import MASKED
from tests.forms_written import CASES


def pairs(*, logarithms: bool = True) -> list[ParameterSet]:
    """Every case in every opset."""
    cases = [(name, case) for name, case in CASES.items() if logarithms or not case.logarithm]
    return [pytest.param(case, opset, id=f"{name}, opset {opset}") for name, case in cases for opset in case.opsets]


def floats(outputs: list[Array]) -> NDArray[np.float64]:
    """The first output as numbers to calculate with."""
    return outputs[0].astype(np.float64)


def equal(got: list[Array], want: list[Array], case: Case) -> None:
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=case.rtol, atol=case.atol)


def converted(model: onnx.ModelProto, method: str, masks: Sequence[str] = (), **settings: int) -> onnx.ModelProto:
    """Convert every site and assert what has to hold whatever the form."""
    result = softq.convert(model, method=method, all_sites=True, masks=masks, settings=settings)
    assert softq.inspect(model, method=method, all_sites=True, masks=masks) == result.sites
    onnx.checker.check_model(result.model, full_check=True)
    assert [o.name for o in result.model.graph.output] == [o.name for o in model.graph.output]
    again = softq.convert(model, plan=result.plan)
    assert again.model == result.model
    return result.model


@pytest.mark.quick_cases(120)
@pytest.mark.parametrize(("case", "opset"), pairs())
def test_the_exact_method_gives_what_the_original_gives(case: Case, opset: int) -> None:
    model, feeds = case.model(opset), case.feeds()
    found = softq.inspect(model, method="exact", all_sites=True)
    assert [site.form for site in found] == [case.form]
    assert [site.verdict.action for site in found] == ["convert"], found[0].verdict
    assert all(site.logarithm == case.logarithm for site in found)
    assert all((site.mask == "where") == ("keep" in case.inputs) for site in found)
    result = converted(model, "exact")
    left = [n.op_type for n in result.graph.node]
    assert not {"Softmax", "LogSoftmax"} & set(left)
    equal(run(result, feeds), run(model, feeds), case)


@pytest.mark.quick_cases(80)
@pytest.mark.parametrize(("case", "opset"), pairs(logarithms=False))
def test_codes_of_four_bits_stay_finite(case: Case, opset: int) -> None:
    model, feeds = case.model(opset), case.feeds()
    got, want = floats(run(converted(model, "deferred-log", bits=4), feeds)), floats(run(model, feeds))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    # Half a step of a weight and what the others' steps do to the sum: at most 0.35 with one code an octave.
    assert np.all(np.abs(got - want)[finite] < 0.35 * np.maximum(1, np.abs(want[finite])))


@pytest.mark.parametrize("case", [pytest.param(c, id=n) for n, c in CASES.items() if c.logarithm])
def test_logarithms_are_kept_from_methods_that_have_a_weight_of_zero(case: Case) -> None:
    model = case.model(case.opsets[0])
    site = softq.inspect(model, method="deferred-log", all_sites=True)[0]
    assert site.verdict.action == "keep"
    assert site.verdict.reason.startswith("exact only")
    plan = softq.convert(model, method="exact", all_sites=True).plan
    with pytest.raises(softq.RefusalError, match="exact only"):
        softq.convert(model, plan=replace(plan, sites=(replace(plan.sites[0], method="log2", options={"bits": 4}),)))


@pytest.mark.parametrize("case", [pytest.param(c, id=n) for n, c in CASES.items() if c.overflows])
def test_what_overflows_becomes_finite(case: Case) -> None:
    model = case.model(18)
    feeds: Feeds = {"x": np.full(case.shape, 700, np.float32)}
    before, after = floats(run(model, feeds)), floats(run(converted(model, "exact"), feeds))
    assert not np.isfinite(before).all() or np.all(before == 0)
    assert np.isfinite(after).all()
    assert np.all(after > 0)
    note = softq.inspect(model, method="exact", all_sites=True)[0].verdict.reason
    assert "overflow" in note


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize(
    ("case", "opset"), [pytest.param(c, o, id=f"{n}, opset {o}") for n, c in MASKED.items() for o in (14, 18)]
)
def test_masks(case: Case, opset: int) -> None:
    model, feeds = case.model(opset), case.feeds()
    site = softq.inspect(model, all_sites=True, masks=case.masks)[0]
    assert (site.mask, site.masked_row) == (case.mask, case.row), site.verdict
    exact = converted(model, "exact", case.masks)
    assert [f.name for f in exact.functions] == ["Exact_valid" if case.lifted else "Exact_f32"]
    want = run(model, feeds)
    equal(run(exact, feeds), want, case)
    got = floats(run(converted(model, "deferred-log", case.masks, bits=4), feeds))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(floats(want)))
