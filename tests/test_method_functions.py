"""Functions in softmax's place against their formulas in float64, written from the papers and not from the programs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import Program, run
from tests.amount import amount
from tests.rowhost import everywhere
from tests.test_methods import default_program, probabilities

F64 = NDArray[np.float64]
Reference = Callable[[F64], F64]
Settings = dict[str, Any]


def softmax(x: F64) -> F64:
    e = np.exp(x - x.max())
    return e / e.sum()


def taylor(order: int) -> Reference:
    def of(x: F64) -> F64:
        w = np.asarray(sum(x**i / math.factorial(i) for i in range(order + 1)))
        return w / w.sum()

    return of


def power(exponent: int) -> Reference:
    return lambda x: (x / np.abs(x).max()) ** exponent / np.sum((x / np.abs(x).max()) ** exponent)


def clipped(gamma: float, zeta: float) -> Reference:
    return lambda x: np.clip((zeta - gamma) * softmax(x) + gamma, 0, 1)


def softpick(eps: float) -> Reference:
    def of(x: F64) -> F64:
        # The definition, multiplied by e^-m so that float64 holds it; eps stands beside the multiplied sum.
        m = max(x.max(), 0)
        w = np.expm1(x) * np.exp(-m) if m < 700 else np.exp(x - m)
        return np.maximum(w, 0) / (np.abs(w).sum() + eps)

    return of


def sparsemax(x: F64) -> F64:
    z = np.sort(x)[::-1] - x.max()
    k = np.arange(1, len(x) + 1)
    support = k[1 + k * z > np.cumsum(z)][-1]
    tau = (np.cumsum(z)[support - 1] - 1) / support
    return np.maximum(x - x.max() - tau, 0)


def entmax15(x: F64) -> F64:
    half = (x - x.max()) / 2
    z = np.sort(half)[::-1]
    k = np.arange(1, len(x) + 1)
    mean, square = np.cumsum(z) / k, np.cumsum(z**2) / k
    tau = mean - np.sqrt(np.maximum(0, (1 - k * (square - mean**2)) / k))
    return np.maximum(half - tau[np.sum(tau <= z) - 1], 0) ** 2


def top_k(k: int) -> Reference:
    return lambda x: softmax(np.where(x >= np.sort(x)[::-1][min(k, len(x)) - 1], x, -np.inf))


def first_k(k: int) -> Reference:
    def of(x: F64) -> F64:
        kept = np.argsort(-x, kind="stable")[:k]
        w = np.full(len(x), -np.inf)
        w[kept] = x[kept]
        return softmax(w)

    return of


def relu(exponent: int, divisor: float | None) -> Reference:
    return lambda x: np.maximum(x, 0) ** exponent / (divisor or len(x))


def sigmoid(bias: float | None) -> Reference:
    def of(x: F64) -> F64:
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-(x + (-math.log(len(x)) if bias is None else bias))))

    return of


def softplus(x: F64) -> F64:
    w = np.logaddexp(0, x)
    return w / (w.sum() + 1e-8)


def sharpened(exponent: int, offset: float) -> Reference:
    def of(x: F64) -> F64:
        w = np.maximum(len(x) * softplus(x) - (offset if len(x) > 3 else 0), 0)
        return (w / w.max()) ** exponent / np.sum((w / w.max()) ** exponent)

    return of


def ssmax(s: float) -> Reference:
    return lambda x: softmax(s * math.log(max(len(x), 2)) * x)


def self_adjust(x: F64) -> F64:
    low, high = min(x.min(), 0), max(x.max(), 0)
    return softmax(x) * (x - low) / (high - low + 2e-10)


def adaptive(held: bool) -> Reference:
    def of(x: F64) -> F64:
        p = softmax(x)
        h = -np.sum(p * np.log(p + 1e-300))
        theta = np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], min(h, 4.41) if held else h)
        return softmax(x * (max(theta, 1) if h > 0.5 else 1))

    return of


def consmax(beta: float, gamma: float, clamp: float) -> Reference:
    return lambda x: np.exp(np.minimum(x - beta, clamp)) / gamma


# Absolute error over the greatest probability of the row, and the spread of the scores at which the method is of use.
CASES: list[tuple[str, Settings, Reference, float]] = [
    ("taylor", {}, taylor(2), 1e-6),
    ("taylor", {"order": 4}, taylor(4), 1e-6),
    ("taylor", {"order": 6}, taylor(6), 1e-6),
    ("power", {}, power(4), 2e-6),
    ("power", {"power": 2}, power(2), 2e-6),
    ("power", {"power": 14}, power(14), 4e-6),
    ("clipped", {}, clipped(-0.025, 1), 5e-6),
    ("clipped", {"gamma": -0.003, "zeta": 1.1}, clipped(-0.003, 1.1), 5e-6),
    ("softpick", {}, softpick(1e-8), 4e-6),
    ("softpick", {"eps": 1e-6}, softpick(1e-6), 4e-6),
    ("sparsemax", {}, sparsemax, 2e-5),
    ("entmax15", {}, entmax15, 2e-5),
    ("top-k", {}, top_k(32), 2e-6),
    ("top-k", {"k": 1}, top_k(1), 2e-6),
    ("top-k", {"k": 5}, top_k(5), 2e-6),
    ("top-k", {"k": 5, "ties": "all"}, top_k(5), 2e-6),
    ("top-k", {"k": 5, "ties": "first"}, first_k(5), 2e-6),
    ("relu", {}, relu(1, None), 1e-6),
    ("relu", {"power": 2, "divisor": 17}, relu(2, 17), 1e-6),
    ("relu", {"divisor": "sum", "least": 0.5}, lambda x: np.maximum(x, 0) / max(np.maximum(x, 0).sum(), 0.5), 2e-6),
    ("sigmoid", {}, sigmoid(None), 2e-6),
    ("sigmoid", {"bias": -1.5}, sigmoid(-1.5), 2e-6),
    ("softplus", {}, softplus, 4e-6),
    ("softplus", {"eps": 0, "least": 0.5}, lambda x: np.logaddexp(0, x) / max(np.logaddexp(0, x).sum(), 0.5), 4e-6),
    ("softplus", {"power": 15}, sharpened(15, 1.0), 3e-4),
    ("softplus", {"power": 4, "offset": 0.25}, sharpened(4, 0.25), 3e-4),
    ("ssmax", {}, ssmax(0.43), 2e-5),
    ("ssmax", {"s": 1.5}, ssmax(1.5), 6e-5),
    ("self-adjust", {}, self_adjust, 4e-6),
    ("adaptive-temperature", {}, adaptive(True), 2e-5),
    ("adaptive-temperature", {"beyond": "published"}, adaptive(False), 2e-5),
    ("consmax", {}, consmax(2.5, 100, 80), 4e-6),
    ("consmax", {"beta": -3, "gamma": 7, "clamp": 4}, consmax(-3, 7, 4), 4e-6),
]
IDS = ["-".join([name, *(f"{k}{v}" for k, v in settings.items())]) for name, settings, _, _ in CASES]

FIRST = {name: case for name, *_ in CASES for case in [next(c for c in CASES if c[0] == name)]}
"""One setting of each."""


def blocks() -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    made = [
        rng.normal(size=(12, length)) * scale + shift
        for length in (1, 2, 3, 4, 17, 197, 1000)
        for scale, shift in [(0.3, 0), (2, 0), (2, -9), (6, 4), (25, 0)]
    ]
    # Flat rows, one far above, ties, and rows all below or all above zero.
    one = np.full((1, 60), -3.0)
    one[0, 7] = 57
    return [x.astype(np.float32) for x in [*made, np.full((1, 400), 0.7), one, rng.integers(-3, 3, size=(9, 50))]]


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize(("name", "settings", "reference", "error"), CASES, ids=IDS)
def test_the_paper_s_formula(name: str, settings: Settings, reference: Reference, error: float) -> None:
    program = default_program(METHODS.get(name), **settings)
    for x in blocks():
        if name == "power" or "power" in settings:  # 0 / 0 in the paper
            x = x[(np.abs(x).max(axis=-1) > 0) & ((x.shape[1] < 4) | (np.ptp(x, axis=-1) > 0))]
        expected = np.array([reference(row) for row in x.astype(np.float64)]).reshape(x.shape)
        greatest = np.maximum(expected.max(axis=-1, keepdims=True), 1e-30)
        found = probabilities(program, x)
        assert np.max(np.abs(found - expected) / greatest, initial=0) <= error, x.shape


@pytest.mark.parametrize(("name", "settings", "reference", "error"), CASES, ids=IDS)
def test_a_mask_leaves_the_function_of_the_others(
    name: str, settings: Settings, reference: Reference, error: float
) -> None:
    rng = np.random.default_rng(2)
    x = (rng.normal(size=(20, 40)) * 3).astype(np.float32)
    keep = rng.random(x.shape) < 0.5
    keep[:, 3] = True
    p = probabilities(default_program(METHODS.get(name), masked=True, **settings), np.where(keep, x, np.nan), keep)
    finite = {low: np.where(keep, x, np.float32(low)) for low in (-np.inf, -1e4, -1e9)}
    finite[-9999] = np.where(keep, x, x - np.float32(1e4))
    plain = {low: probabilities(default_program(METHODS.get(name), **settings), rows) for low, rows in finite.items()}
    for at in range(len(x)):
        expected = reference(x[at, keep[at]].astype(np.float64))
        for found in (p[at], *(some[at] for some in plain.values())):
            np.testing.assert_allclose(found[keep[at]], expected, rtol=0, atol=error * max(expected.max(), 1e-30))
            assert not np.any(found[~keep[at]])


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("name", "settings", "reference", "error"), FIRST.values(), ids=FIRST)
def test_runtimes_and_kernels(name: str, settings: Settings, reference: Reference, error: float) -> None:
    """Each backend against float64: nothing here is equal to the bit, for sums are in any order."""
    rng = np.random.default_rng(3)
    program = default_program(METHODS.get(name), masked=True, **settings)
    kernel = kernel_of(program)
    for length in (1, 37):
        x = (rng.normal(size=(6, length)) * 3).astype(np.float32)
        keep = rng.random(x.shape) < 0.8
        keep[:, 0] = True
        keep[5] = False
        found: dict[str, Mapping[str, NDArray[np.generic]]] = dict(
            everywhere(program, x, list(program.outputs), valid=keep)
        )
        if kernel is not None:
            found["kernel"] = kernel(x, valid=keep)
        for backend, out in found.items():
            p = out["weights"].astype(np.float64) / np.where(out["normalizer"] == 0, 1, out["normalizer"])
            assert not np.any(out["normalizer"][5]), backend
            assert not np.any(p[5]), backend
            for at in range(5):
                expected = reference(x[at, keep[at]].astype(np.float64))
                np.testing.assert_allclose(
                    p[at, keep[at]], expected, rtol=0, atol=error * max(expected.max(), 1e-30), err_msg=backend
                )


def kernel_of(program: Program) -> Callable[..., dict[str, NDArray[np.float32]]] | None:
    """Return a kernel of this machine, None if none can be built."""
    if shutil.which("gcc") is None:
        return None
    pytest.importorskip("tvm")
    from tests.test_native_rows import HOST, MACHINES, MIDDLE, PLAIN, Host

    # A search by halves is long; with vectors it is compiled in tests/test_native_attention.py.
    machine = amount(PLAIN, HOST) if len(program.nodes()) > 150 else MIDDLE
    return Host(program, machine) if MACHINES else None  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("order", [2, 4, 6])
def test_the_stated_error_of_taylor_is_kept_where_its_terms_cancel(order: int) -> None:
    x = np.linspace(-60, 60, 40001, dtype=np.float32)[:, None]
    w = run(default_program(METHODS.get("taylor"), order=order), x)["weights"].astype(np.float64)
    terms = [x.astype(np.float64) ** i / math.factorial(i) for i in range(order + 1)]
    exact, size = np.sum(terms, axis=0), np.sum(np.abs(terms), axis=0)
    error = np.abs(w * np.maximum(1, np.abs(x.astype(np.float64))) ** order - exact)
    assert np.max(error / size) <= (order + 1) * 2.0**-23


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES}))
def test_huge_scores_give_numbers(name: str) -> None:
    most = np.float32(3e38)
    x = np.array([[most, most / 2, 0, 1], [most, most, -most, 5], [1e-45, 1e-40, 0, -1e-45], [-3, -most / 4, -1, -2]])
    p = probabilities(default_program(METHODS.get(name)), x.astype(np.float32))
    assert np.all(np.isfinite(p))
    assert np.all(p >= 0)


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("taylor", {"order": 3}, "order is 3; allowed is 2, 4 or 6"),
    ("power", {"power": 5}, "power is 5; allowed is an even number"),
    ("relu", {"eps": 0.5}, "eps is 0.5 with divisor=length; it is for divisor=sum"),
    ("relu", {"divisor": "row", "least": 1e-12}, "least is 1e-12 with divisor=row; it is for divisor=sum"),
])  # fmt: skip
def test_settings_without_a_meaning_are_refused(name: str, settings: Settings, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        default_program(METHODS.get(name), **settings)


def kept(name: str, row: Sequence[float], **settings: Any) -> list[int]:
    p = probabilities(default_program(METHODS.get(name), **settings), np.array([row], np.float32))[0]
    return [i for i, value in enumerate(p) if value > 0]


def test_ties_with_the_last_of_top_k_are_all_kept() -> None:
    assert kept("top-k", [1, 3, 2, 2, 2, 0], k=2) == [1, 2, 3, 4]
    assert kept("top-k", [1, 3, 2, 2, 2, 0], k=1) == [1]
    assert kept("top-k", [1, 3, 2, 2, 2, 0], k=5) == [0, 1, 2, 3, 4]
    assert kept("top-k", [1, 3, 2], k=9) == [0, 1, 2]
    # Within the resolution of the bisection two scores may be one; farther apart they are two.
    near = 2.0**-17
    assert kept("top-k", [0.25, 0.25 - 1.5 * near, 0.0], k=1) == [0]
    assert kept("top-k", [0.25, 0.25 - 0.5 * near, 0.0], k=1) == [0, 1]
    rng = np.random.default_rng(0)
    for k in (1, 4, 32, 150):
        x = rng.normal(size=(50, 197)).astype(np.float32)
        d = np.sort(x.max(axis=-1, keepdims=True).astype(np.float64) - x, axis=-1)
        count = np.sum(probabilities(default_program(METHODS.get("top-k"), k=k), x) > 0, axis=-1)
        assert np.all(count >= k)
        assert np.all(count <= np.sum(d <= d[:, k - 1 : k] + near + 1e-6, axis=-1))


def test_what_lies_outside_the_support_weighs_exactly_nothing() -> None:
    assert kept("sparsemax", [0, 1, -0.001, 0.5]) == [1, 3]
    assert kept("entmax15", [0, 2, -0.1, 1.5]) == [1, 3]
    assert kept("relu", [0, -1, 2]) == [2]
    assert kept("softpick", [0, -1, 2]) == [2]
    assert kept("clipped", [0, 10, 0]) == [1]


def test_a_row_below_zero_may_be_nothing_at_all() -> None:
    x = np.array([[-1, -2, -0.5]], np.float32)
    for name in ("relu", "softpick"):
        out = run(default_program(METHODS.get(name)), x)
        assert not np.any(out["weights"])
        assert out["normalizer"][0, 0] > 0
