"""What stands before kernels in C: types of memory, and functions that their texts call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from softq.artifact.firmware.numbers import ctype
from softq.codegen.c.defined import OPERATIONS, define
from softq.codegen.c.four_bytes import DSP, FOUR_BYTES, HAS_DSP

_BITS_OF = """static inline SQ_INLINE {to} {name}({of} x)
{{
    {to} y;
    memcpy(&y, &x, sizeof y);
    return y;
}}
"""
_EXTREME = """static inline SQ_INLINE {of} {name}({of} a, {of} b)
{{
    return a {sign} b ? a : b;
}}
"""
EXTREMES = ("least_float32", "greatest_float32")
"""Functions that are one instruction where a processor has it (`Cpu.extremes`)."""

_NUMBER = """static inline SQ_INLINE float {name}(float a, float b)
{{
    return {function}(a, b);
}}
"""


_WORDS = """#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
/* Of four bytes the first and the third, and the second and the fourth, as two numbers of 16 bits each. */
static inline uint32_t sq_even(uint32_t x)
{
    uint32_t y;
    __asm__("sxtb16 %0, %1" : "=r"(y) : "r"(x));
    return y;
}

static inline uint32_t sq_odd(uint32_t x)
{
    uint32_t y;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(y) : "r"(x));
    return y;
}

