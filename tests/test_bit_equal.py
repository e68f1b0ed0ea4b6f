"""NumPy and onnxruntime give the same integers for equal scores: every difference, many lengths, masks, ties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import DType, Program, run
from softq.rowprog.onnx import to_model
from tests.rowhost import session, whole
from tests.test_methods import ALL, default_program, some_fitted

LENGTHS = (1, 2, 3, 17, 50, 197, 1024, 4096)
Rows = NDArray[np.generic]


def host_of(
    program: Program, values: Mapping[str, Rows], outputs: list[str], rank: int = 2
) -> onnxruntime.InferenceSession:
    shape = ["batch", "heads", "rows", "N"][-rank:]
    return session(whole(to_model(program, values, shape=shape, outputs=outputs), program))


def every_difference(length: int, kind: DType) -> Rows:
    """One maximum and the rest at d; two levels; ties; all equal: a row each for every d from 0 to 255."""
    d = np.arange(256)[:, None]
    at = np.arange(length)[None]
    one = np.where(at == d % length, 0, d)  # the maximum at changing places
    levels = np.where(at % 3 == 0, 0, np.where(at % 3 == 1, d, d // 2))
    ties = np.where(at % 2 == 0, 0, d)
    rows = np.concatenate([one, levels, ties, np.broadcast_to(d, (256, length))])
    if kind.is_float:
        # Differences of an eighth down to 31.9: with a step of an eighth every code of every width occurs.
        return (3 - rows / 8).astype(np.float32)
    return (kind.high - rows).astype(kind.numpy)


def random_rows(length: int, count: int, kind: DType) -> Rows:
    rng = np.random.default_rng(length)
    if kind.is_float:
        spread = rng.choice([0.1, 1.0, 4.0, 30.0], size=(count, 1))
        return (rng.normal(size=(count, length)) * spread).astype(np.float32)
    return rng.integers(kind.low, kind.high + 1, size=(count, length)).astype(kind.numpy)


def cases(kind: DType) -> Iterator[Rows]:
    for length in LENGTHS:
        yield every_difference(length, kind)
    # 10^5 rows in all, the long ones fewer.
    for length, count in (
        (1, 10_000),
        (2, 20_000),
        (3, 20_000),
        (17, 40_000),
        (50, 9_000),
        (197, 900),
        (1024, 80),
        (4096, 20),
    ):
        yield random_rows(length, count, kind)


def masks(rows: Rows) -> Iterator[NDArray[np.bool_] | None]:
    yield None
    keep = np.random.default_rng(0).random(rows.shape) < 0.7
    keep[::7] = False  # fully masked rows
    keep[1::7, 0] = True
    yield keep


SETTINGS: list[tuple[dict[str, int | float | str], DType]] = [
    ({"bits": 2, "r": 0.5}, DType.F32),
    ({"bits": 3, "r": 0.75}, DType.F32),
    ({"bits": 4, "r": 1}, DType.F32),
    ({"bits": 8, "r": 16}, DType.F32),
    ({"bits": 2, "r": 1, "steps": "growing"}, DType.F32),
    ({"bits": 3, "r": 5, "steps": "growing"}, DType.F32),
    ({"bits": 4, "r": 24, "steps": "growing"}, DType.F32),
    ({"bits": 3, "r": 5, "steps": "growing", "step": 0.1}, DType.I8),
    ({"bits": 2, "r": 1.3, "first": 0.9, "shift": 0.4, "slope": 0.3, "steps": "growing"}, DType.F32),
    ({"bits": 4, "r": 20, "first": 0.12, "shift": 0.6, "steps": "growing"}, DType.F32),
    ({"bits": 2, "rest": "mean"}, DType.F32),
    ({"weight_bits": 8, "peak": "full", "exact_sum": 1}, DType.F32),
    ({"bits": 3, "rest": "mean", "step": 0.1}, DType.U8),
    ({"bits": 3, "r": 5, "first": 0.3, "shift": 0.4, "steps": "growing", "step": 0.1}, DType.U8),
    ({"bits": 2, "distance": "byte"}, DType.F32),
    ({"bits": 7, "distance": "byte"}, DType.F32),
    ({"bits": 4, "distance": "byte", "step": 0.1}, DType.I8),
    ({"bits": 2, "r": 0.5, "step": 0.1}, DType.I8),
    ({"bits": 3, "r": 0.75, "step": 0.05}, DType.U8),
    ({"bits": 4, "r": 1, "step": 0.1}, DType.I8),
    ({"bits": 8, "r": 16, "step": 0.03}, DType.I8),
]


def assert_equal_bits(program: Program, values: Mapping[str, Rows], rows: Rows, keep: NDArray[np.bool_] | None,
                      host: onnxruntime.InferenceSession) -> None:  # fmt: skip
    ours = run(program, rows, valid=keep, params=values)
    feed = {"scores": rows} | ({} if keep is None else {"valid": keep})
    for name, theirs in zip((o.name for o in host.get_outputs()), host.run(None, feed), strict=True):
        expected = ours[name] if program.outputs[name].dtype.is_float else ours[name].astype(np.int64)
        np.testing.assert_array_equal(np.asarray(theirs), expected, err_msg=name)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(("settings", "kind"), SETTINGS, ids=lambda v: v.value if isinstance(v, DType) else str(v))
def test_every_difference_and_a_hundred_thousand_rows(settings: dict[str, int | float | str], kind: DType) -> None:
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure(settings), False)
    hosts = {}
    for rows in cases(kind):
        for keep in masks(rows):
            program = method.program(options, scores=kind, masked=keep is not None)
            if program.masked not in hosts:
                hosts[program.masked] = host_of(program, {}, ["codes", "weights", "normalizer"])
            assert_equal_bits(program, {}, rows, keep, hosts[program.masked])


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("scope", ["site", "head"])
@pytest.mark.parametrize("settings", [*({"bits": b, "distance": "float"} for b in (2, 3, 4, 8)), {"bits": 3}], ids=str)
def test_fitted_numbers_are_equal_bits_too(scope: str, settings: dict[str, int | str]) -> None:
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({**settings, "r": scope}), True)
    values = method.parameters(options, some_fitted(options))
    program = method.program(options)
    host = host_of(program, values, ["codes", "weights", "normalizer"], rank=4)
    for length in LENGTHS[:-1]:
        rows = every_difference(length, DType.F32).astype(np.float32)
        assert_equal_bits(program, values, np.stack([rows, rows - 1, rows * 2])[None].astype(np.float32), None, host)


@pytest.mark.parametrize(("bits", "r"), [(2, 0.5), (3, 0.75), (4, 1.0), (4, 0.613), (8, 16.0)])
def test_codes_at_their_boundaries(bits: int, r: float) -> None:
    method = METHODS.get("deferred-log")
    program = method.program(method.resolve(method.configure({"bits": bits, "r": r, "steps": "equal"}), False))
    host = host_of(program, {}, ["codes", "weights", "normalizer"])
    border = (np.arange(2**bits + 1) + 0.5) / np.float64(np.float32(r * np.log2(np.e)))
    ulps = np.arange(-4, 5, dtype=np.int32)[:, None]
    d = (border.astype(np.float32).view(np.int32) + ulps).view(np.float32).ravel()
    for peak in (0.0, 1.0, -3.25, 1000.0):
        rows = np.stack([np.full_like(d, peak), np.float32(peak) - d, np.float32(peak) - d / 2], axis=-1)
        assert_equal_bits(program, {}, rows.astype(np.float32), None, host)


def probabilities(program: Program, out: Mapping[str, Rows]) -> NDArray[np.float64]:
    if not program.is_pair:
        return out["probabilities"].astype(np.float64)
    return out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)


def test_exact_is_within_its_stated_bound_in_both() -> None:
    program = default_program(METHODS.get("exact"))
    outputs = [name for name in ("probabilities", "weights", "normalizer") if name in program.outputs]
    host = host_of(program, {}, outputs)
    for rows in cases(DType.F32):
        ours = run(program, rows)
        found = dict(zip(outputs, map(np.asarray, host.run(None, {"scores": rows})), strict=True))
        p, q = (probabilities(program, values) for values in (ours, found))
        # Each is within 2e-7 + N * 2^-24 of the exact softmax, relatively, where that is a normal number.
        seen = p > 3e-38
        assert np.max(np.abs(q[seen] / p[seen] - 1)) <= 2 * (2e-7 + rows.shape[-1] * 2.0**-24)
        assert np.max(q[~seen], initial=0) <= 3.1e-38


@pytest.mark.parametrize("name", ["uniform", "log2"])
def test_codes_of_probabilities_differ_rarely_and_by_one(name: str) -> None:
    method = METHODS.get(name)
    program = method.program(method.configure({}))
    output = "codes" if "codes" in program.outputs else "weights"
    host, wrong, total = host_of(program, {}, [output]), 0, 0
    for rows in cases(DType.F32):
        ours = run(program, rows)[output].astype(np.int64)
        theirs = np.asarray(host.run(None, {"scores": rows})[0]).astype(np.int64)
        assert np.max(np.abs(ours - theirs), initial=0) <= 1
        wrong, total = wrong + int(np.sum(ours != theirs)), total + ours.size
    assert wrong <= 1e-5 * total


@pytest.mark.parametrize("name", ALL)
def test_rows_of_special_values_mean_the_same(name: str) -> None:
    inf, nan, most = np.inf, np.nan, np.finfo(np.float32).max
    rows = np.array([[1, 2, 3], [inf, 0, inf], [-inf, -inf, -inf], [nan, 1, 2], [0, nan, inf], [1, -inf, nan],
                     [most, -most, 0], [-inf, 5, inf], [1e-45, 0, -1e-45], [-0.0, 0.0, -0.0]], np.float32)  # fmt: skip
    method = METHODS.get(name)
    program = method.program(method.resolve(method.configure({}), False))
    outputs = [o for o in ("probabilities", "weights", "normalizer") if o in program.outputs]
    ours = run(program, rows)
    for output, theirs in zip(outputs, host_of(program, {}, outputs).run(None, {"scores": rows}), strict=True):
        keep = slice(None)
        if output == "weights":
            keep = ~np.isnan(ours["normalizer"][:, 0])  # what the weights of an undefined row are does not matter
        np.testing.assert_allclose(np.asarray(theirs)[keep], ours[output][keep].astype(np.float32), rtol=1e-6)
