"""The GPU's benchmark, its kernels on PoCL: everything but the clock; no test asserts a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import attention, check, matmul, models, softmax
from benchmarks.gpu.results import Result, compared, document, table
from softq.codegen.gpu.dialect.dialects import OPENCL
from softq.codegen.gpu.rows.tiling import choose_tiling, list_tilings
from tests.opencl import OPTIONS, device

OTHERS = ("exact", "i-exp", "log2", "edge-moe", "sparsemax", "uniform", "tflite-int8")


class PoclCard:
    """PoCL in the place of a GPU; every call is run once and takes no time."""

    dialect, device, arch, cache_bytes, shared_bytes = OPENCL, "cpu", "sm_90", 1, 227 << 10

    def __init__(self) -> None:
        self.torch: Any = pytest.importorskip("torch")
        self.torch.manual_seed(0)
        self._cl, self._queue = pytest.importorskip("pyopencl"), device()
        self.spoiled: Any = None  # which bytes of each argument a launch changes

    def copy_rate(self) -> float:
        return 1e9

    def kernels(self, text: str) -> Callable[..., Any]:
        program = self._cl.Program(self._queue.context, OPENCL.prelude() + text).build(options=OPTIONS)
        return lambda symbol, shared=0: getattr(program, symbol)

    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        arrays = [x.view(self.torch.uint8).numpy() if hasattr(x, "data_ptr") else x for x in arguments]
        buffers = [
            self._cl.Buffer(self._queue.context, flags, hostbuf=x) if isinstance(x, np.ndarray) else x for x in arrays
        ]
        kernel(self._queue, (blocks * threads,), (threads,), *buffers)
        for array, buffer in zip(arrays, buffers, strict=True):
            if isinstance(array, np.ndarray):
                self._cl.enqueue_copy(self._queue, array, buffer)
                if self.spoiled is not None:
                    array[self.spoiled] ^= 0x40

    def times(self, calls: Mapping[str, Sequence[Callable[[], object]]]) -> dict[str, list[float]]:
        for some in calls.values():
            assert len(some) >= 2
            some[0]()
        return {name: [1e-3, 2e-3, 3e-3] for name in calls}


def test_softmaxes_are_checked_and_compared() -> None:
    found = list(softmax.measure(PoclCard(), (64, 128), 1 << 10, False))
    assert [(r.place, r.work) for r in found] == [
        (place, work.name) for place in ("16x64", "8x128") for work in softmax.WORKS
    ]
    assert {r.rival for r in found} == {"torch.softmax", "torch.softmax, float16"}
    for r in found:
        assert r.ratio == 1
        # Float32 in and out: 2 x 4 bytes an element at 1e9 a second, in 2 ms.
        assert r.work != softmax.WORKS[0].name or r.share == pytest.approx(8 * 1024 / 1e9 / 2e-3)


@pytest.mark.slow
def test_every_form_can_be_timed() -> None:
    card = PoclCard()
    found = list(softmax.measure(card, (256,), 1 << 9, True))
    exact = {r.work.rsplit(", ", 1)[1] for r in found if r.work.startswith(softmax.WORKS[0].name)}
    assert {"g32_c4a_2h", "g32_c4a_2r", "g64_c4a_1h", "g8_c4a_8h"} <= exact


@pytest.mark.parametrize("name", ["deferred-log", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_kernels_are_compared_with_the_interpreter(name: str) -> None:
    card = PoclCard()
    for program in check.programs(name):
        assert check.differences(card, program, (3, 64)) == ""
    card.spoiled = np.s_[...]
    assert "the interpreter has" in check.differences(card, check.programs(name)[0], (64,))


def test_a_wrong_result_is_not_timed() -> None:
    card = PoclCard()
    card.spoiled = np.s_[..., 0]
    with pytest.raises(AssertionError):
        list(softmax.measure(card, (64,), 1 << 10, False))
    with pytest.raises(AssertionError):
        list(attention.measure(card, (32,), 1 << 14, False))


@pytest.mark.slow
def test_products_are_checked() -> None:
    card, sizes = PoclCard(), [(2, 3, 32, 20)]
    assert check.wrong_products(card, "f16", "f16", False, sizes) == ""
    assert check.wrong_products(card, "u8", "i8", True, sizes) == ""
    card.spoiled = np.s_[..., 1]
    assert "of 120 are wrong" in check.wrong_products(card, "f16", "f16", False, sizes)


def test_attention_is_checked_and_compared() -> None:
    found = list(attention.measure(PoclCard(), (40,), 1, False))
    assert len(found) == 2 * 2 * 3
    for r in found:
        assert r.place == "1x16x40"
        assert r.error < (1e-2 if r.work.startswith("torch") else 0.25)
        assert r.rate == pytest.approx(4 * 16 * 40 * 40 * (128 if "128" in r.work else 64) / 2e-3
                                       / (2 if "causal" in r.work else 1))  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("even", [False, True])
def test_the_chosen_form_is_among_the_candidates(size: int, even: bool) -> None:
    for length in (512, 1024, 4096, 65536):
        for shared in (0, 99 << 10, 227 << 10):
            forms = list_tilings(length, size, even=even, shared_bytes=shared)
            assert choose_tiling(length, size, even=even, shared_bytes=shared) in forms
            assert all(form.fits(length) for form in forms)


def test_the_document_says_what_was_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    assert document(path).startswith("**Not measured**")
    one = compared({"a": [1.0, 2.0, 9.0], "b": [4.0, 4.0, 12.0]}, "a", "b", work="w", place="4x2", error=1e-7,
                   share=1.0, aim=1.0)  # fmt: skip
    assert (one.ratio, one.low, one.high, one.share) == (0.5, 0.25, 0.75, 0.5)
    path.write_text(json.dumps({"softmax": {"command": "c", "card": "GPU: X", "results": [vars(one)]}}))
    text = document(path)
    assert "Measured on: GPU: X." in text
    for title, name in (("Attention", "attention"), ("Products of matrices", "products")):
        assert f"## {title}\n\n**Not measured**: `python -m benchmarks.gpu --only {name}` measures it" in text
    assert table([one]).splitlines()[-1] == "| w | 4x2 | 2000000.0 us | b | 0.50 (0.25-0.75) | 1 | 50% |  | 1.0e-07 |"
    assert isinstance(one, Result)


@pytest.mark.parametrize("work", [
    pytest.param(models.WORKS[0], marks=pytest.mark.slow), *models.WORKS[1:]
], ids=lambda work: work.name)  # fmt: skip
def test_attentions_of_built_models_are_checked_and_compared(work: models.Work) -> None:
    card = PoclCard()
    assert models.wrong(card, work, 64, [(1, 3, 40)]) == ""
    found = list(models.measured(card, models.Built(card, work, 64), 40, 1))
    assert [r.place for r in found] == ["1x16x40"] * 2
    assert found[0].error < (0.25 if "codes" in work.name else 1e-4)
    card.spoiled = np.s_[...]
    assert "an error of" in models.wrong(card, work, 64, [(1, 3, 40)])


def test_products_are_compared() -> None:
    for work in matmul.WORKS:
        (found, _) = matmul.measured(PoclCard(), work, (9, 64, 48))
        assert (found.place, found.rate) == ("9x64x48", 2 * 9 * 64 * 48 / 2e-3)
        card = PoclCard()
        card.spoiled = np.s_[..., -1:]
        with pytest.raises(AssertionError):
            list(matmul.measured(card, work, (9, 64, 48)))
