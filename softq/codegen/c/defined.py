"""Integers of a model's own operators in C, where C defines less than the processors do.

A sum that overflows wraps, as unsigned numbers do. A quotient by 0 is 0, with what is divided for the rest. A float
that no integer of the type is near becomes the nearest one there is, and NaN 0: ONNX leaves both open, and so do
processors with a unit for floats. Types below 32 bits keep the low bits of the integer of 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx

from softq.artifact.firmware.numbers import NATIVE, bits_of, ctype
from softq.codegen.c.terms import dtype, pointed_to
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key

_WHOLE = """/* The integer of a float without its fraction, or the nearest one there is; 0 for NaN. */
static inline SQ_INLINE {to} sq_whole_{int}_{float}({of} x)
{{
{instruction}    if (x != x) {{
        return 0;
    }}
    return x >= {above} ? {most} : x < {least} ? {fewest} : ({to})x;
{end}}}
"""
_INSTRUCTION = """#if defined(__GNUC__) && defined(__ARM_FP) && (__ARM_FP & 4)
    float nearest;
    int32_t n;
    __asm__("vcvt.s32.f32 %0, %1" : "=t"(nearest) : "t"(x));
    memcpy(&n, &nearest, sizeof n);
    return n;
#else
"""
_QUOTIENT = """static inline SQ_INLINE {of} sq_quotient_{name}({of} a, {of} b)
{{
    return ({of})(b == 0 ? 0 : {special}a / b);
}}
"""
_REST = """static inline SQ_INLINE {of} sq_rest_{name}({of} a, {of} b)
{{
    return ({of})(b == 0 ? a : {special}a % b);
}}
"""
OPERATIONS = ("whole_", "quotient_", "rest_")
"""What the names of the functions begin with."""


def define(name: str) -> str:
    """Return the definition of one of the functions."""
    which, kind, *rest = name.split("_")
    if which == "whole":
        (of,), bits = rest, bits_of(kind)
        suffix, macro = "f" if of == "float32" else "", f"INT{bits}"
        power, has_one = bits - (kind[0] != "u"), (kind, of) == ("int32", "float32")
        least = f"-0x1p{power}{suffix}" if kind[0] != "u" else f"0.0{suffix}"
        return _WHOLE.format(
            to=ctype(kind), int=kind, float=of, of=ctype(of), above=f"0x1p{power}{suffix}", least=least,
            most=f"{'U' * (kind[0] == 'u')}{macro}_MAX", fewest=f"{macro}_MIN" if kind[0] != "u" else "0",
            instruction=_INSTRUCTION if has_one else "", end="#endif\n" if has_one else "",
        )  # fmt: skip
    of, is_signed = ctype(kind), kind[0] != "u"
    wide = f"uint{max(bits_of(kind), NATIVE)}_t"
    if which == "quotient":
        return _QUOTIENT.format(of=of, name=kind, special=f"b == -1 ? ({of})(0u - ({wide})a) : " if is_signed else "")
    return _REST.format(of=of, name=kind, special="b == -1 ? 0 : " if is_signed else "")


class Data:
    """What of a function's integers hangs on data, and not on positions and sizes alone.

    Args:
        body: The function's.
    """

    def __init__(self, body: Any) -> None:
        values = [(key(bind.var), bind.value) for bind in found(body, tirx.Bind)]
        viewed = {key(var) for view in found(body, tirx.DeclBuffer) for var in found(view.data, tirx.Var)}
        viewed |= {key(of) for view in found(body, tirx.DeclBuffer) if (of := pointed_to(view.data)) is not None}
        own = {key(a.buffer) for a in found(body, tirx.AllocBuffer)} - viewed
        values += [(key(s.buffer), s.value) for s in found(body, tirx.BufferStore) if key(s.buffer) in own]
        self._positions, self._names = {at for at, _ in values}, set[int]()
        changed = True
        while changed:
            among = {at for at, value in values if at in self._positions and value in self}
            self._positions -= among
            changed = bool(among)
        self._names = {at for at, _ in values} - self._positions

    def __contains__(self, x: Any) -> bool:
        """Say whether an expression reads memory that does not hold positions, or a variable made of such."""
        return any(key(load.source) not in self._positions for load in found(x, tvm.ir.TensorLoad)) or any(
            key(var) in self._names for var in found(x, tirx.Var)
        )


def quotient_helper(x: tirx.Div | tirx.Mod, data: Data) -> str | None:
    """Return the name of the function that divides integers of data; None for others, and by what is known."""
    name, is_known = dtype(x), isinstance(x.b, tirx.IntImm) and int(x.b) > 0
    if name.startswith("float") or is_known or x.b not in data:
        return None
    return f"{'quotient' if isinstance(x, tirx.Div) else 'rest'}_{name}"


def cast_helper(x: tirx.Cast, definitions: Mapping[int, Any]) -> str | None:
    """Return the name of the function that makes an integer of a float; None where bounds prove that it has one.

    Args:
        x: The conversion.
        definitions: What variables are that have one value.
    """
    old, new = dtype(x.value), dtype(x)
    if not old.startswith("float") or new.startswith("float") or _is_within(x.value, new, definitions):
        return None
    by_way = "int32" if bits_of(new) < NATIVE or new == "int32" else new if new == "uint64" else "int64"
    return f"whole_{by_way}_{old}"


def _is_within(x: Any, name: str, definitions: Mapping[int, Any]) -> bool:
    bounds, bits = _bounds(x, definitions), bits_of(name)
    least, above = (0, 1 << bits) if name.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return bounds is not None and least - 1 < bounds[0] and bounds[1] < above


def _bounds(x: Any, definitions: Mapping[int, Any]) -> tuple[float, float] | None:
    """Return the least and the greatest number that a float may be; None if it may be NaN."""
    if isinstance(x, tirx.FloatImm):
        return None if math.isnan(x.value) else (float(x.value), float(x.value))
    if isinstance(x, (tirx.Min, tirx.Max)):
        # With a NaN as the first operand they give the second one.
        a, b = _bounds(x.a, definitions) or (-math.inf, math.inf), _bounds(x.b, definitions)
        extreme = min if isinstance(x, tirx.Min) else max
        return None if b is None else (extreme(a[0], b[0]), extreme(a[1], b[1]))
    if isinstance(x, tirx.Select):
        parts = [_bounds(part, definitions) for part in (x.true_value, x.false_value)]
        known = [part for part in parts if part is not None]
        return (min(p[0] for p in known), max(p[1] for p in known)) if len(known) == len(parts) else None
    if isinstance(x, tirx.Cast):
        return _bounds_of_integers(dtype(x.value))
    if isinstance(x, (tirx.Var, tvm.ir.TensorLoad)):
        value = definitions.get(key(x.source if isinstance(x, tvm.ir.TensorLoad) else x))
        return None if value is None else _bounds(value, definitions)
    rounded = _rounded(x)
    inner = None if rounded is None else _bounds(rounded, definitions)
    if inner is None or not all(map(math.isfinite, inner)):
        return None
    return float(math.floor(inner[0])), float(math.ceil(inner[1]))


def _bounds_of_integers(name: str) -> tuple[float, float] | None:
    if name == "bool" or name.startswith("float"):
        return (0.0, 1.0) if name == "bool" else None
    bits = bits_of(name)
    return (0.0, 2.0**bits) if name.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))


_ROUNDINGS = ("floor", "ceil", "trunc", "round", "nearbyint")


def _rounded(x: Any) -> Any:
    """Return what is rounded to an integer; None if it is nothing of the kind."""
    if not isinstance(x, tvm.ir.Call):
        return None
    name = str(getattr(x.op, "name", ""))
    if name == "tirx.call_pure_extern":
        return x.args[1] if str(x.args[0].value).removesuffix("f") in _ROUNDINGS else None
    return x.args[0] if name.removeprefix("tirx.") in _ROUNDINGS else None
