"""Row programs in PyTorch against the interpreter: integers to the bit, floats within the roundings of a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.errors import RefusalError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, run
from softq.rowprog.ops import OPS
from tests.conformance import SPECIAL

torch = pytest.importorskip("torch")

from softq.torch.functional import softmax, weighing  # noqa: E402
from softq.torch.gradients import is_smooth  # noqa: E402
from softq.torch.rows import RULES, RowFunction  # noqa: E402

Array = NDArray[np.generic]
ROWS = [
    np.random.default_rng(0).normal(size=(2, 3, 40)).astype(np.float32) * 3,
    np.random.default_rng(1).normal(size=(2, 197)).astype(np.float32),
    np.zeros((3, 0), np.float32), np.array([[2.5], [-np.inf], [np.inf]], np.float32),
    SPECIAL, np.array([[np.nan, 1, 2], [1, 2, 3]], np.float32),
]  # fmt: skip
TYPES = {"difference_type": "bf16", "exponential_type": "bf16", "sum_type": "f16", "product_type": "e4m3"}
SETTINGS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "deferred-log": [
        *({"bits": b} for b in range(2, 9)), {"rest": "mean"}, {"peak": "full", "weight_bits": 8}, {"r": 2},
    ],
    "uniform": [{"bits": 2}], "minifloat": [{"bits": 3}], "adalog": [{"bits": 3, "zero": "beyond"}],
    "bias-corrected": [{"bias": "query"}],
    "exact": [TYPES], "exact-online": [TYPES], "two-pass": [TYPES],
}  # fmt: skip
CASES = [(name, {}) for name in METHODS.entries()] + [(n, s) for n, all_ in SETTINGS.items() for s in all_]


def program_of(name: str, settings: Mapping[str, object], kind: DType = DType.F32, *, masked: bool = False) -> Program:
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(settings), False), scores=kind, masked=masked)


def compare(program: Program, scores: Array, valid: Array | None, params: Mapping[str, Array] | None = None) -> None:
    wanted = run(program, scores, valid=valid, params=params)
    given = {name: torch.from_numpy(value.astype(np.float32 if value.dtype.kind == "f" else np.int64))
             for name, value in (params or {}).items()}  # fmt: skip
    found = RowFunction(program)(
        torch.from_numpy(scores), None if valid is None else torch.from_numpy(valid), given or None
    )
    assert list(found) == list(wanted)
    rounds = any(node.op in ("log2", "row_sum", "scan") and node.dtype.is_float for node in program.nodes())
    for name, value in wanted.items():
        mine = found[name].numpy()
        assert mine.shape == value.shape, name
        if program.outputs[name].dtype.is_float and rounds:
            # Sums of floats come in another order, and logarithms are another library's.
            np.testing.assert_allclose(mine, value.astype(np.float32), rtol=1e-6, atol=1e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(mine, value, err_msg=name)


def test_there_is_one_rule_for_every_operator() -> None:
    assert set(RULES) == set(OPS)


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda part: str(part).replace("'", ""))
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_a_method_is_that_of_the_interpreter(name: str, settings: Mapping[str, object], masked: bool) -> None:
    program = program_of(name, settings, masked=masked)
    for seed, scores in enumerate(ROWS):
        compare(program, scores, np.random.default_rng(seed).random(scores.shape) < 0.7 if masked else None)


@pytest.mark.parametrize("name", [name for name, method in METHODS.entries().items() if method.integer_scores])
def test_integer_scores_are_those_of_the_interpreter(name: str) -> None:
    step = {"step": 0.02} if "step" in METHODS.get(name).options.specs() else {}
    for kind, masked in product((DType.I8, DType.U8), (False, True)):
        program = program_of(name, step, kind, masked=masked)
        low, high = kind.low, kind.high
        scores = np.random.default_rng(0).integers(low, high, (3, 50), endpoint=True).astype(kind.numpy)
        compare(program, scores, np.random.default_rng(1).random(scores.shape) < 0.7 if masked else None)


@pytest.mark.parametrize("scope", ["site", "head"])
def test_parameters_hold_for_the_site_or_for_each_head(scope: str) -> None:
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({"r": scope, "first": scope, "shift": scope, "slope": scope}), True)
    heads = {"r": (1.5, 2.5), "first": (0.4, 0.2), "shift": (0.0, 0.3), "slope": (0.2, 0.1)}
    fitted = heads if scope == "head" else {name: values[0] for name, values in heads.items()}
    params = method.parameters(options, fitted)
    scores = np.random.default_rng(0).normal(size=(3, 2, 5, 30)).astype(np.float32) * 3
    compare(method.program(options), scores, None, params)


def test_a_type_that_torch_lacks_is_refused() -> None:
    t = Trace("wide")
    wide = t.cast(t.row_sum(t.cast(t.cast(t.clamp(t.scores, 0.0, 1.0), DType.U32), DType.U64)), DType.F32)
    with pytest.raises(RefusalError, match="wide has values of u64"):
        RowFunction(t.program(weights=t.scores, normalizer=wide))


def test_what_does_not_fit_is_said() -> None:
    program = program_of("exact", {}, masked=True)
    rows = RowFunction(program)
    scores = torch.zeros(2, 3)
    with pytest.raises(UsageError, match=r"scores are torch.float64 with 2 axes; expected torch.float32"):
        rows(scores.double(), scores > 0)
    with pytest.raises(UsageError, match=r"valid is None; expected torch.bool"):
        rows(scores)
    t = Trace("given")
    taken = t.param("rate", "site", DType.F32, 0, 1, "a rate")
    with pytest.raises(UsageError, match=r"parameters \['rate'\] are missing"):
        RowFunction(t.program(probabilities=t.scores * taken))(scores)


@pytest.mark.parametrize("name", [n for n in METHODS.entries() if is_smooth(program_of(n, {})) and n != "minifloat"])
def test_the_gradient_of_a_smooth_method_is_that_of_differences(name: str) -> None:
    # minifloat rounds by adding a great number, which in double precision rounds nothing.
    rows = RowFunction(program_of(name, {}), real=torch.float64)
    scores = torch.from_numpy(np.random.default_rng(3).normal(size=(2, 7))).requires_grad_()

    def probabilities(x: Any) -> Any:
        weights, normalizer = rows.pair(x)
        return weights / normalizer

    # Coefficients are those of f32, so that pieces of an approximation meet within 1e-7.
    assert torch.autograd.gradcheck(probabilities, scores, eps=1e-4, atol=1e-3)


@pytest.mark.parametrize("method", METHODS.entries())
def test_masked_scores_have_no_part_in_the_gradient(method: str) -> None:
    scores = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    masked = torch.cat([scores, torch.full((2, 3, 2), -np.inf)], -1)
    weights = torch.arange(5.0).sin()
    made = weighing(method)
    found = torch.autograd.grad((softmax(masked, method=made)[..., :5] * weights).sum(), scores)[0]
    assert bool(found.isfinite().all())
    valid = torch.ones(7, dtype=torch.bool)
    valid[5:] = False
    filled = torch.cat([scores, torch.zeros(2, 3, 2)], -1)
    again = torch.autograd.grad((softmax(filled, valid=valid, method=made)[..., :5] * weights).sum(), scores)[0]
    torch.testing.assert_close(again, found)


def test_a_method_that_rounds_is_not_smooth() -> None:
    smooth = {name for name in METHODS.entries() if is_smooth(program_of(name, {}))}
    # hccs, which models are trained for too, has integers between scores and weights.
    needs_training = {name for name, method in METHODS.entries().items() if not method.drop_in} - {"hccs"}
    assert needs_training < smooth
    assert smooth.isdisjoint(
        {
            "deferred-log",
            "fp8",
            "mxfp4",
            "nvfp4",
            "deferred-log-online",
            "i-exp",
            "uniform",
            "qlinear",
            "log2",
            "edge-moe",
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deferred-log", "exact", "i-exp", "shiftmax", "bias-corrected"])
def test_compiled_without_a_break_it_is_the_same(name: str) -> None:
    rows = RowFunction(program_of(name, {}))
    compiled = torch.compile(lambda x: rows(x), fullgraph=True)
    scores = torch.from_numpy(ROWS[0])
    for output, value in rows(scores).items():
        torch.testing.assert_close(compiled(scores)[output], value, rtol=1e-6, atol=1e-7)
