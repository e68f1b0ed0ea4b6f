"""Functions in C on the four bytes of a word: instructions where there are such, else what they compute."""

from __future__ import annotations

from collections.abc import Mapping

HAS_DSP = "has_dsp"
"""What kernels call to know whether the functions are worth it."""

DSP = """/* Whether four bytes of a word are computed at once: 0 where that is no instruction. */
#ifndef SQ_DSP
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
#define SQ_DSP 1
#else
#define SQ_DSP 0
#endif
#endif
#if defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#endif
"""

_LOAD = """/* Four bytes, the first one lowest. */
static inline SQ_INLINE uint32_t sq_load_four(const void *at)
{
#if defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
#else
    const uint8_t *x = (const uint8_t *)at;
    return x[0] | (uint32_t)x[1] << 8 | (uint32_t)x[2] << 16 | (uint32_t)x[3] << 24;
#endif
}
"""

_SUB = """/* Differences of bytes, which wrap. */
static inline SQ_INLINE uint32_t sq_sub_four(uint32_t a, uint32_t b)
{
#if defined(__ARM_FEATURE_SIMD32)
    return __usub8(a, b);
#else
    return ((a | 0x80808080u) - (b & 0x7F7F7F7Fu)) ^ ((a ^ ~b) & 0x80808080u);
#endif
}
"""

_EXTREME = """/* The {which} of each two bytes. */
static inline SQ_INLINE uint32_t sq_{name}(uint32_t a, uint32_t b)
{{
#if defined(__ARM_FEATURE_SIMD32)
    (void)__{compare}(({kind}x4_t)a, ({kind}x4_t)b);
    return __sel({chosen});
#else
    uint32_t chosen = 0;
    for (uint32_t shift = 0; shift < 32; shift += 8) {{
        const {kind}_t x = ({kind}_t)(a >> shift), y = ({kind}_t)(b >> shift);
        chosen |= (uint32_t)(uint8_t)(x {sign} y ? x : y) << shift;
    }}
    return chosen;
#endif
}}
"""


def _extreme(operation: str, kind: str) -> str:
    most = operation == "max"
    return _EXTREME.format(
        which="greater" if most else "lesser", name=f"{operation}_four_{kind}", kind=kind,
        compare="usub8" if kind == "uint8" else "ssub8", chosen="a, b" if most else "b, a", sign=">" if most else "<",
    )  # fmt: skip


FOUR_BYTES: Mapping[str, str] = {
    "load_four": _LOAD,
    "sub_four": _SUB,
    **{f"{o}_four_{kind}": _extreme(o, kind) for o in ("max", "min") for kind in ("int8", "uint8")},
}
"""Definitions by the name that kernels call them by; `sq_` stands before it."""