static inline int32_t sq_add_products(uint32_t x, uint32_t y, int32_t sum)
{
    int32_t result;
    __asm__("smlad %0, %1, %2, %3" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
    return result;
}

static inline uint32_t sq_word(const int8_t *from)
{
    uint32_t x;
    memcpy(&x, from, sizeof x);
    return x;
}
#endif
"""
_DOTS = """/* The products of {count} and two columns of so many groups of four bytes are added to sums. */
static inline SQ_INLINE void sq_dots_{rows}(const int8_t *a, int32_t a_row, const int8_t *b, int32_t b_row,
                                        int32_t groups, sq_int32 *sums)
{{
{begin}
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    const int8_t *const end = b0 + 4 * groups;
    while (b0 != end) {{
{words}
    }}
#else
    for (int32_t k = 0; k < 4 * groups; ++k) {{
{bytes}
    }}
#endif
{end}
}}
"""
_COLUMNS = 2


def _dots(rows: int) -> str:
    """Return the function that multiplies so many rows and two columns."""
    sides = [("a", i) for i in range(rows)], [("b", j) for j in range(_COLUMNS)]
    places = [(i, j) for i in range(rows) for j in range(_COLUMNS)]
    begin = [
        f"const int8_t *{s}{i} = {s}{f' + {s}_row' if i else ''};" for side in reversed(sides) for s, i in side
    ] + [f"int32_t s{i}{j} = sums[{i * _COLUMNS + j}];" for i, j in places]
    begin += ["(void)a_row;"] if rows == 1 else []
    words = [f"const uint32_t {s}w{i} = sq_word({s}{i});" for side in sides for s, i in side]
    for half in ("even", "odd"):
        words += [f"const uint32_t {s}{half}{i} = sq_{half}({s}w{i});" for side in sides for s, i in side]
        words += [f"s{i}{j} = sq_add_products(a{half}{i}, b{half}{j}, s{i}{j});" for i, j in places]
    words += [f"{s}{i} += 4;" for side in sides for s, i in side]
    products = [f"s{i}{j} += (int32_t)a{i}[k] * (int32_t)b{j}[k];" for i, j in places]
    end = [f"sums[{i * _COLUMNS + j}] = s{i}{j};" for i, j in places]

    def lines(texts: Sequence[str], depth: int) -> str:
        return "\n".join("    " * depth + text for text in texts)

    return _DOTS.format(
        rows=rows, count="one row" if rows == 1 else "two rows", begin=lines(begin, 1), words=lines(words, 2),
        bytes=lines(products, 2), end=lines(end, 1),
    )  # fmt: skip


_ZEROS = """/* Zeros above the first bit that is set, of a number that is not 0. */
static inline SQ_INLINE int32_t sq_zeros_uint32(uint32_t x)
{
#if defined(__ARM_FEATURE_CLZ)
    return __builtin_clz(x);
#else
    int32_t zeros = 0;
    for (; x < 0x80000000u; x <<= 1) {
        ++zeros;
    }
    return zeros;
#endif
}
"""


_PRODUCT = """static inline SQ_INLINE int64_t sq_product_int32(int32_t a, int32_t b)
{
    SQ_SIGNED(a);
    SQ_SIGNED(b);
    return (int64_t)a * b;
}
"""
_SCALED = """/* A product, divided by 2^{shift}, half up: its upper word is a multiple of what is divided by. */
static SQ_SHORT int32_t sq_scaled_{shift}(int32_t a, int32_t b)
{{
    SQ_SIGNED(a);
    SQ_SIGNED(b);
    const int64_t product = (int64_t)a * b;
    return (int32_t)(((uint32_t)(product >> 32) << {left}) + ((((uint32_t)product >> {right}) + 1) >> 1));
}}
"""
PRODUCTS = ("product_", "scaled_")
"""What names of functions that multiply two numbers of 32 bits in 64 begin with."""


def helper(name: str, extremes: bool = False) -> str:
    """Return the definition of a function that texts call.

    Args:
        name: Its name without what all such names begin with.
        extremes: See `Cpu`.
    """
    if name in FOUR_BYTES:
        return FOUR_BYTES[name]
    if name == "zeros_uint32":
        return _ZEROS
    if name.startswith(OPERATIONS):
        return define(name)
    if name == "product_int32":
        return _PRODUCT
    operation, *rest = name.split("_", 1)
    if operation == "scaled":
        return _SCALED.format(shift=rest[0], left=32 - int(rest[0]), right=int(rest[0]) - 1)
    if operation in ("least", "greatest"):
        if extremes:
            return _NUMBER.format(name=f"sq_{name}", function="fminf" if operation == "least" else "fmaxf")
        return _EXTREME.format(of=ctype(rest[0]), name=f"sq_{name}", sign="<" if operation == "least" else ">")
    if operation in ("min", "max"):
        return _EXTREME.format(of=ctype(rest[0]), name=f"sq_{name}", sign="<" if operation == "min" else ">")
    if operation == "dots":
        return _dots(int(rest[0]))
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

/* What is short once it is known what is passed. */
#if defined(__GNUC__)
#define SQ_INLINE __attribute__((always_inline))
#else
#define SQ_INLINE
#endif

/* A compiler that knows a factor not to be negative takes it for unsigned, and has no instruction for the product. */
#if defined(__GNUC__)
#define SQ_SIGNED(x) __asm__("" : "+r"(x))
#else
#define SQ_SIGNED(x) (void)(x)
#endif

/* What is shorter to call than to repeat where a product of 64 bits is no instruction. */
#if defined(__GNUC__) && defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1
#define SQ_SHORT __attribute__((noinline))
#else
#define SQ_SHORT inline SQ_INLINE
#endif

/* Elements of memory that steps share, one type after another. */
#if defined(__GNUC__)
#define SQ_MAY_ALIAS __attribute__((may_alias))
#define SQ_ALIGNED __attribute__((aligned(16)))
#else
#define SQ_MAY_ALIAS
#define SQ_ALIGNED
#endif
"""


def prelude(helpers: Collection[str], extremes: bool = False) -> str:
    """Return what stands before functions that call these helpers, for a processor with `Cpu.extremes` or without."""
    names = ("int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
    types = "".join(f"typedef {ctype(name)} SQ_MAY_ALIAS sq_{name};\n" for name in names)
    words = [_WORDS] if any(name.startswith("dots_") for name in helpers) else []
    dsp = [DSP] * any(name in FOUR_BYTES or name == HAS_DSP for name in helpers)
    named = [helper(name, extremes) for name in sorted(helpers) if name != HAS_DSP]
    return "\n".join([PRELUDE + types, *dsp, *words, *named])
