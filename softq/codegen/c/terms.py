"""What the writers of C ask of TIR's expressions, and how texts become operands."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import tirx

from softq.artifact.firmware.numbers import NATIVE, bits_of, ctype

HELPER = "sq_"
"""What the names of functions that stand before kernels begin with."""


def memory_type(name: str) -> str:
    """Return C's name of the elements of memory of a type."""
    return "uint8_t" if name == "bool" else f"sq_{name}" if bits_of(name) > 8 else ctype(name)


def dtype(x: Any) -> str:
    """Return the type of an expression or a variable."""
    return str(x.ty.dtype)


def unsigned(name: str) -> str:
    """Return the unsigned type in which integers of a type are shifted to the left."""
    return f"uint{max(bits_of(name), NATIVE)}"


def is_pointer(param: Any) -> bool:
    """Say whether a parameter is a pointer."""
    return not hasattr(param.ty, "dtype") or "handle" in str(getattr(param.ty, "dtype", "handle"))


def pointee(param: Any) -> str:
    """Return the type of what a parameter points to."""
    return str(param.ty.element_type.dtype)


def is_address(x: Any) -> bool:
    """Say whether an expression is the address of an element."""
    return isinstance(x, tvm.ir.Call) and str(x.op.name) == "tirx.address_of"


def pointed_to(x: Any) -> Any:
    """Return the buffer or the parameter that an expression points into; None if it is no pointer."""
    if is_address(x):
        return x.args[0].source
    if isinstance(x, tvm.ir.Call) and str(x.op.name) == "tirx.buffer_data":
        return x.args[0]
    return x if isinstance(x, tirx.Var) and is_pointer(x) else None


def is_kernel_call(x: tvm.ir.Call) -> bool:
    """Say whether a call is that of another kernel, and not of a function that stands before them (`prelude`)."""
    is_call = str(getattr(x.op, "name", "")) == "tirx.call_extern"
    return is_call and not str(x.args[0].value).startswith(HELPER)


def intrinsic_name(call: tvm.ir.Call) -> str:
    """Return LLVM's name of the intrinsic that is called."""
    return str(tvm.get_global_func("target.llvm_get_intrinsic_name")(int(call.args[0])))


def is_zero(x: Any) -> bool:
    """Say whether an expression is the number 0."""
    return isinstance(x, tirx.IntImm) and int(x) == 0


def count(buffer: Any) -> int:
    """Return how many elements a buffer has."""
    return math.prod(int(size) for size in buffer.shape)


def bare(text: str) -> str:
    """Return an expression without brackets around all of it."""
    return text[1:-1] if text.startswith("(") and _matches(text) else text


def within(text: str) -> str:
    """Return a condition in exactly one pair of brackets."""
    return text if text.startswith("(") and _matches(text) else f"({text})"


def _matches(text: str) -> bool:
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def promoted(name: str) -> str:
    """Return the type that C computes operands of a type in."""
    return "int32" if bits_of(name) < NATIVE else name


def as_type(text: str, old: str, new: str) -> str:
    """Return an operand in another type."""
    return text if old == new else f"({ctype(new)}){text}"


def converted(text: str, old: str, new: str) -> str:
    """Return an operation, which C computes in one type, in another."""
    return f"({text})" if old == new else f"({ctype(new)})({text})"
