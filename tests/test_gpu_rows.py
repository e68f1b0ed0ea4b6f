"""Row kernels for GPUs give the interpreter's bits: as OpenCL on PoCL, in every form, for every method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.codegen.common.patterns import output_type
from softq.codegen.gpu.dialect.dialects import OPENCL
from softq.codegen.gpu.rows import Tiling, row_kernel
from softq.codegen.gpu.rows.tiling import choose_tiling
from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program, run
from softq.rowprog.program import quotient
from softq.rowprog.tabulate import tabulate_or_keep
from tests.opencl import OpenCl
from tests.test_methods import ALL, default_program, some_fitted

Array = NDArray[np.generic]
Settings = dict[str, int | float | str]

FLOATS: list[tuple[str, Settings]] = [
    ("deferred-log", {"bits": 2, "r": 0.5}),
    ("deferred-log", {"bits": 4, "r": 1}),
    ("deferred-log", {"bits": 8, "r": 16}),
    ("deferred-log", {"bits": 3, "r": 5, "steps": "growing"}),
    ("deferred-log", {"bits": 4, "distance": "byte"}),
    ("deferred-log", {"bits": 2, "rest": "mean"}),
]
INTEGERS: list[tuple[str, Settings, DType]] = [
    ("deferred-log", {"bits": 4, "r": 1, "step": 0.1}, DType.I8),
    ("deferred-log", {"bits": 8, "r": 16, "step": 0.03}, DType.U8),
    ("deferred-log", {"bits": 3, "r": 5, "steps": "growing", "step": 0.1}, DType.I8),
    ("deferred-log", {"bits": 2, "rest": "mean", "step": 0.1}, DType.I8),
    ("i-exp", {"step": 0.05}, DType.I8),
    ("index-softmax", {"step": 0.05}, DType.I8),
    ("shiftmax", {"step": 0.05}, DType.I8),
    ("ita", {"step": 0.05}, DType.I8),
    ("e2softmax", {"step": 0.05}, DType.I8),
    ("softermax", {"step": 0.05}, DType.I8),
    ("exaq", {"step": 0.05}, DType.I8),
    ("log-int", {"step": 0.05}, DType.I8),
    ("tflite-int8", {"step": 0.05}, DType.I8),
    ("xnn-qu8", {"step": 0.05}, DType.U8),
]
QUICK = ("deferred-log", "edge-moe", "exact", "top-k", "uniform")
LENGTHS = (0, 1, 2, 3, 7, 8, 16, 17, 50, 64, 197, 1000, 1024, 1030, 4096)


def program_of(name: str, settings: Mapping[str, int | float | str], kind: DType = DType.F32, masked: bool = False
               ) -> Program:  # fmt: skip
    method = METHODS.get(name)
    return method.program(method.resolve(method.configure(settings), False), scores=kind, masked=masked)


def rows_of(shape: tuple[int, ...], kind: DType, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if kind.is_float:
        return (rng.normal(size=shape) * rng.choice([0.3, 3.0, 20.0], (*shape[:-1], 1))).astype(np.float32)
    return rng.integers(kind.low, kind.high + 1, shape).astype(kind.numpy)


def assert_same(host: OpenCl, scores: Array, *, valid: Array | None = None, params: Mapping[str, Array] | None = None
                ) -> None:  # fmt: skip
    """Compare a kernel with the interpreter, bit for bit; zeros of either sign and any NaN are alike."""
    ours = run(host.program, scores, valid=valid, params=params)
    for name, value in host(scores, valid=valid, params=params).items():
        wanted = ours[name].astype(output_type(host.program, name).numpy)
        np.testing.assert_array_equal(value, wanted, err_msg=f"{name} {scores.shape} {host.form(scores.shape[-1])}")


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize(("name", "settings", "kind"), [
    (*FLOATS[1], DType.F32), INTEGERS[0],
    *(pytest.param(*each, marks=pytest.mark.slow) for each in (*((*f, DType.F32) for f in FLOATS), *INTEGERS[1:3])),
])  # fmt: skip
def test_any_length(name: str, settings: Settings, kind: DType, masked: bool) -> None:
    program = program_of(name, settings, kind, masked)
    host = OpenCl(program, outputs=list(program.outputs))
    for length in LENGTHS:
        rows = rows_of((7, length), kind, length)
        keep = np.random.default_rng(length).random(rows.shape) < 0.7
        keep[2] = False
        assert_same(host, rows, valid=keep if masked else None)


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize(
    ("name", "settings", "kind"), [*INTEGERS[:1], *(pytest.param(*i, marks=pytest.mark.slow) for i in INTEGERS[1:])]
)
def test_every_pair_of_a_maximum_and_a_score(name: str, settings: Settings, kind: DType, masked: bool) -> None:
    values = np.arange(kind.low, kind.high + 1)
    pairs = np.minimum(values[None], values[:, None]).astype(kind.numpy)  # row m: every score up to m
    keep = np.random.default_rng(1).random(pairs.shape) < 0.8
    keep[::9] = False
    program = program_of(name, settings, kind, masked)
    folded = tabulate_or_keep(program)[0]
    for each in (program,) if folded is program else (program, folded):
        assert_same(OpenCl(each, outputs=list(each.outputs), max_length=256), pairs, valid=keep if masked else None)


def two_a_byte(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    padded = np.concatenate([codes, np.zeros((*codes.shape[:-1], codes.shape[-1] % 2), np.uint8)], axis=-1)
    return np.bitwise_or(padded[..., ::2], np.left_shift(padded[..., 1::2], 4))


@pytest.mark.parametrize(("settings", "kind"), [
    ({"bits": 4, "r": 1}, DType.F32), ({"bits": 3, "r": 0.75}, DType.F32), ({"bits": 4, "r": 1, "step": 0.1}, DType.I8),
], ids=str)  # fmt: skip
def test_codes_of_four_bits_stand_two_a_byte(settings: Settings, kind: DType) -> None:
    program = tabulate_or_keep(program_of("deferred-log", settings, kind))[0]
    host = OpenCl(program, outputs=("codes", "normalizer"), nibbles=("codes",))
    for length in (0, 1, 2, 5, 16, 33, 64, 197, 1024, 1025):
        rows = rows_of((5, length), kind, length)
        ours, found = run(program, rows), host(rows)
        np.testing.assert_array_equal(found["codes"], two_a_byte(ours["codes"].astype(np.uint8)), err_msg=str(length))
        np.testing.assert_array_equal(found["normalizer"], ours["normalizer"].astype(np.float32))


@pytest.mark.parametrize(("bits", "r"), [(2, 0.5), (4, 1.0), (4, 0.613), (8, 16.0)])
def test_codes_at_their_boundaries(bits: int, r: float) -> None:
    program = program_of("deferred-log", {"bits": bits, "r": r, "steps": "equal"})
    host = OpenCl(program, outputs=list(program.outputs), form=Tiling(32, 1, 0, False))
    border = (np.arange(2**bits + 1) + 0.5) / np.float64(np.float32(r * np.log2(np.e)))
    ulps = np.arange(-4, 5, dtype=np.int32)[:, None]
    d = (border.astype(np.float32).view(np.int32) + ulps).view(np.float32).ravel()
    for peak in (0.0, 1.0, -3.25, 1000.0):
        assert_same(host, np.concatenate([[np.float32(peak)], np.float32(peak) - d]).astype(np.float32)[None])
        assert_same(host, np.stack([np.full_like(d, peak), np.float32(peak) - d / 2], axis=-1).astype(np.float32))


@pytest.mark.parametrize("scope", ["site", "head"])
@pytest.mark.parametrize("settings", [
    {"bits": 4, "distance": "float"}, {"bits": 3},
    *(pytest.param({"bits": bits, "distance": "float"}, marks=pytest.mark.slow) for bits in (2, 8)),
], ids=str)  # fmt: skip
def test_parameters_of_a_site_and_of_heads(scope: str, settings: dict[str, int | str]) -> None:
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({**settings, "r": scope}), True)
    values = dict(method.parameters(options, some_fitted(options)))
    for masked in (False, True):
        program = method.program(options, masked=masked)
        host = OpenCl(program, outputs=list(program.outputs))
        for length in (1, 50, 64):
            rows = rows_of((2, 3, 5, length), DType.F32)
            keep = np.random.default_rng(0).random((2, 1, 5, length)) < 0.7
            assert_same(host, rows, params=values, valid=keep if masked else None)


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 64), (1, 1, 1, 64), (2, 1, 1, 64), (1, 3, 5, 1), (2, 1, 5, 1), (64,)], ids=str
)
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    program = program_of("deferred-log", {"bits": 4, "r": 1}, masked=True)
    keep = np.random.default_rng(3).random(shape) < 0.6
    assert_same(OpenCl(program), rows_of((2, 3, 5, 64), DType.F32), valid=keep)


FORMS = [
    Tiling(4, 4, 8, True, True), Tiling(32, 4, 1, True, True), Tiling(32, 4, 2, True), Tiling(32, 1, 4, False, True),
    Tiling(64, 4, 0, True), Tiling(256, 1, 0, False), Tiling(512, 4, 1, True, True), Tiling(1, 1, 0, False),
    Tiling(32, 2, 4, False), Tiling(8, 1, 16, False), Tiling(8, 4, 4, True, shared=2),
    Tiling(8, 1, 16, False, shared=10),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
def test_every_form_gives_the_same(form: Tiling) -> None:
    # Sparsemax and top-k go along the row many times, which takes as long to compile for any form.
    long = ("top-k", "sparsemax") if form in (FORMS[1], FORMS[5]) else ()
    for name, settings in (("deferred-log", {"bits": 4, "r": 1}), *((name, {}) for name in long)):
        program = program_of(name, settings)
        host, exact = OpenCl(program, outputs=list(program.outputs), form=form), name == "deferred-log"
        for length in (4, 100, 128):
            rows = rows_of((9, length), DType.F32, length)
            if exact:
                assert_same(host, rows)
                continue
            ours, found = run(program, rows), host(rows)
            for output, value in found.items():
                wanted = ours[output].astype(np.float64)
                np.testing.assert_allclose(value.astype(np.float64), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", [Tiling(8, 4, 4, True, shared=2), Tiling(256, 2, 4, False, shared=3)], ids=str)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_chunks_in_shared_memory(form: Tiling, kind: str) -> None:
    program = program_of("deferred-log", {"bits": 4, "r": 1}, masked=True)
    host = OpenCl(program, outputs=("codes", "normalizer"), nibbles=("codes",), scores=kind, form=form)
    for length in (4, 100, 128):
        rows = rows_of((19, length), DType.F32, length).astype(np.float16)
        keep = np.random.default_rng(length).random(rows.shape) < 0.7
        for valid in (keep, keep[:, :1]):
            ours = run(program, rows.astype(np.float32), valid=valid)
            found = host(rows.astype(np.float32) if kind == "f32" else rows, valid=valid)
            np.testing.assert_array_equal(found["codes"], two_a_byte(ours["codes"].astype(np.uint8)))
            np.testing.assert_array_equal(found["normalizer"], ours["normalizer"].astype(np.float32))


@pytest.mark.parametrize(("length", "form"), [
    (65_536, "g1024_c4a_8r8m"), (32_772, "g1024_c4a_8r8m"), (65_535, "g1024_c1u_24r40m"), (16_385, "g1024_c1u_24r8m"),
])  # fmt: skip
def test_long_rows_are_read_once(length: int, form: str) -> None:
    host = OpenCl(program_of("deferred-log", {"bits": 4, "r": 1}, masked=True))
    assert host.form(length).name == form
    rows = rows_of((3, length), DType.F32, length)
    rows[0, -1], rows[1] = 1e3, -np.inf
    assert_same(host, rows, valid=np.random.default_rng(length).random(rows.shape) < 0.7)


def test_the_form_is_one_that_the_memory_holds() -> None:
    names = {most: choose_tiling(65_536, 4, shared_bytes=most << 10).name for most in (0, 64, 99, 163, 227)}
    large = "g1024_c4a_8r8m"
    assert names == {0: "g512_c4a_s", 64: "g512_c4a_s", 99: "g512_c4a_s", 163: large, 227: large}
    assert choose_tiling(65_540, 4, shared_bytes=227 << 10).name == "g512_c4a_s"
    assert choose_tiling(65_536, 2, shared_bytes=227 << 10).name == "g1024_c8a_8r"
    assert choose_tiling(65_535, 2, shared_bytes=163 << 10).name == "g512_c1u_s"
    # Few threads have more registers each.
    assert {choose_tiling(1021, 4, shared_bytes=most).name for most in (0, 227 << 10)} == {"g32_c1u_32h"}
    kernel = row_kernel(program_of(*FLOATS[1]), choose_tiling(65_536, 4, shared_bytes=163 << 10), OPENCL, symbol="k",
                        max_length=65_536)  # fmt: skip
    assert kernel.shared_bytes == 128 << 10


def softmax64(x: Array) -> NDArray[np.float64]:
    """The bound is of e^-d for the float32 distance d from the maximum."""
    e = np.exp((x - np.max(x, axis=-1, keepdims=True)).astype(np.float64))
    return e / np.sum(e, axis=-1, keepdims=True)


@pytest.mark.parametrize("length", [1, 17, 128, 1000, 4096, 40_000, 65_536, 70_000])
def test_exact_softmax_is_within_its_bound(length: int) -> None:
    rows = rows_of((8, length), DType.F32, length)
    wanted = softmax64(rows)
    found = OpenCl(quotient(default_program(METHODS.get("exact"))))(rows)["probabilities"].astype(np.float64)
    seen = wanted > 3e-38
    # Two roundings more than weights and normalizer have: the inverse and the product.
    bound = 2e-7 + length * 2.0**-24 + 2.0**-23
    assert np.max(np.abs(found[seen] / wanted[seen] - 1)) <= bound
    assert np.max(found[~seen], initial=0) <= 3.1e-38


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in ALL]
)
def test_special_values_of_every_method(name: str) -> None:
    inf, nan, most = np.inf, np.nan, np.finfo(np.float32).max
    rows = np.array([[1, 2, 3], [inf, 0, inf], [-inf, -inf, -inf], [nan, 1, 2], [0, nan, inf], [1, -inf, nan],
                     [most, -most, 0], [-inf, 5, inf], [1e-45, 0, -1e-45], [-0.0, 0.0, -0.0]], np.float32)  # fmt: skip
    program = default_program(METHODS.get(name))
    host = OpenCl(program)
    for copies in (1, 8):
        tiled = np.tile(rows, copies)
        ours, found = run(program, tiled), host(tiled)
        for output, value in found.items():
            keep = slice(None)
            if output == "weights":
                keep = ~np.isnan(ours["normalizer"][:, 0])  # what the weights of an undefined row are does not matter
            wanted = ours[output].astype(np.float32)
            np.testing.assert_allclose(value.astype(np.float32)[keep], wanted[keep], rtol=1e-6)


def as_bf16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the nearest bfloat16 as its bits, half to even; NaN stays."""
    bits = x.view(np.uint32).astype(np.uint64)
    near = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), near)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("length", [64, 100, 4096, 4100])
