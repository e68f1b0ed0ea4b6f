"""Every operator alone in a GPU kernel, on PoCL: the tests of the other backends, with the kernel in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from softq.rowprog import Program
from tests import test_rowprog_ops as ops
from tests.opencl import OpenCl
from tests.rowhost import Array, Outputs
from tests.test_rowprog_ops import *  # noqa: F403  (collected here a second time)

pytestmark = pytest.mark.slow  # a kernel to compile each


@pytest.fixture(autouse=True)
def kernel_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(program: Program, scores: Array, outputs: Sequence[str], *, valid: Array | None = None,
               params: Mapping[str, Array] | None = None, opset: int = 18, max_length: int = 65536,
               ) -> Iterator[tuple[str, Outputs]]:  # fmt: skip
        # Under names that are not the interface's, outputs keep their types: integers are compared whole.
        renamed = {f"{name}_": program.outputs[name] for name in outputs}
        whole = replace(program, outputs={**program.outputs, **renamed})
        host = OpenCl(whole, outputs=list(renamed), max_length=max_length)
        found = host(np.asarray(scores), valid=None if valid is None else np.asarray(valid), params=params)
        yield "OpenCL", {name.removesuffix("_"): value for name, value in found.items()}

    monkeypatch.setattr(ops, "everywhere", kernel)
