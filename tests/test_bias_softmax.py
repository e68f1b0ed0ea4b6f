"""onnxruntime's BiasSoftmax, for which it has no CPU kernel: compared with its formula in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import softq

RNG = np.random.default_rng(5)


def model(scores: list[int | str], bias: list[int | str], axis: int, inner: int) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", scores), ("b", bias))]
    node = helper.make_node(
        "BiasSoftmax", ["x", "b"], ["p"], domain="com.microsoft", axis=axis, is_inner_broadcast=inner
    )
    rest = helper.make_node("MatMul", ["p", "v"], ["y"])
    values.append(helper.make_tensor_value_info("v", 1, [scores[-1], 4]))
    out = helper.make_tensor_value_info("y", 1, [*scores[:-1], 4])
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node, rest], "g", values, [out]), opset_imports=domains, ir_version=8)


@pytest.mark.parametrize(
    ("bias", "inner"), [((2, 1, 1, 5), 1), ((1, 1, 3, 5), 0), ((3, 5), 0), ((2, 4, 3, 5), 0), ((5,), 0)]
)
@pytest.mark.parametrize("axis", [3, -1])
def test_it_is_the_softmax_of_the_sum(bias: tuple[int, ...], inner: int, axis: int) -> None:
    x = RNG.normal(0, 2, (2, 4, 3, 5)).astype(np.float32)
    b = np.where(RNG.random(bias) < 0.3, -1e4, RNG.normal(size=bias)).astype(np.float32)
    v = RNG.normal(size=(5, 4)).astype(np.float32)
    result = softq.convert(model([2, 4, 3, 5], list(bias), axis, inner), method="exact")
    assert [site.id for site in result.plan.sites] == ["p"]
    session = ort.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x, "b": b, "v": v})
    s = (x + b).astype(np.float64)  # the sum is rounded as the scores are
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(np.asarray(y), e / e.sum(-1, keepdims=True) @ v, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("scores", "bias", "axis", "reason"),
    [
        ([2, 4, 3, 5], [2, 1, 1, 5], 2, "all axes from 2 on one row"),
        ([2, 4, 3, 5], [2, 1, 1, "n"], 3, "do not prove that the bias broadcasts"),
        ([2, 1, 3, 5], [2, 7, 3, 5], 3, "do not prove that the bias broadcasts"),
    ],
)
def test_what_is_not_known_is_refused(scores: list[int | str], bias: list[int | str], axis: int, reason: str) -> None:
    (site,) = softq.inspect(model(scores, bias, axis, 0), all_sites=True)
    assert site.verdict.action == "refuse"
    assert reason in site.verdict.reason
