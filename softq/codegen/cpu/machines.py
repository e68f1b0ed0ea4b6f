"""Descriptions of processors: what LLVM knows of a name, in the terms that kernels and drivers need."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from softq.artifact.machine import Machine
from softq.errors import UsageError

_VECTOR_X86 = (("avx512f", 64, 32), ("avx2", 32, 16))

# What a driver can ask an x86 processor for; the others (tuning, modes) are no reason not to run.
_ASKED_X86 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512bw",
              "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni",
              "avx512bitalg", "avx512vpopcntdq", "gfni", "vpclmulqdq")  # fmt: skip

# What code for an Arm processor may use beyond the 64-bit ones' common base, and a driver can ask for.
_ASKED_AARCH64 = ("fullfp16", "rdm", "dotprod", "i8mm", "bf16", "sve", "sve2")


def host(name: str, cpu: str, features: str) -> Machine:
    """Return the processor that this runs on, or one of its family.

    Args:
        name: The target's name.
        cpu: LLVM's name, or `native`.
        features: LLVM's features beyond it, `+avx2+fma`.

    Raises:
        UsageError: LLVM does not know the name, or softq has no driver for this computer's architecture.
    """
    from tvm.target import codegen

    if cpu == "native":
        cpu = str(codegen.llvm_get_system_cpu())
    family = platform.machine().lower()
    if family in ("x86_64", "amd64"):
        return x86_64(name, cpu, features)
    if family in ("aarch64", "arm64"):
        return aarch64(name, cpu, features)
    raise UsageError(f"target {name}: there is no driver for {family}; build for one of the edge targets")


def x86_64(name: str, cpu: str, features: str) -> Machine:
    """Return a 64-bit x86 processor with Linux."""
    triple, chosen = "x86_64-unknown-linux-gnu", split(features)
    known = _known(name, triple, cpu, chosen)
    width, registers = next(((w, r) for feature, w, r in _VECTOR_X86 if feature in known), (16, 16))
    requires = tuple(f for f in _ASKED_X86 if f in known)
    # 2.17 is the C library of the oldest Linux that manylinux wheels still serve.
    return Machine(name, triple, cpu, chosen, "x86_64-linux-gnu.2.17", width, registers, requires, fused="fma" in known)


def aarch64(name: str, cpu: str, features: str) -> Machine:
    """Return a 64-bit Arm processor with Linux; NEON belongs to every one."""
    triple, chosen = "aarch64-unknown-linux-gnu", split(features)
    known = _known(name, triple, cpu, chosen)
    requires = tuple(f for f in _ASKED_AARCH64 if f in known)
    return Machine(name, triple, cpu, chosen, "aarch64-linux-gnu.2.17", 16, 32, requires, fused=True)


def armv7(name: str, cpu: str, features: str) -> Machine:
    """Return a 32-bit Arm processor with Linux, floating point registers for arguments, and NEON if it has that."""
    triple, chosen = "armv7a-unknown-linux-gnueabihf", split(features)
    known = _known(name, triple, cpu, chosen)
    neon = "neon" in known
    requires = tuple(f for f in ("neon", "vfp4") if f in known)
    return Machine(
        name,
        triple,
        cpu,
        chosen,
        "arm-linux-gnueabihf.2.17",
        16 if neon else 0,
        16,
        requires,
        float_abi="hard",
        fused="vfp4" in known,
    )


def riscv64(name: str, cpu: str, features: str) -> Machine:
    """Return a 64-bit RISC-V processor with Linux, and vectors of at least 128 bits if it has `v`."""
    triple, chosen = "riscv64-unknown-linux-gnu", split(features)
    known = _known(name, triple, cpu, chosen)
    vectors = "v" in known
    requires = ("v",) if vectors else ()
    width, fused = 16 if vectors else 0, "f" in known
    return Machine(name, triple, cpu, chosen, "riscv64-linux-gnu", width, 32, requires, abi="lp64d", fused=fused)


def split(features: str) -> tuple[str, ...]:
    """Return the names in `+a+b`.

    Raises:
        UsageError: the text has another form.
    """
    names = tuple(part for part in features.split("+") if part)
    if names and not features.startswith("+"):
        raise UsageError(f"features are {features!r}; expected +name, several as +name+name")
    return names


def _known(name: str, triple: str, cpu: str, features: Sequence[str]) -> set[str]:
    """Return every feature that LLVM gives a processor."""
    from tvm.target import Target, codegen

    plain = Target({"kind": "llvm", "mtriple": triple})
    if cpu not in set(map(str, codegen.llvm_get_cpu_archlist(plain))):
        raise UsageError(f"target {name}: LLVM knows no processor {cpu!r} for {triple}")
    target = Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu, "mattr": [f"+{f}" for f in features]})
    found = set(map(str, codegen.llvm_get_cpu_features(target)))
    missing = [f for f in features if f not in found]
    if missing:
        raise UsageError(f"target {name}: LLVM knows no feature {', '.join(missing)} of {cpu} for {triple}")
    return found
