"""The words of the preludes, one by one: both languages' against NumPy and the interpreter's rules, to the bit.

CUDA's run on this computer (tests/cuda_host.py), as they are for old and for new devices; OpenCL's run on PoCL.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from softq.rowprog import DType
from softq.rowprog.evaluation import Environment
from softq.rowprog.program import Node
from softq.rowprog.types import Kind
from tests import cuda_host, opencl

Array = NDArray[np.generic]
Words = NDArray[np.uint32]
F32 = np.float32

# What a word makes of the elements a, b and c of three arrays of 32 bits; the result as 32 bits, too.
WORDS = {
    "nearest": "(u32)nearest(FLOAT(a))",
    "nearest_bits": "nearest_bits(FLOAT(a))",
    "rint": "BITS(ROUND(FLOAT(a)))",
    "mul": "BITS(PRODUCT(FLOAT(a), FLOAT(b)))",
    "product_and_sum": "BITS(PRODUCT(FLOAT(a), FLOAT(b)) + FLOAT(c))",
    "divide": "BITS(QUOTIENT(FLOAT(a), FLOAT(b)))",
    "sqrt": "BITS(ROOT(FLOAT(a)))",
    "log2": "BITS(LOG2(FLOAT(a)))",
    "exp_minus": "BITS(exp_minus(FLOAT(a)))",
    "min": "BITS(LESSER(FLOAT(a), FLOAT(b)))",
    "max": "BITS(GREATER(FLOAT(a), FLOAT(b)))",
    "greater_or_nan": "BITS(greater_or_nan(FLOAT(a), FLOAT(b)))",
    "zeros": "(u32)ZEROS(a)",
    "from_f16": "BITS(from_f16(a & 0xffffu))",
    "from_bf16": "BITS(from_bf16(a & 0xffffu))",
    "to_f16": "to_f16(FLOAT(a))",
    "to_bf16": "to_bf16(FLOAT(a))",
    "two_f16": "two_f16(FLOAT(a), FLOAT(b))",
    "two_bf16": "two_bf16(FLOAT(a), FLOAT(b))",
    **{f"dot4_{x}_{y}": f"(u32)DOT4({x}, {y}, a, b, (i32)c)" for x in ("i8", "u8") for y in ("i8", "u8")},
}
# A group of four words a thread: c says which are wanted.
LOADS = {
    "load_words": "load_words(into, from + 4 * t, wanted); for (i32 k = 0; k < 4; k++) out[k] = into[k];",
    "copy_16": "COPY_16(held + 4 * t, from + 4 * t, wanted); for (i32 k = 0; k < 4; k++) out[k] = held[4 * t + k];",
    "bytes_4": "for (i32 k = 0; k < 4; k++) out[k] = bytes_4((const GLOBAL u8 *)from + 16 * t, 3 * k - t);",
    "halves_2": "for (i32 k = 0; k < 4; k++) out[k] = halves_2((const GLOBAL u16 *)from + 8 * t, k - 1 - t % 2);",
}
THREADS = 64
_KERNEL = """
KERNEL({threads}) of_{name}(
    const GLOBAL u32 *a_, const GLOBAL u32 *b_, const GLOBAL u32 *c_, GLOBAL u32 *y, i32 count
) {{
    for (i32 i = THREAD; i < count; i += {threads}) {{
        const u32 a = a_[i], b = b_[i], c = c_[i];
        (void)b, (void)c;
        y[i] = {word};
    }}
}}
"""
_LOAD = """
KERNEL({threads}) of_{name}(
    const GLOBAL u32 *from, const GLOBAL u32 *b_, const GLOBAL u32 *c_, GLOBAL u32 *y, i32 count
) {{
    SHARED __attribute__((aligned(16))) u32 held[4 * {threads}];
    const i32 t = THREAD;
    const bool wanted = c_[t] != 0;
    u32 into[4];
    GLOBAL u32 *out = y + 4 * t;
    (void)held, (void)into, (void)wanted, (void)b_, (void)count;
    {word}
}}
"""
TEXT = "".join(_KERNEL.format(threads=THREADS, name=name, word=word) for name, word in WORDS.items()) + "".join(
    _LOAD.format(threads=THREADS, name=name, word=word) for name, word in LOADS.items()
)

Backend = Callable[[str, Words, Words, Words], Words]


def on_host(library: ctypes.CDLL) -> Backend:
    def call(name: str, a: Words, b: Words, c: Words) -> Words:
        y = np.full(len(a), 0xA5A5A5A5, np.uint32)
        for thread in range(THREADS):
            library.at_thread(thread)
            library[f"of_{name}"](*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c, y)), len(a))
        return y

    return call


def on_pocl(name: str, a: Words, b: Words, c: Words) -> Words:
    y = np.full(len(a), 0xA5A5A5A5, np.uint32)
    (found,) = opencl.launch(pocl_kernel(name), 1, THREADS, [a, b, c, y, np.int32(len(a))], [3])
    return found.view(np.uint32)


@functools.cache
def pocl_kernel(name: str) -> Any:
    return getattr(pocl_program(), f"of_{name}")


@functools.cache
def pocl_program() -> Any:
    return opencl.compiled(TEXT, "of_nearest").program


@pytest.fixture(scope="module", params=["cuda-750", "cuda-800", "opencl"])
def words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    language, _, architecture = request.param.partition("-")
    if language == "opencl":
        opencl.device()
        return on_pocl
    return on_host(cuda_host.compiled(TEXT, int(architecture), tmp_path_factory.mktemp("words")))


RNG = np.random.default_rng(19)
SPECIAL = np.array(
    [0, 1, 2, 3, 7, 0.5, 1.5, 2.5, 0.1, 1 / 3, 1e-7, 1e-45, 1.1754944e-38, 5.9604645e-8, 2.9802322e-8, 65504, 65519.996,
     65520, 3.3895314e38, 3.3961776e38, 3.4028235e38, np.inf, np.nan], F32
)  # fmt: skip


def floats(*more: Array) -> NDArray[np.float32]:
    """Return special numbers of both signs, random bits, and more."""
    bits = RNG.integers(0, 1 << 32, 4096, dtype=np.uint32).view(F32)
    return np.concatenate([SPECIAL, -SPECIAL, bits, *(np.asarray(x, F32) for x in more)])


def ties(kind: type[Any]) -> NDArray[np.float32]:
    """Return every number of 16 bits, the middle between it and the next, and what lies beside both."""
    with np.errstate(invalid="ignore"):
        held = np.arange(1 << 15, dtype=np.uint16).view(kind).astype(np.float64)
    held = held[np.isfinite(held)]
    middle = held + np.diff(held, append=held[-1] * 2 - held[-2]) / 2
    every = np.concatenate([held, middle]).astype(F32)
    with np.errstate(all="ignore"):
        every = np.concatenate([every, np.nextafter(every, F32(np.inf)), np.nextafter(every, F32(-np.inf))])
    return np.concatenate([every, -every])


def pairs() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return every two of the special numbers, and random ones."""
    each = np.concatenate([SPECIAL, -SPECIAL])
    first, second = np.meshgrid(each, each)
    near = RNG.normal(size=(2, 1 << 14)).astype(F32)
    bits = RNG.integers(0, 1 << 32, (2, 1 << 14), dtype=np.uint32).view(F32)
    return np.concatenate([first.ravel(), near[0], bits[0]]), np.concatenate([second.ravel(), near[1], bits[1]])