def test_scores_of_sixteen_bits(kind: str, length: int) -> None:
    rows = rows_of((6, length), DType.F32, length).astype(np.float32)
    rows[0, :3], rows[1, 5], rows[2], rows[3, 2] = [np.inf, -np.inf, 65504], np.nan, -np.inf, 1e-7
    given = rows.astype(np.float16) if kind == "f16" else as_bf16(rows)
    meant = given.astype(np.float32) if kind == "f16" else from_bf16(given.astype(np.uint16))
    program = program_of("deferred-log", {"bits": 4, "r": 1})
    host = OpenCl(program, outputs=("codes", "normalizer"), nibbles=("codes",), scores=kind)
    ours, found = run(program, meant), host(given)
    np.testing.assert_array_equal(found["normalizer"], ours["normalizer"])
    np.testing.assert_array_equal(found["codes"], two_a_byte(ours["codes"].astype(np.uint8)))
    # The same numbers as in f32, rounded once.
    exact = quotient(default_program(METHODS.get("exact")))
    whole = OpenCl(exact)(meant)["probabilities"].astype(np.float32)
    halves = OpenCl(exact, scores=kind, stored={"probabilities": kind})(given)["probabilities"]
    value = halves.astype(np.float32) if kind == "f16" else from_bf16(halves.astype(np.uint16))
    np.testing.assert_allclose(value, whole, rtol=2.0**-11 if kind == "f16" else 2.0**-8, atol=2.0**-24)
    assert np.all(np.isnan(value[1:3]) == np.isnan(whole[1:3]))


