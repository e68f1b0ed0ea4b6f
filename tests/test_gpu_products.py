"""Products of matrices for GPUs: as OpenCL on PoCL against float64 and to the bit; what nvcc makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.gpu.products import KINDS, SIZES, differences, in_float64
from softq.artifact.device import nvcc
from softq.artifact.device.steps import TileForm
from softq.artifact.program import evaluate
from softq.codegen.gpu.dialect.dialects import CUDA
from softq.codegen.gpu.gemm import pad_rows, write_gemm
from tests.opencl import compiled, launch

Array = NDArray[np.generic]


@functools.cache
def forms_of(left: str, right: str, turned: bool) -> tuple[tuple[TileForm, ...], Callable[[str], Any]]:
    made = write_gemm("p", left, right, turned)
    texts = {form.symbol: text for form, text in zip(made.forms, made.texts, strict=True)}
    return made.forms, functools.cache(lambda symbol: compiled(texts[symbol], symbol))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("turned", [False, True], ids=["n-k", "k-n"])
@pytest.mark.parametrize(("left", "right"), KINDS)
def test_every_form_against_float64(left: str, right: str, turned: bool) -> None:
    forms, kernels = forms_of(left, right, turned)

    def run(form: TileForm, blocks: int, arguments: list[Any], _: Array) -> Array:
        position = sum(isinstance(argument, np.ndarray) for argument in arguments) - 1
        return launch(kernels(form.symbol), blocks, form.threads, arguments, [position])[0]

    seen: set[str] = set()
    for size in SIZES:
        for symbol, said in differences(forms, left, right, turned, size, run):
            assert not said, (symbol, said)
            seen.add(symbol)
    assert seen == {form.symbol for form in forms}


def test_special_values_stay_in_their_rows_and_columns() -> None:
    for kind in ("f32", "f16"):
        forms, kernels = forms_of(kind, kind, False)
        held = np.float32 if kind == "f32" else np.float16
        a, b = np.ones((9, 40), held), np.ones((70, 40), held)
        a[2, 5], a[4, 39], b[66, 0] = np.nan, np.inf, -np.inf
        with np.errstate(invalid="ignore"):
            wanted = a.astype(np.float64) @ b.T.astype(np.float64)
        bits = held if kind == "f32" else np.uint16
        scalars = [np.int64(x) for x in (9, 40, 70, 0, 0, 40)]
        for form in forms[-2:]:
            arguments = [a.view(bits), b.view(bits), np.zeros((9, 70), bits), *scalars]
            blocks = evaluate(form.start(1, (9, 40, 70, 0, 0, 40)).blocks, {})
            (found,) = launch(kernels(form.symbol), blocks, form.threads, arguments, [2])
            np.testing.assert_array_equal(in_float64(found, kind), wanted, form.symbol)


def test_the_form_follows_from_the_sizes() -> None:
    forms, _ = forms_of("f16", "f16", False)

    def chosen(count: int, m: int, k: int, n: int, pitch: int) -> str:
        starts = (form.start(count, (m, k, n, 0, 0, pitch)) for form in forms)
        return next(start.symbol for start in starts if all(condition.holds({}) for condition in start.when))

    assert chosen(1, 1, 576, 1536, 576) == "p_rows"
    assert chosen(1, 8, 576, 1536, 576) == "p_rows"
    assert chosen(1, 9, 576, 1536, 576) == "p_64x64"
    assert chosen(1, 4096, 4096, 4096, 4096) == "p_128x128"
    # Rows of 197 halves begin at no multiple of 16 bytes; the weight's own are padded.
    assert chosen(12, 197, 197, 64, 200) == "p_64x64_any"
    assert pad_rows(np.ones((197, 3), np.float16), False).shape == (3, 200)


@pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_they_compile_and_spill_nothing(arch: str) -> None:
    made = [write_gemm(f"p_{left}_{right}{'_kn' * turned}", left, right, turned)
            for left, right in KINDS[:5] for turned in (False, True) if arch != "sm_75" or left != "bf16"]  # fmt: skip
    used = nvcc.compiled(CUDA.prelude() + "".join(text for one in made for text in one.texts), arch).usage
    forms = [form for one in made for form in one.forms]
    assert set(used) == {form.symbol for form in forms}
    for form in forms:
        usage = used[form.symbol]
        assert usage.spilled == 0, (form.symbol, usage)
        assert usage.shared <= 48 * 1024, (form.symbol, usage)
        # Two blocks find room in the 65,536 registers of a multiprocessor; on sm_75 in its 64 KiB of memory one.
        blocks = 1 if arch == "sm_75" and usage.shared > 32 * 1024 else 2
        assert blocks * usage.registers * form.threads <= 65536, (form.symbol, usage)
