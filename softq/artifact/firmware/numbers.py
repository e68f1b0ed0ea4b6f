"""Names and numbers in C: types, constants that are exact, what a run returns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.errors import RefusalError

NATIVE = 32
"""Bits of C's int on every target: narrower operands are promoted to it."""

_CTYPES: Mapping[str, str] = {
    "bool": "bool", "float32": "float", "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""C's name of each type of values."""


def ctype(name: str) -> str:
    """Return C's name of a type of values.

    Raises:
        RefusalError: C has no such type.
    """
    if name not in _CTYPES:
        raise RefusalError(f"numbers of type {name} have no form in C")
    return _CTYPES[name]


_SHORT = re.compile(r"\d{1,6}\.\d{1,3}")


def literals(values: NDArray[Any]) -> list[str]:
    """Return a constant for each element of an array, in their order: what `literal` gives."""
    name = str(values.dtype)
    if name in ("float32", "float64"):
        suffix = "f" if name == "float32" else ""
        return [_float_literal(value, suffix) for value in values.ravel().tolist()]
    return [literal(value, name) for value in values.ravel().tolist()]


def literal(value: float, name: str) -> str:
    """Return a constant, exact, with its type."""
    if name.startswith("float"):
        return _float_literal(float(np.dtype(name).type(value)), "f" if name == "float32" else "")
    if name == "bool":
        return "true" if value else "false"
    whole, bits = int(value), bits_of(name)
    suffix = "u" if name.startswith("u") else ""
    if bits == 64:
        least = -(1 << 63)
        text = f"(INT64_C({least + 1}) - 1)" if whole == least else f"{suffix.upper()}INT64_C({whole})"
        return text if whole >= 0 or whole == least else f"({text})"
    if whole == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"({whole})" if whole < 0 else f"{whole}{suffix if bits == NATIVE else ''}"


def _float_literal(value: float, suffix: str) -> str:
    kind = "float" if suffix else "double"
    if math.isnan(value):
        return f"({kind})NAN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    text = f"({kind})INFINITY" if math.isinf(value) else _finite(abs(value)) + suffix
    return f"(-{text})" if sign else text


def _finite(size: float) -> str:
    # Decimal where that is short and exact, which is easier to read; most numbers are not, and are the sooner written.
    if size * 1024 % 1 == 0 and _SHORT.fullmatch(short := repr(size)):
        return short
    mantissa, _, exponent = size.hex().partition("p")
    return f"{mantissa.rstrip('0').removesuffix('.')}p{exponent}"


def bits_of(name: str) -> int:
    """Return the width of a type in memory."""
    return 8 if name == "bool" else int("".join(c for c in name if c.isdigit()))


CODES = ("OK", "NULL_POINTER", "ARENA_TOO_SMALL", "MISALIGNED", "BAD_DATA")
"""What a run returns, by the number."""


WORDS = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch",
    "char", "char8_t", "char16_t", "char32_t", "class", "compl", "concept", "const", "consteval", "constexpr",
    "constinit", "const_cast", "continue", "co_await", "co_return", "co_yield", "decltype", "default", "delete",
    "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for",
    "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
    "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "restrict", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast",
    "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename",
    "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq", "NULL", "NAN",
    "INFINITY", "uintptr_t",
))  # fmt: skip
"""Words of C99 and C++20, and what their headers define, which name nothing else."""


def identifiers(names: Iterable[str], prefix: str, taken: Iterable[str]) -> list[str]:
    """Return a name in C for each name of a model; they differ in capitals, too.

    Args:
        names: The model's names.
        prefix: What names of the model's own begin with; softq's begin with `sq_`.
        taken: Further names that are not free.
    """
    reserved = {*WORDS, *_CTYPES.values(), *taken}
    found: dict[str, str] = {}
    for text in names:
        plain = re.sub(r"\W", "_", text, flags=re.ASCII)
        if not plain[:1].isalpha() or plain.lower().startswith((prefix, "sq_")):
            plain = f"x{plain}"
        name, count = plain, 1
        while name in reserved or name.upper() in found:
            name, count = f"{plain}_{count}", count + 1
        found[name.upper()] = name
    return list(found.values())