def whole(*operands: Array) -> list[Words]:
    """Return three arrays of words of equal length."""
    given = [np.ascontiguousarray(x).view(np.uint32) for x in operands]
    return [*given, *(np.zeros(len(given[0]), np.uint32) for _ in range(3 - len(given)))]


def same(found: Array, expected: Array) -> None:
    """Compare floats to the bit; one NaN is as good as another."""
    np.testing.assert_array_equal(np.isnan(found.astype(F32)), np.isnan(expected.astype(F32)))
    numbers = ~np.isnan(expected.astype(F32))
    unsigned = np.dtype(f"uint{8 * found.itemsize}")
    np.testing.assert_array_equal(found.view(unsigned)[numbers], expected.view(unsigned)[numbers])


_TYPES: dict[np.dtype[Any], DType] = {np.dtype(F32): DType.F32, np.dtype(np.uint32): DType.U32}


def interpreted(op: str, *operands: NDArray[np.generic], **attrs: str) -> Array:
    """Return what the interpreter makes of operands."""
    given = {Node("input", (), _TYPES[x.dtype], Kind.ROW): x for x in operands}
    result = DType.F32 if operands[0].dtype == F32 else DType.I32
    with np.errstate(all="ignore"):
        return Environment(operands[0].shape, given).evaluate(Node(op, tuple(given), result, Kind.ROW, attrs))


