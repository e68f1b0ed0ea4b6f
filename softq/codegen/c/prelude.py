"""What stands before kernels in C: types of memory, and functions that their texts call."""

from __future__ import annotations

from collections.abc import Collection

from softq.artifact.firmware.numbers import ctype

_BITS_OF = """static inline {to} {name}({of} x)
{{
    {to} y;
    memcpy(&y, &x, sizeof y);
    return y;
}}
"""
_EXTREME = """static inline {of} {name}({of} a, {of} b)
{{
    return a {sign} b ? a : b;
}}
"""


def helper(name: str) -> str:
    """Return the definition of a function that texts call."""
    operation, *rest = name.split("_", 1)
    if operation in ("min", "max"):
        return _EXTREME.format(of=ctype(rest[0]), name=f"sq_{name}", sign="<" if operation == "min" else ">")
    to, of = name.split("_of_")
    return _BITS_OF.format(to=ctype(to), of=ctype(of), name=f"sq_{name}")


PRELUDE = """#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Products and sums are rounded one by one, or numbers would differ from those of other processors. */
#if defined(__FAST_MATH__)
#error "softq: -ffast-math changes the results; compile this file without it"
#endif
#if FLT_EVAL_METHOD != 0
#error "softq: floats must be computed in their own precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("-ffp-contract=off")
#endif

/* Loops whose turns are short; GCC 8 and later. */
#if defined(__clang__)
#define SQ_UNROLL(turns) SQ_PRAGMA(unroll turns)
#elif defined(__GNUC__) && __GNUC__ >= 8
#define SQ_UNROLL(turns) SQ_PRAGMA(GCC unroll turns)
#else
#define SQ_UNROLL(turns)
#endif
#define SQ_PRAGMA(text) _Pragma(#text)

/* Elements of memory that steps share, one type after another. */
#if defined(__GNUC__)
#define SQ_MAY_ALIAS __attribute__((may_alias))
#define SQ_ALIGNED __attribute__((aligned(16)))
#else
#define SQ_MAY_ALIAS
#define SQ_ALIGNED
#endif
"""


def prelude(helpers: Collection[str]) -> str:
    """Return what stands before functions that call these helpers."""
    names = ("int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
    types = "".join(f"typedef {ctype(name)} SQ_MAY_ALIAS sq_{name};\n" for name in names)
    return "\n".join([PRELUDE + types, *map(helper, sorted(helpers))])
