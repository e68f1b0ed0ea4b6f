"""Every operator alone in a row kernel: the tests of the other backends, with the kernel in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from softq.artifact.machine import Cpu
from softq.rowprog import Program
from tests import test_rowprog_ops as ops
from tests.rowhost import Array, Outputs
from tests.test_native_rows import HOST, Host, each_machine, needs_host
from tests.test_rowprog_ops import *  # noqa: F403  (collected here a second time)

pytestmark = [
    needs_host,
    # All of them are in the quick run of the other backends.
    pytest.mark.quick_cases(5),
]


@pytest.fixture(params=each_machine((HOST,)), autouse=True)
def kernel_instead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    machine: Cpu = request.param
    last: list[Any] = []

    def kernel(program: Program, scores: Array, outputs: Sequence[str], *, valid: Array | None = None,
               params: Mapping[str, Array] | None = None, opset: int = 18, max_length: int = 65536,
               ) -> Iterator[tuple[str, Outputs]]:  # fmt: skip
        # Under names that are not the interface's, outputs keep their types: integers are compared whole.
        renamed = {f"{name}_": program.outputs[name] for name in outputs}
        if last[:2] != [program, renamed]:
            whole = replace(program, outputs={**program.outputs, **renamed})
            last[:] = program, renamed, Host(whole, machine, outputs=list(renamed), max_length=max_length)
        host = last[2]
        found = host(np.asarray(scores), valid=None if valid is None else np.asarray(valid), params=params)
        yield machine.cpu, {name.removesuffix("_"): value for name, value in found.items()}

    monkeypatch.setattr(ops, "everywhere", kernel)
