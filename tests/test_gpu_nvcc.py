"""NVIDIA's compiler takes the kernels for each architecture without a warning, and they spill nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from softq.artifact.device import nvcc, nvrtc
from softq.codegen.gpu.dialect.dialects import CUDA
from softq.codegen.gpu.program import machine_of
from softq.codegen.gpu.rows import Tiling, row_kernel
from softq.codegen.gpu.rows.load_store import bytes_of
from softq.codegen.gpu.rows.tiling import choose_tiling
from softq.errors import SoftqError
from softq.methods import METHODS
from softq.rowprog import DType, Program
from softq.rowprog.program import quotient
from softq.rowprog.tabulate import tabulate_or_keep
from tests.test_gpu_rows import INTEGERS, program_of
from tests.test_methods import ALL, default_program

ARCHES = ("sm_75", "sm_80", "sm_90")
needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="needs nvcc: pip install 'softq[cuda]'")


def text_of(programs: Sequence[tuple[Program, Tiling, Mapping[str, object]]]) -> str:
    """Return one source with all the kernels."""
    kernels = [row_kernel(program, form, CUDA, symbol=f"k{i}", max_length=4096, **given)  # pyright: ignore[reportArgumentType]
               for i, (program, form, given) in enumerate(programs)]  # fmt: skip
    return CUDA.prelude() + "".join(kernel.text for kernel in kernels)


def deferred_log(kind: str) -> tuple[Program, Mapping[str, object]]:
    scores = DType.I8 if kind == "i8" else DType.F32
    program = program_of("deferred-log", {"bits": 4, "r": 1, **({"step": 0.1} if kind == "i8" else {})}, scores)
    return tabulate_or_keep(program)[0], {"outputs": ("codes", "normalizer"), "nibbles": ("codes",), "scores": kind}


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
def test_the_forms_that_are_chosen_spill_nothing(arch: str) -> None:
    exact = quotient(default_program(METHODS.get("exact")))
    made: list[tuple[Program, Tiling, Mapping[str, object]]] = []
    most = machine_of(arch).shared_bytes
    for length in (64, 512, 1024, 2048, 8192, 32768, 65536):
        for kind in ("f32", "f16", "bf16"):
            given = {"scores": kind, "stored": {"probabilities": kind}}
            made.append((exact, choose_tiling(length, bytes_of(kind), shared_bytes=most), given))
        for kind in ("f32", "f16", "i8"):
            program, given = deferred_log(kind)
            made.append((program, choose_tiling(length, bytes_of(kind), even=True, shared_bytes=most), given))
    codes = program_of("deferred-log", {"bits": 4, "r": 1}, masked=True)
    for length in (32768, 65536):
        made += [(program, choose_tiling(length, 4, shared_bytes=most), {}) for program in (default_program(
            METHODS.get("exact"), masked=True), codes)]  # fmt: skip
    for length in (30_001, 65_535) if arch != "sm_75" else ():
        # Element by element, where neither registers nor memory hold it in chunks.
        for kind in ("f32", "f16"):
            form = choose_tiling(length, bytes_of(kind), shared_bytes=most)
            made += [(program, form, {"scores": kind}) for program in (exact, codes, deferred_log(kind)[0])]
    used = nvcc.compiled(text_of(made), arch).usage
    assert len(used) == len(made)
    for (program, form, _), (symbol, usage) in zip(made, used.items(), strict=True):
        # All threads of a block have to find room in the 65,536 registers of a multiprocessor.
        assert usage.spilled == 0, (program.name, form.name, symbol, usage)
        assert usage.registers * form.threads <= 65536, (program.name, form.name, usage)
        assert usage.registers <= 128, (program.name, form.name, usage)


@needs_nvcc
@pytest.mark.slow
def test_every_method_compiles() -> None:
    made: list[tuple[Program, Tiling, Mapping[str, object]]] = []
    programs = [default_program(METHODS.get(name), masked=masked) for name in ALL for masked in (False, True)]
    programs += [program_of(name, settings, kind) for name, settings, kind in INTEGERS]
    for program in programs:
        in_order = any(node.op == "scan" for node in program.nodes())
        made.append((program, choose_tiling(197, program.scores.bits // 8, in_order=in_order), {}))
    assert len(nvcc.compiled(text_of(made), "sm_90").usage) == len(made)


@needs_nvcc
def test_ptx_is_text_and_an_error_is_one_line() -> None:
    program, given = deferred_log("f16")
    text = text_of([(program, choose_tiling(512, 2, even=True), given)])
    assert b".visible .entry k0(" in nvcc.compiled(text, "sm_75", ptx=True).code
    with pytest.raises(SoftqError, match=r"nvcc refuses the kernels for sm_90: .*error.*") as raised:
        nvcc.compiled(text + "int broken( {", "sm_90")
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(nvrtc.find() is None, reason="needs NVRTC: pip install 'softq[cuda]'")
def test_the_library_compiles_what_the_program_does() -> None:
    program, given = deferred_log("f16")
    text = text_of([(program, choose_tiling(512, 2, even=True), given)])
    assert nvrtc.compiled(text, "sm_90").startswith(b"\x7fELF")
    assert b".visible .entry k0(" in nvrtc.compiled(text, "sm_75", ptx=True)
    with pytest.raises(SoftqError, match=r"NVRTC refuses the kernels for sm_90: .*error.*") as raised:
        nvrtc.compiled(text + "__device__ int broken( {", "sm_90")
    assert "\n" not in str(raised.value)
