"""Row kernels whose threads exchange by warp shuffles, as CUDA's do: on PoCL, shuffles through shared memory."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from softq.codegen.gpu.dialect.dialects import Dialect
from softq.codegen.gpu.rows import Tiling, row_kernel
from softq.codegen.gpu.rows.tiling import WARP, list_tilings
from softq.rowprog import Program, run
from tests.opencl import OpenCl, compiled
from tests.test_gpu_rows import program_of

SHUFFLED = Dialect("OpenCL C with shuffles", "cl", True)

_WORDS = "".join(f"""
FUNCTION {kind} __attribute__((overloadable)) of_lane(SHARED u64 *exchanged, {kind} x, i32 by) {{
    ((SHARED {kind} *)(exchanged + THREAD))[0] = x;
    BARRIER();
    const {kind} other = ((SHARED {kind} *)(exchanged + (THREAD / 32 * 32 + (THREAD % 32 ^ by))))[0];
    BARRIER();
    return other;
}}
""" for kind in ("f32", "i32", "u32", "i64", "u64")) + "#define OF_LANE(x, by) of_lane(exchanged, x, by)\n"  # fmt: skip


class Shuffled(OpenCl):
    """A program's kernels in the text that CUDA gets."""

    def __init__(self, program: Program, form: Tiling) -> None:
        super().__init__(program, form=form)
        kernel = row_kernel(program, form, SHUFFLED, symbol="kernel_of_rows", max_length=65536)
        start = rf"(KERNEL\({form.threads}\) .*{{\n)"
        text, count = re.subn(start, rf"\1    SHARED u64 exchanged[{form.threads}];\n", kernel.text)
        assert count == 1
        assert form.group == 1 or "OF_LANE(" in text
        self._make = functools.cache(lambda _: (kernel, compiled(_WORDS + text, kernel.symbol)))


FORMS = [form for length in (256, 4096) for form in list_tilings(length, 4)] + [Tiling(64, 4, 8, True, shared=5)]
QUICK = [FORMS[-1]] + [next(form for form in FORMS if form.group == group) for group in (16, 32, 64, 128)]


@pytest.mark.parametrize("name", ["deferred-log", "exact"])
@pytest.mark.parametrize("form", [
    *(pytest.param(form, marks=() if form in QUICK else pytest.mark.slow) for form in dict.fromkeys(FORMS)),
], ids=lambda form: form.name)  # fmt: skip
def test_every_row_has_what_its_own_threads_gathered(form: Tiling, name: str) -> None:
    program = program_of(name, {"bits": 4, "r": 1} if name == "deferred-log" else {})
    rng, length = np.random.default_rng(0), min(form.longest or 4096, 4096)
    # Rows of one block differ, and the last block has fewer rows than others.
    scores = (rng.normal(size=(2 * form.rows + 1, length)) * 3 + np.arange(2 * form.rows + 1)[:, None]).astype(
        np.float32
    )
    scores[-1, 1] = np.nan
    found, wanted = Shuffled(program, form)(scores), run(program, scores)
    for output in program.outputs if name == "deferred-log" else ("normalizer",):
        if output in found:
            np.testing.assert_allclose(found[output].astype(np.float64), wanted[output].astype(np.float64), rtol=1e-5)


def test_a_block_of_more_than_a_warp_has_one_row() -> None:
    for form in FORMS:
        # What warps tell each other stands once in a block.
        assert form.group <= WARP or form.rows == 1
