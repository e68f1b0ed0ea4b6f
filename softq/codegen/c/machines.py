"""Processors without a system: what a compiler of C is told of them, and what kernels may count on.

To add one, add an entry to `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from softq.artifact.machine import Cpu
from softq.errors import UsageError

KERNELS = ("c", "object")
"""Forms of kernels: text, or an object file of LLVM's."""


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """Vectors, and the processor as LLVM knows it.

    Attributes:
        triple: LLVM's triple; of four parts, or LLVM takes the wrong conventions for calls.
        cpu: LLVM's name of the processor.
        bytes: Width of a vector.
        registers: How many there are.
    """

    triple: str
    cpu: str
    bytes: int
    registers: int


_EXTREMES = ("-mfpu=fpv5", "-mfpu=auto")
"""Units for floats with VMINNM and VMAXNM; those of `auto` here are newer ones."""


_INSTRUCTIONS = ("-fno-math-errno",)
"""Without it clang calls the C library for fmaf and sqrtf, which might set errno, and gcc for some roots."""


@dataclass(frozen=True, kw_only=True)
class Core:
    """One kind of processor.

    Attributes:
        flags: What gcc and clang are told, but for floats.
        zig: The triple of zig's compiler, and its name of the processor.
        floats: What they are told of the units for floats that it may have, by the name of the unit.
        vectors: What LLVM is told where there are vectors, which C has not; they need the unit for floats.
    """

    flags: tuple[str, ...]
    zig: tuple[str, str]
    floats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: Vectors | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """Processors that are one target.

    Attributes:
        name: The target's name.
        summary: One line.
        default: The processor if the user names none.
        cores: The processors by the name that users give.
    """

    name: str
    summary: str
    default: str
    cores: Mapping[str, Core]

    def machine(self, cpu: str, fpu: str, kernels: str = "") -> Cpu:
        """Return a processor.

        Args:
            cpu: Its name.
            fpu: Its unit for floats; empty for the one that it usually has, `none` for none.
            kernels: One of `KERNELS`; empty for `object` where there are vectors, else `c`.

        Raises:
            UsageError: there is no such processor, or it has no such unit or form of kernels.
        """
        core = self.cores.get(cpu)
        if core is None:
            raise UsageError(f"target {self.name}: cpu is {cpu!r}; allowed: {', '.join(self.cores)}")
        units = {"none": self._soft(core), **core.floats}
        chosen = fpu or next(reversed(units))
        if chosen not in units:
            raise UsageError(f"target {self.name}: fpu of {cpu} is {fpu!r}; allowed: {', '.join(units)}")
        triple, known = core.zig
        has_floats = chosen != "none"
        machine = Cpu(
            name=self.name,
            triple=triple,
            cpu=known,
            features=(),
            zig=f"{triple}{'hf' if has_floats and triple.startswith('thumb') else ''}",
            vectors=0,
            float_abi="hard" if has_floats else "soft",
            fused=has_floats,
            in_c=True,
            in_flash=True,
            extremes=has_floats and any(flag.startswith(_EXTREMES) for flag in units[chosen]),
            compiler_flags=(*core.flags, *units[chosen], *_INSTRUCTIONS * has_floats),
        )
        vectors = core.vectors if has_floats else None
        form = kernels or KERNELS[vectors is not None]
        if form not in KERNELS[: 2 if vectors else 1]:
            raise UsageError(
                f"target {self.name}: kernels of {cpu} is {kernels!r}; allowed: "
                f"{', '.join(KERNELS[: 2 if vectors else 1])}"
            )
        if vectors is None or form == "c":
            return machine
        return replace(
            machine,
            triple=vectors.triple,
            cpu=vectors.cpu,
            vector_bytes=vectors.bytes,
            vectors=vectors.registers,
            in_c=False,
        )

    def _soft(self, core: Core) -> tuple[str, ...]:
        return ("-mfloat-abi=soft",) if core.zig[0].startswith("thumb") else ()


def _cortex(name: str, **floats: tuple[str, ...]) -> Core:
    return Core(
        flags=(f"-mcpu=cortex-{name}", "-mthumb"),
        zig=("thumb-freestanding-eabi", f"cortex_{name}"),
        floats={unit: ("-mfloat-abi=hard", *flags) for unit, flags in floats.items()},
    )


def _mve(name: str) -> Vectors:
    return Vectors(triple="thumbv8.1m.main-unknown-none-eabihf", cpu=f"cortex-{name}", bytes=16, registers=8)


def _riscv(march: str, mabi: str, **floats: tuple[str, ...]) -> Core:
    return Core(
        flags=(f"-march={march}", f"-mabi={mabi}"),
        zig=("riscv32-freestanding", f"generic_rv32+{'+'.join(march.removeprefix('rv32i'))}"),
        floats=floats,
    )


CORTEX_M = Family(
    name="cortex-m",
    summary="Arm Cortex-M without a system: C that drops into a project, no heap, one block of memory.",
    default="m4",
    cores={
        "m0": _cortex("m0"),
        "m0plus": _cortex("m0plus"),
        "m3": _cortex("m3"),
        "m4": _cortex("m4", single=("-mfpu=fpv4-sp-d16",)),
        "m7": _cortex("m7", single=("-mfpu=fpv5-sp-d16",), double=("-mfpu=fpv5-d16",)),
        "m33": _cortex("m33", single=("-mfpu=fpv5-sp-d16",)),
        "m55": replace(_cortex("m55", double=("-mfpu=auto",)), vectors=_mve("m55")),
        "m85": replace(_cortex("m85", double=("-mfpu=auto",)), vectors=_mve("m85")),
    },
)

RISCV32 = Family(
    name="riscv32",
    summary="32-bit RISC-V without a system: C that drops into a project, no heap, one block of memory.",
    default="imc",
    cores={
        "imc": _riscv("rv32imc", "ilp32"),
        "imac": _riscv("rv32imac", "ilp32"),
        "imafc": _riscv("rv32imac", "ilp32", single=("-march=rv32imafc", "-mabi=ilp32f")),
    },
)

FAMILIES = (CORTEX_M, RISCV32)
"""The families that are targets of their own."""


def portable(name: str) -> Cpu:
    """Return a processor of which nothing is known but that it has integers of 32 bits.

    Args:
        name: The target's name.
    """
    return Cpu(name=name, triple="unknown", cpu="generic", features=(), zig="", vectors=0, in_c=True, in_flash=True)
