"""The passes of kernels in C: what moves, what is dropped and what gets 32 bits, where a mistake would show."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from tvm import tirx
from tvm.script.ir_builder import tirx as script

from softq.artifact.firmware.numbers import literal
from softq.codegen.c.function import Function, constants_of
from softq.codegen.c.lowering import lower
from softq.codegen.c.prelude import prelude
from softq.codegen.c.specialization import specialize
from softq.compiler.tir.kernel_function import kernel_function

STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wconversion", "-Wshadow", "-Werror")


def text_of(function: tirx.PrimFunc) -> str:
    lowered = lower(function)
    text = Function(lowered, "kernel", constants_of(lowered))
    return f"{prelude(text.used)}\nvoid {text.head()};\nvoid {text.head()}\n{text.body()}"


def called(text: str, folder: Path, *given: Any) -> None:
    """Call a kernel with arrays and numbers."""
    (folder / "kernel.c").write_text(text)
    subprocess.run(["gcc", *STRICT, "-shared", "-fPIC", "kernel.c", "-lm", "-o", "kernel.so"], check=True, cwd=folder)
    pass_on = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else ctypes.c_int32(x) for x in given]
    ctypes.CDLL(str(folder / "kernel.so")).kernel(*pass_on)


def local(value: Any, dtype: str = "float32") -> Any:
    """Return a variable that holds a value."""
    buffer = script.alloc_buffer((1,), dtype, scope="local")
    script.buffer_store(buffer, value, [0])
    return buffer[0]


def through_a_view(x: Any, view: Any) -> None:
    """Read before a write through another view of the same memory."""
    before = local(x[0])
    script.buffer_store(view, tirx.FloatImm("float32", 5.0), [0])
    script.buffer_store(view, before + tirx.FloatImm("float32", 1.0), [1])


def in_turn(x: Any, view: Any) -> None:
    """Exchange two elements."""
    first, second = local(x[0]), local(x[1])
    script.buffer_store(x, second, [0])
    script.buffer_store(view, first, [1])


@pytest.mark.parametrize(("body", "wanted"), [(through_a_view, [5.0, 3.0]), (in_turn, [7.0, 2.0])])
def test_what_is_read_before_a_write_is_what_was_there(
    body: Callable[[Any, Any], None], wanted: list[float], tmp_path: Path
) -> None:
    with kernel_function("kernel", {"x": "float32"}, ()) as made:
        (x,) = made.memory.values()
        body(x, script.decl_buffer((2,), "float32", data=made.pointers["x"]))
    given = np.array([2.0, 7.0], np.float32)
    called(text_of(made.function), tmp_path, given, 0, 1)
    assert given.tolist() == wanted


def test_what_another_kernel_may_write_is_read_before(tmp_path: Path) -> None:
    with kernel_function("inner", {"x": "float32"}, ()) as inner:
        script.buffer_store(inner.memory["x"], tirx.FloatImm("float32", 9.0), [0])
    with kernel_function("kernel", {"x": "float32"}, ()) as outer:
        x = outer.memory["x"]
        before = local(x[0])
        zero, one = (tirx.IntImm("int64", n) for n in (0, 1))
        script.evaluate(script.call_extern("void", "inner", script.address_of(x[0]), zero, one))
        script.buffer_store(x, before, [1])
    found = specialize([inner.function, outer.function], {"kernel": [[None, 0, 1]]}, lower)
    texts = [Function(f, symbol, {}) for symbol, f in found.functions.items()]
    whole = "\n".join(f"void {t.head()};\nvoid {t.head()}\n{t.body()}" for t in texts)
    given = np.array([2.0, 7.0], np.float32)
    called(prelude(()) + whole, tmp_path, given)
    assert given.tolist() == [9.0, 2.0]
    assert found.kept == {"inner": (0,), "kernel": (0,)}


def test_numbers_of_64_bits_stay_and_positions_do_not(tmp_path: Path) -> None:
    with kernel_function("kernel", {"x": "int64"}, ("size",)) as made:
        x, (size, begin, end) = made.memory["x"], made.sizes.values()
        with script.serial(begin, end) as i:
            whole = local(tirx.Cast("int64", tirx.IntImm("int32", 1 << 30)), "int64")
            script.buffer_store(x, whole * tirx.IntImm("int64", 8) + size + x[i], [i])
    text = text_of(made.function)
    assert "int32_t size, int32_t begin, int32_t end" in text
    given = np.array([1, 1 << 40], np.int64)
    called(text, tmp_path, given, 3, 0, 2)
    assert given.tolist() == [(1 << 33) + 4, (1 << 33) + 3 + (1 << 40)]


def test_what_calls_agree_on_is_no_argument(tmp_path: Path) -> None:
    def kernel() -> tirx.PrimFunc:
        with kernel_function("kernel", {"x": "int32", "unused": "int32"}, ("a", "b")) as made:
            x, (a, b, begin, end) = made.memory["x"], made.sizes.values()
            with script.serial(begin, end) as i:
                script.buffer_store(x, tirx.Cast("int32", a * i + b), [i])
        return made.function

    calls = [[None, None, 3, b, 0, 4] for b in (10, 20)]
    found = specialize([kernel()], {"kernel": calls}, lower)
    assert found.kept == {"kernel": (0, 3)}
    (function,) = found.functions.values()
    text = Function(function, "kernel", {})
    assert text.head() == "kernel(sq_int32 *x, int32_t b)"
    given = np.zeros(4, np.int32)
    called(f"{prelude(())}void {text.head()};\nvoid {text.head()}\n{text.body()}", tmp_path, given, 20)
    assert given.tolist() == [20, 23, 26, 29]


def test_literals_are_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bits = np.concatenate([rng.integers(0, 1 << 32, 200, np.uint32), np.array([0, 1, 1 << 31, 0x7F7FFFFF], np.uint32)])
    floats = bits.view(np.float32)
    whole = [-(1 << 63), (1 << 63) - 1, -1, 0, *rng.integers(-(1 << 62), 1 << 62, 20).tolist()]
    texts = [literal(value, "float32") for value in floats.tolist()]
    numbers = [literal(value, "int64") for value in whole]
    lines = [prelude(())]
    for kind, name, values in (("float", "f", texts), ("int64_t", "n", numbers)):
        table = f"    static const {kind} x[] = {{{', '.join(values)}}};"
        lines += [f"{kind} {name}(int at);", f"{kind} {name}(int at)", "{", table, "    return x[at];", "}"]
    (tmp_path / "x.c").write_text("\n".join(lines) + "\n")
    subprocess.run(["gcc", *STRICT, "-shared", "-fPIC", "x.c", "-o", "x.so"], check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "x.so"))
    library.f.restype, library.n.restype = ctypes.c_float, ctypes.c_int64
    found = np.array([library.f(at) for at in range(len(bits))], np.float32)
    same = (found.view(np.uint32) == bits) | (np.isnan(found) & np.isnan(floats))
    assert same.all(), [texts[at] for at in np.flatnonzero(~same)]
    assert [library.n(at) for at in range(len(whole))] == whole
