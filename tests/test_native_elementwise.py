"""Elementary functions against float64, with the errors that their docstrings state."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tvm")

FUNCTIONS: Mapping[str, tuple[Callable[[NDArray[Any]], NDArray[Any]], float, str]] = {
    "exp": (np.exp, 2e-7, "relative"),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 4e-7, "absolute"),
    "tanh": (np.tanh, 3e-7, "absolute"),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3e-7, "relative"),
    "log": (np.log, 2e-7, "relative"),
    "sin": (np.sin, 2e-7, "absolute"),
    "cos": (np.cos, 2e-7, "absolute"),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as t

    from softq.codegen.cpu import machines
    from softq.codegen.cpu.object_code import object_code
    from softq.compiler.legalize import elementwise

    functions: list[Any] = []
    for name in FUNCTIONS:
        with IRBuilder() as builder, t.prim_func(s_tir=True):
            t.func_name(f"f_{name}")
            given, out = t.arg("given", t.handle("float32")), t.arg("out", t.handle("float32"))
            end = t.arg("end", t.int64())
            t.func_attr({"global_symbol": f"f_{name}", "tirx.noalias": True})
            x, y = (t.decl_buffer((end,), "float32", data=p, align=4) for p in (given, out))
            with t.serial(0, end) as i:
                t.buffer_store(y, getattr(elementwise, name)(x[i]), [i])
        functions.append(builder.get())
    folder: Path = tmp_path_factory.mktemp("elementwise")
    (folder / "f.o").write_bytes(object_code(functions, machines.host("cpu", "native", "")))
    # No C library is linked: a call into one would be an undefined symbol.
    subprocess.run(
        ["cc", "-shared", "-nostdlib", "-Wl,-z,defs", "-o", str(folder / "f.so"), str(folder / "f.o")], check=True
    )
    return ctypes.CDLL(str(folder / "f.so"))


def compute(library: ctypes.CDLL, name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    y = np.empty_like(x)
    getattr(library, f"f_{name}")(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x))
    )
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_those_stated(library: ctypes.CDLL, name: str) -> None:
    reference, bound, kind = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-110, 95, 200_001), rng.normal(0, 3, 100_000), rng.normal(0, 1e-3, 10_000)])
    x = np.concatenate([x, np.exp(rng.uniform(-80, 80, 100_000))]).astype(np.float32)
    x = x[np.abs(x) < 2**30] if name in ("sin", "cos") else x
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(x.astype(np.float64)), np.float64)
        rounded = exact.astype(np.float32)
    y = compute(library, name, x).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(y), np.isinf(rounded))
    usual = np.isfinite(rounded) & (np.abs(exact) > 2.0**-126 if kind == "relative" else True)
    error = np.abs(y[usual] - exact[usual])
    if kind == "relative":
        # A logarithm near 0 has the rounding of numbers near 1 in it.
        error = error / np.maximum(np.abs(exact[usual]), 1.0 if name == "log" else 0.0)
    assert error.max() <= bound


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("exp", [math.inf, -math.inf, 0.0], [math.inf, 0.0, 1.0]),
        ("erf", [math.inf, -math.inf], [1.0, -1.0]),
        ("tanh", [math.inf, -math.inf], [1.0, -1.0]),
        ("sigmoid", [math.inf, -math.inf, 0.0], [1.0, 0.0, 0.5]),
        ("log", [math.inf, 0.0, 1.0, -1.0], [math.inf, -math.inf, 0.0, math.nan]),
        ("sin", [0.0, math.inf], [0.0, math.nan]),
        ("cos", [0.0, -math.inf], [1.0, math.nan]),
    ],
)
def test_special_values(library: ctypes.CDLL, name: str, x: list[float], y: list[float]) -> None:
    found = compute(library, name, np.array([*x, math.nan], np.float32))
    np.testing.assert_allclose(found, np.array([*y, math.nan], np.float32), atol=2e-7)


@pytest.mark.parametrize("name", [*FUNCTIONS, "gelu", "gelu_tanh", "silu"])
def test_a_value_stands_once_in_a_formula(name: str) -> None:
    """TVM's passes walk expressions as trees: values written out wherever they are used cost 0.2 s per kernel."""
    from tvm import ir, tirx

    from softq.compiler.legalize import elementwise
    from softq.compiler.tir.expressions import found

    formula = getattr(elementwise, name)(tirx.Var("x", "float32"))
    assert len(found(formula, ir.Expr)) < 200