def test_the_nearest_integer(words: Backend) -> None:
    codes = np.arange(-1024, 1025) / 2
    edge = 2.0**22 - np.arange(64) / 2
    x = np.concatenate([codes, edge, -edge, RNG.uniform(-(2.0**22), 2.0**22, 1 << 14), RNG.normal(size=1 << 12)])
    near = x.astype(F32)
    inside = [np.nextafter(near, F32(np.inf)), np.nextafter(near, F32(-np.inf))]
    every = np.concatenate([near, *(np.clip(x, -(2**22), 2**22) for x in inside)]).astype(F32)
    expected = np.rint(every).astype(np.int32)
    np.testing.assert_array_equal(words("nearest", *whole(every)).view(np.int32), expected)
    np.testing.assert_array_equal(
        (words("nearest_bits", *whole(every)) - np.uint32(0x4B400000)).view(np.int32), expected
    )


@pytest.mark.parametrize("name", ["rint", "sqrt"])
def test_operators_of_one(words: Backend, name: str) -> None:
    x = floats(np.arange(-512, 512) / 4)
    if name == "sqrt":
        x = x[~(x < 0)]
    same(words(name, *whole(x)).view(F32), interpreted(name, x))


@pytest.mark.parametrize("name", ["mul", "divide"])
def test_products_and_quotients(words: Backend, name: str) -> None:
    a, b = pairs()
    same(words(name, *whole(a, b)).view(F32), interpreted(name, a, b))


def test_a_product_is_rounded_before_it_is_added(words: Backend) -> None:
    a, b = RNG.normal(size=(2, 1 << 14)).astype(F32)
    product = a * b
    same(words("product_and_sum", *whole(a, b, -product)).view(F32), product - product)


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_second_is_taken_where_the_first_is_no_number(words: Backend, name: str) -> None:
    a, b = pairs()
    wanted = ~np.isnan(b) & ~((a == 0) & (b == 0))  # of two zeros either will do
    a, b = a[wanted], b[wanted]
    same(words(name, *whole(a, b)).view(F32), interpreted(name, a, b))


def test_the_greater_is_nan_if_either_is(words: Backend) -> None:
    a, b = pairs()
    wanted = ~((a == 0) & (b == 0))
    a, b = a[wanted], b[wanted]
    same(words("greater_or_nan", *whole(a, b)).view(F32), np.maximum(a, b))


