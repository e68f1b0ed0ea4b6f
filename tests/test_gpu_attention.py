"""Attention in one kernel: as OpenCL on PoCL, with tensor cores' fragments in plain arithmetic; compiled by nvcc."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.artifact.device import nvcc
from softq.codegen.gpu.attention import Codes, Shape, codes_of, write_attention
from softq.codegen.gpu.attention.tiles import THREADS
from softq.codegen.gpu.dialect.dialects import CUDA
from softq.errors import RefusalError, UsageError
from softq.methods import METHODS
from softq.rowprog import run
from tests.opencl import compiled, launch
from tests.test_gpu_rows import as_bf16, from_bf16, program_of
from tests.test_methods import default_program

Array = NDArray[np.generic]
F64 = NDArray[np.float64]

PLAIN = program_of("deferred-log", {"bits": 4, "r": 1})
GROWING = program_of("deferred-log", {"bits": 3, "r": 5, "steps": "growing"})
SHAPED = program_of("deferred-log", {"bits": 2, "r": 1.3, "first": 0.8, "shift": 0.2, "slope": 0.2, "steps": "growing"})
BYTES = program_of("deferred-log", {"bits": 4, "distance": "byte"})
NARROW = program_of("deferred-log", {"bits": 3, "r": 1})


class Attention:
    """A kernel on PoCL."""

    def __init__(self, codes: Codes, shape: Shape) -> None:
        self.codes, self.shape = codes, shape
        self._kernel = compiled(write_attention(codes, shape, symbol="attention"), "attention")

    def __call__(self, q: Array, k: Array, v: Array, *, scale: float, keep: Array | None = None) -> F64:
        """Return the output for heads [B, H, rows, width] given as bits of 16."""
        batch, heads, queries = q.shape[:3]
        share = heads // k.shape[1]
        rate = np.float32(np.float32(self.codes.rate) * np.float32(scale))
        arguments: list[Any] = [q, k, v]
        if keep is not None:
            arguments.append(np.ascontiguousarray(keep).view(np.uint8))
        position = len(arguments)
        arguments += [np.zeros(q.shape, np.uint16), np.int32(queries), np.int32(k.shape[2]), np.int32(share), rate]
        if keep is not None:
            strides = [0 if n == 1 else s // keep.itemsize for n, s in zip(keep.shape, keep.strides, strict=True)]
            arguments += [np.int32(heads), *map(np.int64, strides)]
        blocks = batch * heads * -(-queries // self.shape.queries)
        (found,) = launch(self._kernel, blocks, THREADS, arguments, [position])
        return value_of(found, self.shape.kind)


def value_of(bits: Array, kind: str) -> F64:
    whole = bits.astype(np.uint16)
    return (whole.view(np.float16) if kind == "f16" else from_bf16(whole)).astype(np.float64)


def inputs(kind: str, batch: int, heads: int, queries: int, keys: int, width: int, share: int = 1, seed: int = 0
           ) -> tuple[Array, Array, Array]:  # fmt: skip
    rng = np.random.default_rng(seed)
    shapes = [(batch, heads, queries, width), *[(batch, heads // share, keys, width)] * 2]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    q, k, v = (x.astype(np.float16).view(np.uint16) if kind == "f16" else as_bf16(x) for x in arrays)
    return q, k, v


def reference(codes: Codes, kind: str, q: Array, k: Array, v: Array, scale: float, keep: Array | None = None) -> F64:
    """The attention in float64: codes of each score's distance from its row's maximum."""
    share = q.shape[1] // k.shape[1]
    queries, keys, values = (value_of(x, kind) for x in (q, k.repeat(share, 1), v.repeat(share, 1)))
    scores = queries @ np.swapaxes(keys, -1, -2) * scale
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
    top = np.maximum(np.max(scores, -1, keepdims=True, initial=-np.inf), -3.4e38)
    level = (top - scores) * codes.rate
    level = np.sqrt(np.maximum(level + codes.offset, 0)) - codes.shift if codes.root else level
    weights = np.array(codes.table, np.float64)[np.clip(np.rint(level), 0, len(codes.table) - 1).astype(int)]
    return weights @ values / np.maximum(np.sum(weights, -1, keepdims=True), 1e-300)


def assert_close(found: F64, wanted: F64, kind: str) -> None:
    """A score next to the boundary of a code may fall on its other side, which moves a row by a share of one weight."""
    error = np.abs(found - wanted)
    rounding = 2.0**-10 if kind == "f16" else 2.0**-7
    assert np.mean(error) <= 1.5 * rounding
    assert np.quantile(error, 0.98) <= 4 * rounding
    assert np.max(error) <= 0.2


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("kind", "width"), [("f16", 64), ("bf16", 64), ("f16", 128)])
@pytest.mark.parametrize("program", [PLAIN, GROWING, SHAPED, BYTES], ids=lambda p: p.structure)
def test_two_phases_give_the_codes_of_the_row_program(kind: str, width: int, program: Any) -> None:
    codes = codes_of(program)
    attention = Attention(codes, Shape(kind, width))
    for queries, keys in ((1, 1), (5, 40), (130, 65)):
        q, k, v = inputs(kind, 1, 2, queries, keys, width)
        found = attention(q, k, v, scale=width**-0.5)
        assert_close(found, reference(codes, kind, q, k, v, width**-0.5), kind)
    # Scores that are whole codes apart: nothing is near a boundary, and the row program's weights decide to the bit.
    rng = np.random.default_rng(1)
    q, k, v = (np.zeros((1, 1, n, width), np.float16) for n in (3, 70, 70))
    q[..., 0] = [1, 0.5, 2]
    k[0, 0, :, 0] = -rng.integers(0, 20, 70)
    v[0, 0] = rng.integers(0, 3, (70, width))
    bits = [x.view(np.uint16) if kind == "f16" else as_bf16(x.astype(np.float32)) for x in (q, k, v)]
    x = (q.astype(np.float64) @ np.swapaxes(k.astype(np.float64), -1, -2) * np.log(2) / 1.001).astype(np.float32)
    out = run(program, x)
    wanted = out["weights"].astype(np.float64) @ v.astype(np.float64) / out["normalizer"].astype(np.float64)
    found = attention(bits[0], bits[1], bits[2], scale=np.log(2) / 1.001)
    np.testing.assert_allclose(found, wanted, rtol=2.0**-10 if kind == "f16" else 2.0**-7, atol=2e-3)


@pytest.mark.parametrize("online", [False, True])
def test_a_causal_mask_and_shared_keys(online: bool) -> None:
    codes = codes_of(PLAIN)
    attention = Attention(codes, Shape("f16", 64, causal=True, online=online))
    for queries, keys in ((70, 70), (3, 100), (40, 33)):
        q, k, v = inputs("f16", 2, 4, queries, keys, 64, share=2)
        keep = np.arange(keys)[None] <= np.arange(queries)[:, None] + keys - queries
        found = attention(q, k, v, scale=0.125)
        wanted = reference(codes, "f16", q, k, v, 0.125, keep)
        if not online:
            assert_close(found, wanted, "f16")
        # A row that sees no key is 0.
        np.testing.assert_array_equal(found[:, :, ~keep.any(-1)], 0)
        assert np.sqrt(np.mean((found - wanted) ** 2)) <= 0.06


@pytest.mark.parametrize("shape", [(2, 3, 20, 40), (1, 1, 20, 40), (2, 1, 1, 40), (1, 3, 20, 1)], ids=str)
def test_a_mask_of_bytes_broadcasts(shape: tuple[int, ...]) -> None:
    codes = codes_of(GROWING)
    keep = np.random.default_rng(2).random(shape) < 0.7
    q, k, v = inputs("f16", 2, 3, 20, 40, 64)
    found = Attention(codes, Shape("f16", 64, masked=True))(q, k, v, scale=0.125, keep=keep)
    wanted = reference(codes, "f16", q, k, v, 0.125, np.broadcast_to(keep, (2, 3, 20, 40)))
    assert_close(found, wanted, "f16")


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("program", [NARROW, SHAPED], ids=lambda p: p.structure)
def test_rows_with_special_scores(online: bool, program: Any) -> None:
    codes = codes_of(program)
    attention = Attention(codes, Shape("f16", 64, online=online and codes.halving))
    q, k, v = (value_of(x, "f16").astype(np.float16) for x in inputs("f16", 1, 1, 4, 70, 64))
    q[:], k[..., 1:] = 0, 0
    q[..., 0] = 1
    k[0, 0, :, 0] = 0
    k[0, 0, [3, 40], 0] = np.inf
    k[0, 0, 5, 0] = -np.inf
    q[0, 0, 1, 0], q[0, 0, 2, 1] = np.nan, np.nan
    q[0, 0, 3, 0] = -1
    found = attention(q.view(np.uint16), k.view(np.uint16), v.view(np.uint16), scale=1.0)[0, 0]
    values = v[0, 0].astype(np.float64)
    np.testing.assert_allclose(found[0], values[[3, 40]].mean(0), rtol=1e-3, atol=1e-3)
    assert np.all(np.isnan(found[[1, 2]]))
    np.testing.assert_allclose(found[3], values[5], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("width", [64, 128])
def test_one_pass_is_nearly_as_near_to_the_exact_attention_as_two(width: int) -> None:
    codes, kind = codes_of(PLAIN), "f16"
    q, k, v = inputs(kind, 1, 1, 64, 300, width, seed=3)
    k[0, 0] = k[0, 0][np.argsort(value_of(k, kind)[0, 0, :, 0])]  # maxima that rise
    scale, errors = 2 * width**-0.5, dict[bool, float]()
    scores = value_of(q, kind) @ np.swapaxes(value_of(k, kind), -1, -2) * scale
    p = np.exp(scores - scores.max(-1, keepdims=True))
    exact = p @ value_of(v, kind) / p.sum(-1, keepdims=True)
    for online in (False, True):
        found = Attention(codes, Shape(kind, width, online=online))(q, k, v, scale=scale)
        errors[online] = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    assert errors[False] < 0.12
    # Of codes against a reference near the maximum, that of the greatest weight is rounded too.
    assert errors[True] < 1.7 * errors[False]


needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")


@needs_nvcc
@pytest.mark.slow  # Those of epilogues are in the quick run, and tests/test_gpu_build.py compiles attentions.
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_kernels_compile_and_spill_nothing(arch: str) -> None:
    kinds = ("f16",) if arch == "sm_75" else ("f16", "bf16")  # sm_75 multiplies no bf16
    text, count = CUDA.prelude(), 0
    for kind in kinds:
        for width in (64, 128):
            for program, given in ((PLAIN, {"causal": True}), (PLAIN, {"online": True}), (GROWING, {"masked": True}),
                                   (SHAPED, {})):  # fmt: skip
                text += write_attention(codes_of(program), Shape(kind, width, **given), symbol=f"a{count}")
                count += 1
    used = nvcc.compiled(text, arch).usage
    assert len(used) == count
    for symbol, usage in used.items():
        assert usage.spilled == 0, (symbol, usage)
        assert usage.shared <= 48 * 1024, (symbol, usage)


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(RefusalError, match="weights"):
        codes_of(default_program(METHODS.get("exact")))
    with pytest.raises(UsageError, match="attention of f32 with heads of 64"):
        write_attention(codes_of(PLAIN), Shape("f32", 64), symbol="a")
    with pytest.raises(UsageError, match="weights that halve"):
        write_attention(codes_of(GROWING), Shape("f16", 64, online=True), symbol="a")
