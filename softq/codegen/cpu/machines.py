"""Descriptions of processors with Linux: what LLVM knows of a name, in the terms that kernels and drivers need.

To add a processor family, add an entry to `FAMILIES`: it is a target then. Features that a driver is to ask a processor
for have their question in `softq.artifact.features`.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from softq.artifact.machine import Cpu
from softq.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Family:
    """Processors that run the same programs, but for features.

    Attributes:
        name: The target's name.
        summary: One line.
        triple: LLVM's triple.
        zig: Triple of the C compiler that comes with zig, with the version of the C library where it matters.
        cpu: LLVM's name of the processor if the user gives none.
        features: LLVM's features beyond it if the user gives none, `+name+name`.
        hint: What a user may want to know of features.
        asked: Features that code may use and that a driver can ask for, in the order in which it asks.
        vectors: Feature, width in bytes and number of registers of vectors, the widest first.
        without: Width and number of registers where there is none of these features.
        fused: The feature with which multiply-adds are rounded once; empty if all have them.
        float_abi: `hard` or `soft` where the architecture has both, else empty.
        abi: Name of the calling convention where LLVM needs one, else empty.
    """

    name: str
    summary: str
    triple: str
    zig: str
    cpu: str
    features: str = ""
    hint: str = ""
    asked: tuple[str, ...]
    vectors: tuple[tuple[str, int, int], ...] = ()
    without: tuple[int, int]
    fused: str = ""
    float_abi: str = ""
    abi: str = ""

    def machine(self, name: str, cpu: str, features: str) -> Cpu:
        """Return a processor of the family.

        Args:
            name: The target's name.
            cpu: LLVM's name.
            features: LLVM's features beyond it, `+avx2+fma`.

        Raises:
            UsageError: LLVM does not know the processor or a feature.
        """
        chosen = split(features)
        known = _known(name, self.triple, cpu, chosen)
        found = ((width, registers) for feature, width, registers in self.vectors if feature in known)
        width, registers = next(found, self.without)
        return Cpu(
            name=name,
            triple=self.triple,
            cpu=cpu,
            features=chosen,
            zig=self.zig,
            vector_bytes=width,
            vectors=registers,
            requires=tuple(feature for feature in self.asked if feature in known),
            float_abi=self.float_abi,
            abi=self.abi,
            fused=not self.fused or self.fused in known,
        )


# Of x86 the features that are no reason not to run are left out: tuning, modes. 2.17 is the C library of the oldest
# Linux that manylinux wheels still serve.
X86_64 = Family(
    name="x86-64",
    summary="64-bit x86 with Linux.",
    triple="x86_64-unknown-linux-gnu",
    zig="x86_64-linux-gnu.2.17",
    cpu="x86-64",
    asked=(
        "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512bw",
        "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg",
        "avx512vpopcntdq", "gfni", "vpclmulqdq",
    ),
    vectors=(("avx512f", 64, 32), ("avx2", 32, 16)),
    without=(16, 16),
    fused="fma",
)  # fmt: skip

AARCH64 = Family(
    name="aarch64",
    summary="64-bit Arm with Linux (NEON), cross-compiled.",
    triple="aarch64-unknown-linux-gnu",
    zig="aarch64-linux-gnu.2.17",
    cpu="cortex-a53",
    asked=("fullfp16", "rdm", "dotprod", "i8mm", "bf16", "sve", "sve2"),
    without=(16, 32),  # NEON belongs to every one.
)

ARMV7 = Family(
    name="armv7",
    summary="32-bit Arm with Linux (NEON), cross-compiled.",
    triple="armv7a-unknown-linux-gnueabihf",
    zig="arm-linux-gnueabihf.2.17",
    cpu="cortex-a7",
    asked=("neon", "vfp4"),
    vectors=(("neon", 16, 16),),
    without=(0, 16),
    fused="vfp4",
    float_abi="hard",
)

RISCV64 = Family(
    name="riscv64",
    summary="64-bit RISC-V with Linux, with or without vectors, cross-compiled.",
    triple="riscv64-unknown-linux-gnu",
    zig="riscv64-linux-gnu",
    cpu="generic-rv64",
    features="+m+a+f+d+c",
    hint="; +v for vectors",
    asked=("v",),
    vectors=(("v", 16, 32),),
    without=(0, 32),
    fused="f",
    abi="lp64d",
)

FAMILIES = (AARCH64, ARMV7, RISCV64)
"""The families that are targets of their own; `cpu` is the one that softq runs on."""


def host(name: str, cpu: str, features: str) -> Cpu:
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
    architecture = platform.machine().lower()
    if architecture in ("x86_64", "amd64"):
        return X86_64.machine(name, cpu, features)
    if architecture in ("aarch64", "arm64"):
        return AARCH64.machine(name, cpu, features)
    raise UsageError(f"target {name}: there is no driver for {architecture}; build for one of the edge targets")


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