@pytest.mark.parametrize("name", ["log2", "exp_minus"])
def test_logarithms_and_exponentials(words: Backend, name: str) -> None:
    """Two units in the last place, or three of OpenCL, of what is no subnormal number."""
    x = RNG.uniform(0, 87, 1 << 14).astype(F32) if name == "exp_minus" else np.abs(floats())[46:]
    x = x[np.isfinite(x) & (x > 1e-37)] if name == "log2" else x
    exact = np.log2(x.astype(np.float64)) if name == "log2" else np.exp(-x.astype(np.float64))
    found = words(name, *whole(x)).view(F32)
    assert np.all(np.abs(found - exact) <= 3 * np.spacing(np.abs(exact).astype(F32)))
    ends = np.array([0, np.inf, np.nan], F32) if name == "exp_minus" else np.array([1, np.inf, np.nan], F32)
    same(
        words(name, *whole(ends)).view(F32),
        np.array([1, 0, np.nan] if name == "exp_minus" else [0, np.inf, np.nan], F32),
    )


def test_leading_zeros(words: Backend) -> None:
    x = np.concatenate([[0xFFFFFFFF], *(((1 << k) - 1, 1 << k, (1 << k) + 1) for k in range(1, 32))]).astype(np.uint32)
    expected = interpreted("normalize", x, part="shift")
    np.testing.assert_array_equal(words("zeros", *whole(x)).view(np.int32), expected)
    assert words("zeros", *whole(np.zeros(1, np.uint32)))[0] == 32


@pytest.mark.parametrize(("kind", "name"), [(np.float16, "f16"), (ml_dtypes.bfloat16, "bf16")])
def test_floats_of_16_bits(words: Backend, kind: type[Any], name: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32)
    same(words(f"from_{name}", *whole(every)).view(F32), every.astype(np.uint16).view(kind).astype(F32))
    x = floats(ties(kind))
    other = x[RNG.permutation(len(x))]
    with np.errstate(all="ignore"):
        low, high = x.astype(kind), other.astype(kind)
    alone = words(f"to_{name}", *whole(x))
    assert np.all(alone < 1 << 16)
    same(alone.astype(np.uint16).view(kind), low)
    both = words(f"two_{name}", *whole(x, other))
    same((both & 0xFFFF).astype(np.uint16).view(kind), low)
    same((both >> 16).astype(np.uint16).view(kind), high)


@pytest.mark.parametrize("left", ["i8", "u8"])
@pytest.mark.parametrize("right", ["i8", "u8"])
def test_sums_of_products_of_bytes(words: Backend, left: str, right: str) -> None:
    corners = np.array([0, 1, 127, 128, 129, 255], np.uint8)
    a, b = (RNG.choice(corners, 1 << 14).view(np.uint32) for _ in range(2))
    random = RNG.integers(0, 1 << 32, (2, 1 << 12), dtype=np.uint32)
    a, b = np.concatenate([a, random[0]]), np.concatenate([b, random[1]])
    sums = RNG.integers(-(1 << 30), 1 << 30, len(a), dtype=np.int32)
    x, y = (v.view({"i8": np.int8, "u8": np.uint8}[kind]).astype(np.int64) for v, kind in ((a, left), (b, right)))
    expected = (x * y).reshape(-1, 4).sum(-1) + sums
    np.testing.assert_array_equal(words(f"dot4_{left}_{right}", *whole(a, b, sums)).view(np.int32), expected)


@pytest.mark.parametrize("name", LOADS)
def test_loads(words: Backend, name: str) -> None:
    raw = RNG.integers(0, 256, THREADS * 16, dtype=np.uint8)
    wanted = np.tile(np.arange(THREADS, dtype=np.uint32) % 3, 4)
    found = words(name, raw.view(np.uint32), wanted, wanted).reshape(THREADS, 4)
    for t in range(THREADS):
        mine = raw[16 * t : 16 * t + 16]
        for k in range(4):
            if name == "bytes_4":
                part = mine[: min(max(3 * k - t, 0), 4)]
            elif name == "halves_2":
                part = mine[: 2 * min(max(k - 1 - t % 2, 0), 2)]
            else:
                part = mine[4 * k : 4 * k + 4] if wanted[t] else mine[:0]
            assert found[t, k] == int.from_bytes(part.tobytes(), "little"), (name, t, k)
