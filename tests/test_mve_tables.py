"""Tables of bytes as lines: each one that is found gives every entry."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

from softq.codegen.cpu.rows.mve import as_line


@pytest.mark.parametrize("step", [0.003, 0.02, 0.0625, 0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("most", [3, 7, 15])
def test_codes_in_equal_steps_are_lines(step: float, most: int) -> None:
    codes = np.minimum(np.floor(np.arange(256) * step / np.log(2) + 0.5), most).astype(int)
    line = as_line(tuple(codes.tolist()))
    assert line is not None
    for at, code in enumerate(codes):
        total = min(at, line.last) * line.factor + line.added
        assert total < 1 << 16
        assert total >> line.shift <= 255
        assert min(total >> line.shift, line.most) == code


def test_other_tables_are_no_lines() -> None:
    assert as_line(tuple(range(16, 0, -1))) is None
    assert as_line((0, 1, 4, 9, 16, 25)) is None
    assert as_line((0.0, 1.0)) is None
    assert as_line((0,) * 256) is None
    assert as_line((0, 1, 300)) is None
