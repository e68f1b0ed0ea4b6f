"""Asking a processor for what kernels need, in C: `cpuid` on x86, the kernel's word (`AT_HWCAP`) elsewhere.

Features have LLVM's names. The bits are those of Intel's and AMD's manuals (CPUID) and of Linux's
`arch/*/include/uapi/asm/hwcap.h`.
"""

from __future__ import annotations

from collections.abc import Mapping

from softq.artifact.ctext import part
from softq.artifact.machine import Cpu
from softq.errors import SoftqError

# Leaf, subleaf and register; the bit of each feature.
_X86_BITS: dict[tuple[int, int, str], dict[str, int]] = {
    (1, 0, "ecx"): {
        "sse3": 0, "pclmul": 1, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22,
        "popcnt": 23, "aes": 25, "avx": 28, "f16c": 29
    },
    (0x80000001, 0, "ecx"): {"lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16},
    (7, 0, "ebx"): {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "adx": 19, "avx512ifma": 21, "avx512cd": 28,
        "avx512bw": 30, "avx512vl": 31
    },
    (7, 0, "ecx"): {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10, "avx512vnni": 11,
        "avx512bitalg": 12, "avx512vpopcntdq": 14
    },
    (7, 0, "edx"): {"avx512vp2intersect": 8, "amx-bf16": 22, "avx512fp16": 23, "amx-tile": 24, "amx-int8": 25},
    (7, 1, "eax"): {"avxvnni": 4, "avx512bf16": 5},
}  # fmt: skip
_X86 = {name: (*place, bit) for place, bits in _X86_BITS.items() for name, bit in bits.items()}
_AVX = frozenset({"fma", "avx", "f16c", "xop", "fma4", "avx2", "vaes", "vpclmulqdq", "avxvnni"})
"""Features of registers that a system has to save, beside those whose names begin with `avx512` and `amx`."""

# The number of the word (AT_HWCAP or AT_HWCAP2) and the bit.
_HWCAP: dict[str, dict[str, tuple[int, int]]] = {
    "aarch64": {
        "fp-armv8": (1, 0), "neon": (1, 1), "aes": (1, 3), "sha2": (1, 6), "crc": (1, 7), "lse": (1, 8),
        "fullfp16": (1, 10), "rdm": (1, 12), "dotprod": (1, 20), "sve": (1, 22), "fp16fml": (1, 23), "sve2": (2, 1),
        "i8mm": (2, 13), "bf16": (2, 14)
    },
    "arm": {"neon": (1, 12), "vfp3": (1, 13), "vfp4": (1, 16), "hwdiv-arm": (1, 17), "hwdiv": (1, 18)},
    "riscv64": {letter: (1, ord(letter) - ord("a")) for letter in "acdfmv"},
}  # fmt: skip


def architecture(machine: Cpu) -> str:
    """Return the family of a machine: `x86_64`, `aarch64`, `arm`, `riscv64`, or what its triple begins with."""
    return family(machine.triple.partition("-")[0])


def family(name: str) -> str:
    """Return the family of an architecture, by whatever name."""
    same = {"amd64": "x86_64", "arm64": "aarch64"}
    return same.get(name, "arm" if name.startswith(("arm", "thumb")) else name)


def source(machine: Cpu) -> str:
    """Return the C function `sq_missing_feature`, which names the first feature that the processor lacks, or NULL.

    Raises:
        SoftqError: nothing is known about how to ask for a feature.
    """
    return sources({"sq_missing_feature": machine})


def sources(machines: Mapping[str, Cpu]) -> str:
    """Return C functions by name, each of which names the first feature of a machine that the processor lacks, or NULL.

    Args:
        machines: Machines of one family.

    Raises:
        SoftqError: nothing is known about how to ask for a feature.
    """
    family = architecture(next(iter(machines.values())))
    ask = part("host/has_x86.c" if family == "x86_64" else "host/has_hwcap.c")
    texts = [ask] if any(machine.requires for machine in machines.values()) else []
    for function, machine in machines.items():
        calls = ((name, _call(machine, family, name)) for name in machine.requires)
        checks = (f'    if (!{call}) {{\n        return "{name}";\n    }}\n' for name, call in calls)
        texts.append(f"static const char *{function}(void)\n{{\n{''.join(checks)}    return NULL;\n}}\n")
    return "\n".join(texts)


def _call(machine: Cpu, family: str, name: str) -> str:
    if family == "x86_64" and name in _X86:
        leaf, subleaf, register, bit = _X86[name]
        word = ("eax", "ebx", "ecx", "edx").index(register)
        return f"sq_has(0x{leaf:x}u, {subleaf}u, {word}, {bit}, 0x{_saved_registers(name):x}u)"
    if name in _HWCAP.get(family, {}):
        word, bit = _HWCAP[family][name]
        return f"sq_has({word}, {bit})"
    known = ", ".join(_X86 if family == "x86_64" else _HWCAP.get(family, {})) or "none"
    raise SoftqError(f"machine {machine.name}: the driver cannot ask a processor for {name!r}; it knows: {known}")


def _saved_registers(name: str) -> int:
    """Return the bits of XCR0 that a system sets if it saves the registers of a feature."""
    if name.startswith("amx"):
        return 0x60000
    avx = 0x6 if name in _AVX else 0
    return 0xE6 if name.startswith("avx512") else avx
