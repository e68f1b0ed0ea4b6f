"""Errors of TVM's: whose they are, what a user is told, and which operator of a module they are about."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Generator
from typing import Any

import tvm
from tvm import relax

from softq.errors import RefusalError, SoftqError


def refusal_of(what: str) -> RefusalError:
    """Return the refusal of a model that TVM fails on: its own words, which are about its programs, are the cause."""
    return RefusalError(
        f"{what}: the compiler ends with an error, which `softq --debug` shows; please report it with the model"
    )


def is_of_tvm(error: BaseException) -> bool:
    """Say whether an error was raised inside TVM: by a check in C++ or in its Python code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and re.search(r"[/\\](tvm|tvm_ffi)[/\\]|\.(cc|h|pyx|pxi)$", frames[-1].filename) is not None


@contextlib.contextmanager
def refusing(what: str) -> Generator[None]:
    """Make errors of TVM's refusals.

    Args:
        what: What the refusals say first.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, SoftqError) or not is_of_tvm(error):
            raise
        raise refusal_of(what) from error


def find_failing(module: tvm.IRModule, lower: Callable[[tvm.IRModule], object]) -> str | None:
    """Return the name of the first value of `main` whose operator alone cannot be lowered, None if each one can."""
    for binding in (binding for block in module["main"].body.blocks for binding in block.bindings):
        if not isinstance(binding.value, tvm.ir.Call):
            continue
        try:
            lower(_alone(module, binding.value))
        except Exception as error:
            if is_of_tvm(error):
                return str(binding.var.name)
    return None


def _alone(module: tvm.IRModule, value: Any) -> tvm.IRModule:
    """Return a module whose `main` computes one expression from what it reads."""
    alone = tvm.IRModule({var: function for var, function in module.functions.items() if var.name_hint != "main"})
    read = list(relax.analysis.free_vars(value))
    builder = relax.BlockBuilder(alone)
    with builder.function("main", read):
        with builder.dataflow():
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()
