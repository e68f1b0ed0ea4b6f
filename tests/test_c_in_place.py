"""Results that take the place of operands: which kernels allow it, and that nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("tvm")

from tvm import tirx
from tvm.script.ir_builder import tirx as script

import softq
from softq.codegen.c import backend
from softq.codegen.c.in_place import replaced_operands
from softq.codegen.c.lowering import lower
from softq.compiler.tir.kernel_function import kernel_function
from tests.test_c_passes import called, text_of

ROWS, COLUMNS = 5, 4


def at(value: int) -> Any:
    return tirx.IntImm("int64", value)


def elementwise(x: Any, y: Any, row: Any) -> None:
    """Write each element where it was read."""
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(y, x[row * at(COLUMNS) + i] * x[row * at(COLUMNS) + i], [row * at(COLUMNS) + i])


def less_greatest(x: Any, y: Any, row: Any) -> None:
    """Read a whole row, then write it, as softmaxes do."""
    greatest = script.alloc_buffer((1,), "float32", scope="local")
    script.buffer_store(greatest, x[row * at(COLUMNS)], [0])
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(greatest, tirx.max(greatest[0], x[row * at(COLUMNS) + i]), [0])
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(y, x[row * at(COLUMNS) + i] - greatest[0], [row * at(COLUMNS) + i])


def less_first(x: Any, y: Any, row: Any) -> None:
    """Read what stays, which is done before the loop."""
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(y, x[row * at(COLUMNS) + i] - x[row * at(COLUMNS)], [row * at(COLUMNS) + i])


def transposed(x: Any, y: Any, row: Any) -> None:
    """Write elsewhere."""
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(y, x[row * at(COLUMNS) + i], [i * at(ROWS) + row])


def twice(x: Any, y: Any, row: Any) -> None:
    """Read again behind the write."""
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(y, x[row * at(COLUMNS) + i] + x[row * at(COLUMNS) + i], [row * at(COLUMNS) + i])
    with script.serial(at(0), at(COLUMNS)) as i:
        place = row * at(COLUMNS) + i
        script.buffer_store(y, y[place] + x[place], [place])


def overlapping(x: Any, y: Any, row: Any) -> None:
    """Write rows that overlap."""
    with script.serial(at(0), at(COLUMNS)) as i:
        script.buffer_store(y, x[row * at(2) + i] + x[row * at(2) + i], [row * at(2) + i])


def scattered(x: Any, y: Any, row: Any) -> None:
    """Write where numbers of the row say."""
    with script.serial(at(0), at(COLUMNS)) as i:
        place = tirx.Cast("int64", x[row * at(COLUMNS) + i] * x[row * at(COLUMNS) + i])
        script.buffer_store(y, x[row * at(COLUMNS) + i], [place])


def kernel_of(body: Callable[..., None]) -> tirx.PrimFunc:
    with kernel_function("kernel", {"x": "float32", "y": "float32"}, ()) as made, script.serial(at(0), at(ROWS)) as row:
        body(*made.memory.values(), row)
    return made.function


@pytest.mark.parametrize("body", [elementwise, less_greatest, less_first])
def test_what_is_read_before_it_is_written_may_be_replaced(body: Callable[..., None], tmp_path: Path) -> None:
    function = kernel_of(body)
    assert replaced_operands(lower(function)) == {1: frozenset({0})}
    given = np.random.default_rng(0).normal(size=ROWS * COLUMNS).astype(np.float32)
    wanted, together = np.zeros_like(given), given.copy()
    text = text_of(function)
    called(text, tmp_path, given, wanted, 0, 1)
    called(text, tmp_path, together, together, 0, 1)
    np.testing.assert_array_equal(together, wanted)


@pytest.mark.parametrize("body", [transposed, twice, overlapping, scattered])
def test_what_is_read_later_is_not_replaced(body: Callable[..., None], tmp_path: Path) -> None:
    function = kernel_of(body)
    assert replaced_operands(lower(function)) == {}
    given = np.sqrt(np.arange(ROWS * COLUMNS)[::-1] + 0.5).astype(np.float32)
    wanted, together = np.zeros_like(given), given.copy()
    text = text_of(function)
    called(text, tmp_path, given, wanted, 0, 1)
    called(text, tmp_path, together, together, 0, 1)
    assert not np.array_equal(together, wanted), "it could have been"


def test_memory_of_another_width_is_not_replaced() -> None:
    with kernel_function("kernel", {"x": "float32", "y": "float16"}, ()) as made:
        x, y = made.memory.values()
        with script.serial(at(0), at(ROWS)) as i:
            script.buffer_store(y, tirx.Cast("float16", x[i]), [i])
    assert replaced_operands(lower(made.function)) == {}


def test_a_model_needs_less_and_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> f (float[4, 64] x, float[4, 64] v)'
        " => (float[4, 64] y, float[64, 4] z) { a = MatMul(x, w)  s = Softmax(a)  n = LayerNormalization(s, scale)"
        " g = ReduceSum<keepdims = 1>(n)  h = Div(n, g)  t = Transpose<perm = [1, 0]>(h)  z = Softmax(t)"
        " k = Mul(h, v)  y = MatMul(k, w) }"
    )
    rng = np.random.default_rng(0)
    for name, shape in (("w", (64, 64)), ("scale", (64,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    given = {name: rng.normal(size=(4, 64)).astype(np.float32) for name in "xv"}
    arenas: list[int] = []
    results: list[list[bytes]] = []
    for name in ("shared", "apart"):
        if name == "apart":
            monkeypatch.setattr(backend, "replaced_operands", lambda function: {})  # pyright: ignore
        softq.build(model, tmp_path / name, target="c,name=m")
        memory = json.loads((tmp_path / name / "manifest.json").read_text())["memory"]
        assert memory["arena"] == memory["arena_least"]
        arenas.append(memory["arena"])
        with softq.load(tmp_path / name) as built:
            found: dict[str, Any] = {**built(given)}
        results.append([array.tobytes() for array in found.values()])
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results_there: list[Any] = list(session.run(None, given))
        for array, wanted in zip(found.values(), results_there, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))
    assert results[0] == results[1]
    assert arenas[0] < arenas[1]