@pytest.mark.parametrize("form", [Tiling(64, 4, 0, True), Tiling(32, 2, 0, False), Tiling(128, 1, 0, False)], ids=str)
def test_a_running_maximum_takes_the_place_of_a_pass(form: Tiling) -> None:
    program, inf = quotient(default_program(METHODS.get("exact"))), np.inf
    kernel = row_kernel(program, form, OPENCL, symbol="k", max_length=65536)
    assert kernel.text.count("at < length; at += ") == 2
    host = OpenCl(program, form=form)
    for length in (4, 100, 128, 4096):
        rows = rows_of((9, length), DType.F32, length)
        rows[0, :2], rows[1], rows[2, 1], rows[3, :3] = [inf, 1], -inf, np.nan, -inf
        rows[4] = np.linspace(-50, 50, length)  # the maximum rises with every element
        rows[5] = np.linspace(3e38, -3e38, length)
        wanted = run(program, rows)["probabilities"].astype(np.float32)
        found = host(rows)["probabilities"].astype(np.float32)
        # 2e-7 for each rise of a thread's maximum: at most 64 in the row that rises all the time.
        np.testing.assert_allclose(found, wanted, rtol=64 * 2e-7, atol=3.1e-38)


def test_what_a_kernel_cannot_do_is_refused() -> None:
    program, warp = program_of("deferred-log", {"bits": 5, "r": 2}), Tiling(32, 2, 0, False)

    def kernel(form: Tiling = warp, of: Program = program, **given: object) -> None:
        row_kernel(of, form, OPENCL, symbol="k", max_length=64, **given)  # pyright: ignore[reportArgumentType]

    with pytest.raises(UsageError, match="codes of deferred-log goes up to 31; four bits hold at most 15"):
        kernel(outputs=("codes",), nibbles=("codes",))
    with pytest.raises(UsageError, match="scores of deferred-log are f32; they cannot be read as i8"):
        kernel(scores="i8")
    with pytest.raises(UsageError, match="output codes of deferred-log is u8; it cannot be written as f16"):
        kernel(outputs=("codes",), stored={"codes": "f16"})
    with pytest.raises(UsageError, match="shared memory takes some of the chunks"):
        kernel(Tiling(32, 1, 4, False, shared=4))
    with pytest.raises(UsageError, match="edge-moe goes along the row element by element"):
        kernel(of=default_program(METHODS.get("edge-moe")))
