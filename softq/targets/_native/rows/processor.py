"""What the emitter of rows asks of a processor beyond the width of its vectors."""

from __future__ import annotations

from dataclasses import dataclass

from softq.targets._native.machine import Machine


@dataclass(frozen=True)
class Processor:
    """A machine as the emitter sees it."""

    machine: Machine

    @property
    def is_x86(self) -> bool:
        """Whether x86's intrinsics exist."""
        return self.machine.triple.startswith(("x86_64", "i386", "i686"))

    @property
    def is_32_bit(self) -> bool:
        """Whether 64-bit division and conversions would be library calls."""
        return self.machine.triple.startswith(("arm", "thumb", "riscv32", "i386", "i686", "wasm32"))

    @property
    def flushes_vectors(self) -> bool:
        """Whether float vectors lose subnormal numbers: NEON of 32-bit ARM does, its scalar unit does not."""
        return self.machine.triple.startswith(("arm", "thumb"))

    @property
    def rounds(self) -> bool:
        """Whether rounding to integers half to even is one instruction; else LLVM may call the C library."""
        return self.machine.triple.startswith("aarch64") or (self.is_x86 and self.machine.vector_bytes >= 32)

    @property
    def index(self) -> str:
        """The type of positions in memory."""
        return "int32" if self.is_32_bit else "int64"

    @property
    def unroll(self) -> int:
        """How many vectors a step of a loop takes, each with accumulators of its own."""
        return 4 if self.machine.vectors >= 32 else 2

    def lanes(self, bits: int, floats: bool) -> int:
        """Return how many elements of this width are computed at once; 1 for plain scalar code."""
        lanes = self.machine.vector_bytes * 8 // bits
        return 1 if lanes < 2 or (floats and self.flushes_vectors) else lanes
