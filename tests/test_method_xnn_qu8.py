"""XNNPACK's softmax against Python integers, and against QNNPACK's kernel in PyTorch, from which it comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np
import pytest

from softq.methods.xnn_qu8 import weight_table
from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length, prove
from tests.conformance import assert_conforms, program_of


def derivation(step: float, length: int, published: bool):
    with localcontext() as context:
        context.prec = 40
        unit, most = Decimal(float(np.float32(step))), Decimal(2**32 - 1) / length
        scale = min(most, Decimal(2**23 - 1))
        table = [int((scale * (-unit * d).exp()).to_integral_value(ROUND_HALF_EVEN)) for d in range(256)]
    table = [min(v, math.floor(most)) for v in table]

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        t = [table[d] for d in row]
        if not published:
            return t, sum(t)
        assert sum(t) < 2**32
        return [min(255, (v * 256 + sum(t) // 2) // sum(t)) for v in t], 256

    return derive


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("output", ["pair", "uint8"])
@pytest.mark.parametrize(("step", "length"), [(0.0625, 65536), (0.01, 197), (1.0, 600)])
def test_the_arithmetic(step: float, length: int, output: str) -> None:
    settings = {"step": step, "length": length, "output": output}
    derive = derivation(step, length, output == "uint8")
    assert_conforms("xnn-qu8", settings, derive, unit=step, native=length == 65536, max_length=length)


@pytest.mark.parametrize("length", [1, 2, 197, 512, 513, 600, 1024, 65536, 2**20])
def test_the_length_asked_for_fits_and_not_much_more(length: int) -> None:
    table = weight_table(0.0625, length)
    assert length * table[0] < 2**32
    assert table[0] == 2**23 - 1 or length * (table[0] + 1) >= 2**32
    program = program_of("xnn-qu8", {"length": length, "output": "uint8"}, DType.U8, masked=True)
    assert prove(program, max_length=length).widest_bits <= 32
    assert largest_length(program, 2**22) <= max(length + length // table[0] + 1, 512)


def test_a_row_of_600_equal_scores_does_not_overflow() -> None:
    # Q = 7158278.8; rounded up, as in the source, 600 of them are 2^32 + 104.
    assert 600 * round((2**32 - 1) / 600) == 2**32 + 104
    program = program_of("xnn-qu8", {"length": 600, "output": "uint8"}, DType.U8)
    assert not np.any(run(program, np.full((1, 600), 7, np.uint8))["weights"])  # 256 / 600 is nearest to 0


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("step", [0.0625, 0.01, 0.3])
def test_equal_to_the_kernel_that_it_comes_from(step: float) -> None:
    torch = pytest.importorskip("torch")
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("PyTorch was built without QNNPACK")
    engine, rng = torch.backends.quantized.engine, np.random.default_rng(2)
    torch.backends.quantized.engine = "qnnpack"
    try:
        for length in (1, 2, 17, 197, 1000):
            x = np.concatenate([
                rng.integers(0, 256, size=(50, length)),
                np.clip(128 + rng.normal(size=(50, length)) * rng.choice([2, 10, 40], size=(50, 1)), 0, 255),
                np.full((1, length), 7),
            ]).astype(np.uint8)  # fmt: skip
            given = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), step, 0)
            theirs = torch.ops.quantized.softmax(given, 1, 1 / 256, 0).int_repr().numpy()
            program = program_of("xnn-qu8", {"step": step, "length": length, "output": "uint8"}, DType.U8)
            np.testing.assert_array_equal(run(program, x)["weights"], theirs)
    finally:
        torch.backends.quantized.engine = engine
