"""Asking a processor for what kernels need, in C: `cpuid` on x86, the kernel's word (`AT_HWCAP`) elsewhere.

Features have LLVM's names. The bits are those of Intel's and AMD's manuals (CPUID) and of Linux's
`arch/*/include/uapi/asm/hwcap.h`.
"""

from __future__ import annotations

from softq.artifact.machine import Cpu
from softq.errors import SoftqError

# Leaf, subleaf, register, bit. Wide registers also need a system that saves them: the bits of XCR0 asked for.
_SSE, _AVX, _AVX512, _AMX = 0x0, 0x6, 0xE6, 0x60000
_X86: dict[str, tuple[int, int, str, int, int]] = {
    "sse3": (1, 0, "ecx", 0, _SSE),
    "pclmul": (1, 0, "ecx", 1, _SSE),
    "ssse3": (1, 0, "ecx", 9, _SSE),
    "fma": (1, 0, "ecx", 12, _AVX),
    "cx16": (1, 0, "ecx", 13, _SSE),
    "sse4.1": (1, 0, "ecx", 19, _SSE),
    "sse4.2": (1, 0, "ecx", 20, _SSE),
    "movbe": (1, 0, "ecx", 22, _SSE),
    "popcnt": (1, 0, "ecx", 23, _SSE),
    "aes": (1, 0, "ecx", 25, _SSE),
    "avx": (1, 0, "ecx", 28, _AVX),
    "f16c": (1, 0, "ecx", 29, _AVX),
    "lzcnt": (0x80000001, 0, "ecx", 5, _SSE),
    "sse4a": (0x80000001, 0, "ecx", 6, _SSE),
    "xop": (0x80000001, 0, "ecx", 11, _AVX),
    "fma4": (0x80000001, 0, "ecx", 16, _AVX),
    "bmi": (7, 0, "ebx", 3, _SSE),
    "avx2": (7, 0, "ebx", 5, _AVX),
    "bmi2": (7, 0, "ebx", 8, _SSE),
    "avx512f": (7, 0, "ebx", 16, _AVX512),
    "avx512dq": (7, 0, "ebx", 17, _AVX512),
    "adx": (7, 0, "ebx", 19, _SSE),
    "avx512ifma": (7, 0, "ebx", 21, _AVX512),
    "avx512cd": (7, 0, "ebx", 28, _AVX512),
    "avx512bw": (7, 0, "ebx", 30, _AVX512),
    "avx512vl": (7, 0, "ebx", 31, _AVX512),
    "avx512vbmi": (7, 0, "ecx", 1, _AVX512),
    "avx512vbmi2": (7, 0, "ecx", 6, _AVX512),
    "gfni": (7, 0, "ecx", 8, _SSE),
    "vaes": (7, 0, "ecx", 9, _AVX),
    "vpclmulqdq": (7, 0, "ecx", 10, _AVX),
    "avx512vnni": (7, 0, "ecx", 11, _AVX512),
    "avx512bitalg": (7, 0, "ecx", 12, _AVX512),
    "avx512vpopcntdq": (7, 0, "ecx", 14, _AVX512),
    "avx512vp2intersect": (7, 0, "edx", 8, _AVX512),
    "amx-bf16": (7, 0, "edx", 22, _AMX),
    "avx512fp16": (7, 0, "edx", 23, _AVX512),
    "amx-tile": (7, 0, "edx", 24, _AMX),
    "amx-int8": (7, 0, "edx", 25, _AMX),
    "avxvnni": (7, 1, "eax", 4, _AVX),
    "avx512bf16": (7, 1, "eax", 5, _AVX512),
}

# The number of the word (AT_HWCAP or AT_HWCAP2) and the bit.
_HWCAP: dict[str, dict[str, tuple[int, int]]] = {
    "aarch64": {
        "fp-armv8": (1, 0),
        "neon": (1, 1),
        "aes": (1, 3),
        "sha2": (1, 6),
        "crc": (1, 7),
        "lse": (1, 8),
        "fullfp16": (1, 10),
        "rdm": (1, 12),
        "dotprod": (1, 20),
        "sve": (1, 22),
        "fp16fml": (1, 23),
        "sve2": (2, 1),
        "i8mm": (2, 13),
        "bf16": (2, 14),
    },
    "arm": {"neon": (1, 12), "vfp3": (1, 13), "vfp4": (1, 16), "hwdiv-arm": (1, 17), "hwdiv": (1, 18)},
    "riscv64": {letter: (1, ord(letter) - ord("a")) for letter in "acdfmv"},
}

_ASK_X86 = """#include <cpuid.h>

static int sq_has(unsigned leaf, unsigned subleaf, int word, int bit, unsigned saved)
{
    unsigned registers[4] = {0, 0, 0, 0};
    if (__get_cpuid_max(leaf & 0x80000000u, NULL) < leaf) {
        return 0;
    }
    __cpuid_count(leaf, subleaf, registers[0], registers[1], registers[2], registers[3]);
    if (((registers[word] >> bit) & 1u) == 0) {
        return 0;
    }
    if (saved == 0) {
        return 1;
    }
    unsigned a = 0, b = 0, c = 0, d = 0;
    __cpuid_count(1u, 0u, a, b, c, d);
    if (((c >> 27) & 1u) == 0) {
        return 0;
    }
    __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & saved) == saved;
}
"""

_ASK_HWCAP = """#include <sys/auxv.h>

static int sq_has(int word, int bit)
{
    /* AT_HWCAP is 16 and AT_HWCAP2 is 26 on every Linux; old headers lack the second. */
    return ((getauxval(word == 1 ? 16 : 26) >> bit) & 1u) != 0;
}
"""


def architecture(machine: Cpu) -> str:
    """Return the family of a machine: `x86_64`, `aarch64`, `arm`, `riscv64`, or what its triple begins with."""
    first = machine.triple.partition("-")[0]
    if first in ("arm64", "aarch64"):
        return "aarch64"
    return "arm" if first.startswith(("arm", "thumb")) else first


def source(machine: Cpu) -> str:
    """Return the C function `sq_missing_feature`, which names the first feature that the processor lacks, or NULL.

    Raises:
        SoftqError: nothing is known about how to ask for a feature.
    """
    family = architecture(machine)
    checks = [
        f'    if (!{_call(machine, family, name)}) {{\n        return "{name}";\n    }}\n' for name in machine.requires
    ]
    ask = "" if not checks else _ASK_X86 if family == "x86_64" else _ASK_HWCAP
    return (
        f"{ask}\nstatic const char *sq_missing_feature(void)\n{{\n" + "".join(checks) + "    return NULL;\n}\n"
    ).lstrip()


def _call(machine: Cpu, family: str, name: str) -> str:
    if family == "x86_64" and name in _X86:
        leaf, subleaf, register, bit, saved = _X86[name]
        word = ("eax", "ebx", "ecx", "edx").index(register)
        return f"sq_has(0x{leaf:x}u, {subleaf}u, {word}, {bit}, 0x{saved:x}u)"
    if name in _HWCAP.get(family, {}):
        word, bit = _HWCAP[family][name]
        return f"sq_has({word}, {bit})"
    known = ", ".join(_X86 if family == "x86_64" else _HWCAP.get(family, {})) or "none"
    raise SoftqError(f"machine {machine.name}: the driver cannot ask a processor for {name!r}; it knows: {known}")
