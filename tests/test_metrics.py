"""Metrics against plain float64 formulas and SciPy, and on values chosen to break them."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from scipy import special, stats

from softq.data import Array
from softq.errors import InputError, UsageError
from softq.metrics import METRICS, PROPORTION, Measured, find_metric, mean_interval, paired_ratio_interval
from softq.metrics.base.interval import student_quantile

pytestmark = pytest.mark.filterwarnings("error")
NAN, INF = math.nan, math.inf


def measure(
    name: str, reference: Array, candidate: Array, labels: Array | None = None, *, cuts: Sequence[int] = ()
) -> Measured:
    meter = find_metric(name).start("out", None if labels is None else "y")
    bounds = [0, *cuts, len(reference)]
    for low, high in itertools.pairwise(bounds):
        given = {} if labels is None else {"y": labels[low:high]}
        meter.update({"out": reference[low:high]}, {"out": candidate[low:high]}, given)
    return meter.result()


def rows(*values: Sequence[float]) -> Array:
    return np.array(values, np.float32)


def noisy(seed: int, *shape: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape).astype(np.float32)
    return a, a + 0.3 * rng.normal(size=shape).astype(np.float32)


def rank_correlation(a: Array, b: Array) -> float:
    return float(stats.spearmanr(a, b)[0])  # pyright: ignore[reportArgumentType]


def test_every_builtin_is_found_and_complete() -> None:
    names = "cosine kl max-error perplexity relative-error spearman top1-accuracy top1-agreement top5-agreement"
    assert set(names.split()) <= set(METRICS.entries())
    for metric in METRICS.entries().values():
        assert metric.unit
        assert metric.summary
        assert metric.direction in ("higher", "lower")
    with pytest.raises(UsageError, match="unknown metric 'f1'; softq metrics lists all"):
        find_metric("f1")


def test_values_do_not_depend_on_the_batches() -> None:
    a, b = noisy(1, 20, 12)
    square = np.random.default_rng(2).normal(size=(20, 20))
    for name, labels in [
        *((n, None) for n in ("cosine", "kl", "max-error", "relative-error", "top1-agreement", "top5-agreement")),
        ("top1-accuracy", np.arange(20) % 12),
        ("spearman", square),
    ]:
        whole = measure(name, a, b, labels)
        assert math.isfinite(whole.candidate)
        for cuts in ((1,), (7, 8, 19), range(1, 20)):
            parts = measure(name, a, b, labels, cuts=cuts)
            assert (parts.reference, parts.candidate) == (whole.reference, whole.candidate), name


def test_top1_accuracy() -> None:
    out, other = rows([1, 2], [3, 1], [5, 5], [0, 1]), rows([2, 1], [3, 1], [5, 5], [0, 1])
    result = measure("top1-accuracy", out, other, np.array([1, 0, 0, 0]))
    assert (result.reference, result.candidate) == (0.75, 0.5)  # A tie goes to the first.
    assert result.samples is not None
    assert result.samples.candidate.tolist() == [0, 1, 1, 0]
    tokens = measure("top1-accuracy", out.reshape(2, 2, 2), out.reshape(2, 2, 2), np.array([[1, -100], [1, 1]]))
    assert tokens.candidate == 2 / 3
    for labels in (np.array([1, 0, 2, 0]), np.array([1, 0, -1, 0])):
        with pytest.raises(InputError, match=r"is not in 0\.\.1 or -100"):
            measure("top1-accuracy", out, other, labels)
    for labels in (np.array([1.0, 0, 0, 0]), np.array([[1], [0], [0], [0]])):
        with pytest.raises(InputError, match=r"labels are .* needs integers \[4\]"):
            measure("top1-accuracy", out, other, labels)


def test_a_row_with_nan_is_never_right() -> None:
    # argmax of the first row is the place of its NaN, which is the label.
    out = rows([NAN, 2], [3, 1])
    assert measure("top1-accuracy", out, out, np.array([0, 0])).candidate == 0.5
    assert measure("top1-agreement", out, out).candidate == 1.0
    both = measure("top1-agreement", rows([NAN, 2]), rows([NAN, 2]))
    assert math.isnan(both.candidate)
    assert (both.nan.both, both.nan.candidate_only) == (1, 0)
    new = measure("top1-agreement", rows([1, 2], [1, 2]), rows([NAN, 2], [1, 2])).samples
    assert new is not None
    assert new.candidate.tolist() == [0, 1]


@pytest.mark.parametrize(
    "name", [*(n for n, m in METRICS.entries().items() if not m.needs_labels), "top1-accuracy", "spearman"]
)
def test_nan_in_the_candidate_alone_is_never_a_number(name: str) -> None:
    a, _ = noisy(3, 9, 7)
    b = a.copy()
    b[4, 2] = NAN
    labels = (
        np.arange(9) % 7 if name == "top1-accuracy" else np.arange(81.0).reshape(9, 9) if name == "spearman" else None
    )
    result = measure(name, a, b, labels, cuts=(5,))
    assert math.isnan(result.candidate)
    assert result.nan.candidate_only == 1
    # The other way round there is a NaN in the reference, and nothing there to compare with.
    turned = measure(name, b, a, labels)
    assert (turned.nan.reference, turned.nan.candidate_only) == (1, 0)
    assert math.isfinite(turned.candidate)


def test_top1_agreement_needs_the_same_column() -> None:
    a, b = rows([1, 2, 3], [3, 2, 1], [1, 1, 1]), rows([1, 3, 2], [9, 2, 1], [1, 1, 1])
    assert measure("top1-agreement", a, b).candidate == 2 / 3
    tie = measure("top1-agreement", rows([1, 2]), rows([2, 2]))
    assert tie.candidate == 0, "the candidate's first of equals is another column"


def test_top5_agreement() -> None:
    a, b = noisy(4, 50, 30)
    b = b.astype(np.float64) + 2 * noisy(5, 50, 30)[0].astype(np.float64)
    expected = np.mean([a[i].argmax() in np.argsort(-b[i], kind="stable")[:5] for i in range(50)])
    assert 0 < expected < 1
    assert measure("top5-agreement", a, b).candidate == pytest.approx(expected, abs=1e-15)
    equal = np.zeros((1, 9), np.float32)
    for best, inside in ((4, 1.0), (5, 0.0)):
        one = equal.copy()
        one[0, best] = 1
        assert measure("top5-agreement", one, equal).candidate == inside
    with pytest.raises(InputError, match="at least 6 classes"):
        measure("top5-agreement", a[:, :5], b[:, :5])


def test_perplexity_against_scipy() -> None:
    a, b = (v.astype(np.float64) for v in noisy(6, 4, 9, 50))
    ids = np.random.default_rng(7).integers(0, 50, (4, 9))
    ids[1, 4:] = -100
    ids[2] = -1
    for logits in (a * 100, b * 100):  # exp(100) overflows float32, exp(1000) float64.
        logs = special.log_softmax(logits.astype(np.float64), axis=-1)
        terms = [-logs[i, t, ids[i, t + 1]] for i in range(4) for t in range(8) if ids[i, t + 1] >= 0]
        result = measure("perplexity", logits, logits, ids, cuts=(1, 3))
        assert result.candidate == pytest.approx(np.exp(np.mean(terms)), rel=1e-12)
        assert result.samples is not None
        assert result.samples.weight.tolist() == [8, 3, 0, 8]
        assert result.samples.candidate.sum() == pytest.approx(np.sum(terms), rel=1e-12)


@pytest.mark.parametrize(
    ("row", "target", "expected"),
    [
        ([INF, 0, 0], 0, 1),
        ([INF, 0, INF], 0, 2),  # +inf takes all the weight, shared.
        ([INF, 0, 0], 1, INF),
        ([-INF, 0, 0], 1, 2),
        ([-INF, 0, 0], 0, INF),
        ([-INF, -INF, -INF], 0, NAN),
        ([1e38, -1e38, 1e38], 2, 2),
        ([NAN, 0, 0], 1, NAN),
        ([NAN, INF, 0], 1, NAN),
    ],
)
def test_perplexity_of_extreme_logits(row: Sequence[float], target: int, expected: float) -> None:
    logits = np.array([[row, [NAN] * 3]], np.float32)  # The last position predicts nothing.
    value = measure("perplexity", logits, logits, np.array([[0, target]])).candidate
    assert value == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_perplexity_without_tokens_is_no_number_and_bad_ids_are_named() -> None:
    logits = np.zeros((1, 2, 5), np.float32)
    assert math.isnan(measure("perplexity", logits, logits, np.array([[1, -100]])).candidate)
    assert math.isnan(measure("perplexity", logits[:, :1], logits[:, :1], np.array([[1]])).candidate)
    with pytest.raises(InputError, match="token id 5 is not below the vocabulary's 5"):
        measure("perplexity", logits, logits, np.array([[1, 5]]))
    with pytest.raises(InputError, match=r"need token ids \[1, 2\]"):
        measure("perplexity", logits, logits, np.array([[1, 2, 3]]))
    with pytest.raises(InputError, match=r"needs logits \[samples, tokens, vocabulary\]"):
        measure("perplexity", logits[0], logits[0], np.array([[1, 2]]))


def test_cosine() -> None:
    a, b = noisy(8, 6, 4, 5)
    x, y = a.reshape(6, -1).astype(np.float64), b.reshape(6, -1).astype(np.float64)
    expected = np.mean([u @ v / (np.linalg.norm(u) * np.linalg.norm(v)) for u, v in zip(x, y, strict=True)])
    assert measure("cosine", a, b).candidate == pytest.approx(expected, rel=1e-13)
    big = np.array([[3e300, 4e300]])  # The squares overflow.
    assert measure("cosine", big, big).candidate == pytest.approx(1, rel=1e-15)
    assert measure("cosine", big, big[:, ::-1]).candidate == pytest.approx(0.96, rel=1e-15)
    zero = np.zeros((1, 2))
    assert measure("cosine", zero, zero).candidate == 1
    assert measure("cosine", big, zero).candidate == 0
    assert measure("cosine", zero, big).candidate == 0
    assert math.isnan(measure("cosine", rows([INF, 1]), rows([INF, 1])).candidate)
    assert math.isnan(measure("cosine", rows([1, 1]), rows([INF, 1])).candidate)
    assert measure("cosine", rows([NAN, 1, 2]), rows([NAN, 1, 2])).candidate == pytest.approx(1)
    assert math.isnan(measure("cosine", rows([NAN, NAN]), rows([1, 2])).candidate)


def test_errors() -> None:
    a, b = noisy(9, 6, 4, 5)
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert measure("max-error", a, b, cuts=(2,)).candidate == np.abs(x - y).max()
    expected = np.linalg.norm((x - y).ravel()) / np.linalg.norm(x.ravel())
    assert measure("relative-error", a, b).candidate == pytest.approx(expected, rel=1e-13)
    equal = rows([INF, -INF, 3], [1, 1, 1])
    for name in ("max-error", "relative-error"):
        assert measure(name, equal, equal).candidate == 0
        assert measure(name, equal, rows([INF, INF, 3], [1, 1, 1])).candidate == INF
        assert math.isnan(measure(name, rows([NAN]), rows([NAN])).candidate)
    # An infinity does not hide the finite error: ||(0, 1)|| / ||(3, 4)||.
    assert measure("relative-error", rows([INF, 3, 4]), rows([INF, 3, 5])).candidate == pytest.approx(0.2)
    zero = rows([0, 0])
    assert measure("relative-error", zero, rows([0, 1])).candidate == INF
    assert math.isnan(measure("relative-error", zero, zero).candidate)
    big = np.array([[2**62 + 1]])
    assert measure("max-error", big, big).candidate == 0
    half = np.array([[60000]], np.float16)
    assert measure("max-error", half, -half).candidate == 120000  # float16 ends at 65504.


def test_kl() -> None:
    a, b = noisy(10, 6, 4, 9)
    p, q = (special.softmax(v.astype(np.float64), axis=-1) for v in (a, b))
    assert measure("kl", a, b).candidate == pytest.approx(special.rel_entr(p, q).sum(axis=-1).mean(), rel=1e-12)
    assert measure("kl", a, a).candidate == 0
    assert measure("kl", rows([0, -INF]), rows([0, 0])).candidate == pytest.approx(math.log(2))
    assert measure("kl", rows([0, 0]), rows([0, -INF])).candidate == INF
    assert measure("kl", rows([0, -INF]), rows([5, -INF])).candidate == 0
    assert measure("kl", rows([INF, 0]), rows([INF, 0])).candidate == 0
    assert math.isnan(measure("kl", rows([-INF, -INF]), rows([0, 0])).candidate)
    with pytest.raises(InputError, match="at least 2 classes"):
        measure("kl", np.ones(3), np.ones(3))


def test_spearman_against_scipy() -> None:
    a, b = (np.round(v.astype(np.float64), 1) for v in noisy(11, 40, 1))  # Ties.
    labels = np.random.default_rng(12).integers(0, 5, 40)
    result = measure("spearman", a, b, labels, cuts=(7,))
    assert result.reference == pytest.approx(rank_correlation(a[:, 0], labels), abs=1e-14)
    assert result.candidate == pytest.approx(rank_correlation(b[:, 0], labels), abs=1e-14)
    assert measure("spearman", a[:, 0], a[:, 0], -a[:, 0]).candidate == pytest.approx(-1)


def test_spearman_of_pairs_against_scipy() -> None:
    a, b = noisy(13, 12, 8)
    labels = np.round(np.random.default_rng(14).uniform(size=(12, 12)), 1)
    upper = np.triu_indices(12, 1)
    result = measure("spearman", a, b, labels, cuts=(5,))
    for value, rows_ in ((result.reference, a), (result.candidate, b)):
        unit = rows_.astype(np.float64) / np.linalg.norm(rows_.astype(np.float64), axis=1, keepdims=True)
        assert value == pytest.approx(rank_correlation((unit @ unit.T)[upper], labels[upper]), abs=1e-13)


def test_spearman_without_an_answer() -> None:
    one = np.ones((1, 1))
    assert math.isnan(measure("spearman", one, one, np.ones(1)).candidate)
    two = np.array([[1.0], [1.0]])
    assert math.isnan(measure("spearman", two, two, np.array([1, 2])).candidate)
    zero = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]])
    assert math.isnan(measure("spearman", zero, zero, np.eye(3)).candidate)
    with pytest.raises(InputError, match="contains 1 NaN"):
        measure("spearman", two, two, np.array([1, NAN]))
    with pytest.raises(InputError, match=r"label 'y' has shape \[3\] and output 'out' \[3, 2\]"):
        measure("spearman", zero, zero, np.arange(3))


def test_a_users_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(outputs: dict[str, Array], labels: dict[str, Array]) -> object:
        """Sum of everything.

        More words.
        """
        assert list(outputs) == ["out", "other"]
        return np.float32(outputs["out"].astype(np.float64).sum() + labels["y"].sum())

    module = ModuleType("my_metrics")
    module.total = total  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "my_metrics", module)
    with pytest.raises(UsageError, match="attribute 'direction' is None; it must be 'higher' or 'lower'"):
        find_metric("my_metrics:total")
    total.direction = "lower"  # pyright: ignore[reportFunctionMemberAccess]
    with pytest.raises(UsageError, match="attribute 'unit' is None; it must be a text"):
        find_metric("my_metrics:total")
    total.unit = "things"  # pyright: ignore[reportFunctionMemberAccess]
    metric = find_metric("my_metrics:total")
    assert (metric.name, metric.direction, metric.unit, metric.paired) == ("my_metrics:total", "lower", "things", False)
    assert metric.summary == "Sum of everything."
    meter = metric.start("out", None)
    for part in (1, 2):
        outputs = {"out": np.full((2, 3), part), "other": np.zeros((2, 1))}
        meter.update(outputs, {**outputs, "out": outputs["out"] * 2}, {"y": np.ones(2)})
    assert (meter.result().reference, meter.result().candidate) == (22, 40)
    ragged = {"out": np.ones((1, 9)), "other": np.zeros((1, 1))}
    meter.update(ragged, ragged, {"y": np.ones(1)})
    with pytest.raises(InputError, match="needs samples of one shape; 'out' has"):
        meter.result()

    def text(outputs: dict[str, Array], labels: dict[str, Array]) -> str:
        return "good"

    def broken(outputs: dict[str, Array], labels: dict[str, Array]) -> float:
        return 1 / 0

    for function, message in (
        (text, "returned a str; expected a float"),
        (broken, "raised ZeroDivisionError: division by zero"),
    ):
        vars(function).update(direction="higher", unit="things")
        setattr(module, function.__name__, function)
        with pytest.raises(InputError, match=message):
            measure(f"my_metrics:{function.__name__}", np.ones((1, 1)), np.ones((1, 1)))


def test_a_users_metric_may_be_one_of_softqs_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_metrics")
    module.RIGHT = replace(find_metric("top1-accuracy"), name="right")  # pyright: ignore[reportAttributeAccessIssue]
    module.number = 3  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "my_metrics", module)
    metric = find_metric("my_metrics:RIGHT")
    assert (metric.name, metric.kind) == ("my_metrics:RIGHT", PROPORTION)
    outputs = {"out": np.eye(4), "other": np.zeros((4, 1))}
    meter = metric.start("out", "y")
    meter.update(outputs, outputs, {"y": np.arange(4)})
    assert meter.result().candidate == 1
    with pytest.raises(UsageError, match=r"is an int; it must be a function or a softq\.metrics\.Metric"):
        find_metric("my_metrics:number")


def test_outputs_of_different_shapes_are_named() -> None:
    with pytest.raises(InputError, match=r"output 'out': the reference gives shape \[2, 3\], the candidate \[2, 4\]"):
        measure("cosine", np.ones((2, 3)), np.ones((2, 4)))


def test_student_quantile_against_scipy() -> None:
    for freedom in [*range(1, 60), 299, 300, 301, 302, 1000, 10**6]:
        assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_interval_of_equal_weights_is_the_paired_t_interval() -> None:
    a, b = (v.astype(np.float64) for v in noisy(15, 24))
    counts = np.full(24, 511.0)
    expected = stats.ttest_rel(b / 511, a / 511).confidence_interval(0.95)
    result = paired_ratio_interval(a, b, counts)
    assert math.log(result.low) == pytest.approx(expected.low, rel=1e-9)
    assert math.log(result.high) == pytest.approx(expected.high, rel=1e-9)
    assert result.estimate == pytest.approx(math.exp((b - a).sum() / counts.sum()), rel=1e-14)


def test_interval_covers_as_often_as_it_says() -> None:
    # Windows of unequal length whose token differences have mean 0.01; 2,000 trials give +-1 % at two standard errors.
    rng = np.random.default_rng(16)
    inside = 0
    for _ in range(2000):
        counts = rng.integers(200, 512, 30).astype(np.float64)
        ours = 3 * counts
        theirs = ours + counts * rng.normal(0.01, 0.02, 30)
        result = paired_ratio_interval(ours, theirs, counts)
        inside += result.low <= math.exp(0.01) <= result.high
    assert 0.93 <= inside / 2000 <= 0.97


def test_interval_leaves_out_empty_windows_and_refuses_one() -> None:
    two = mean_interval(np.array([1.0, 0.0, 3.0]), np.array([2.0, 0.0, 2.0]))
    assert two == mean_interval(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    with pytest.raises(UsageError, match="1 sample with weight; an interval needs at least 2"):
        mean_interval(np.ones(2), np.array([1.0, 0.0]))
    with pytest.raises(UsageError, match="expected one length"):
        paired_ratio_interval(np.ones(2), np.ones(3), np.ones(3))
