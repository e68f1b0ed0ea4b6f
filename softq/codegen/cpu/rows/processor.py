"""What the emitter of rows asks of a processor beyond the width of its vectors."""

from __future__ import annotations

from dataclasses import dataclass

from softq.artifact.machine import Cpu


@dataclass(frozen=True)
class Processor:
    """A machine as the emitter sees it.

    Attributes:
        machine: The machine.
        small: Whether code is to be short rather than fast.
    """

    machine: Cpu
    small: bool = False

    @property
    def is_x86(self) -> bool:
        """Whether x86's intrinsics exist."""
        return self.machine.triple.startswith(("x86_64", "i386", "i686"))

    def has(self, feature: str) -> bool:
        """Say whether the machine is known to have a feature, as LLVM names it."""
        return feature in self.machine.requires or feature in self.machine.features

    @property
    def has_mve(self) -> bool:
        """Whether vectors are those of Cortex-M."""
        return self.machine.triple.startswith("thumbv8.1m") and self.machine.vector_bytes == 16

    @property
    def packs(self) -> bool:
        """Whether vectors of bytes stand beside wider ones, packed and summed by instructions of their own."""
        if self.is_x86:
            return self.machine.vector_bytes in (16, 32) or (self.machine.vector_bytes == 64 and self.has("avx512bw"))
        return self.machine.triple.startswith("aarch64") and self.machine.vector_bytes == 16

    @property
    def masks(self) -> bool:
        """Whether a vector is loaded and stored under a mask as fast as without one."""
        return self.is_x86 and self.machine.vector_bytes == 64 and self.has("avx512bw")

    @property
    def predicates(self) -> bool:
        """Whether all blocks of a loop are read and written under masks, which say how many elements are left."""
        return self.has_mve

    @property
    def has_wide_permutes(self) -> bool:
        """Whether bytes are permuted across a vector of 64, and across two."""
        return self.machine.vector_bytes == 64 and self.has("avx512vbmi")

    @property
    def has_dots(self) -> bool:
        """Whether bytes are multiplied and added up four at a time into 32 bits."""
        return self.machine.vector_bytes == 64 and self.has("avx512vnni")

    @property
    def has_least_word(self) -> bool:
        """Whether the least of eight words is one instruction."""
        return self.is_x86 and (self.machine.vector_bytes > 16 or self.has("sse4.1"))

    @property
    def tests_vectors(self) -> bool:
        """Whether one instruction says if all bits of a vector of 16 bytes are zero."""
        return self.has_least_word

    @property
    def shuffle(self) -> str:
        """LLVM's permute of bytes within 16, on Arm of so many registers; empty if there is none."""
        if not self.packs or (self.is_x86 and self.machine.vector_bytes == 16 and not self.has("ssse3")):
            return ""
        if not self.is_x86:
            return "llvm.aarch64.neon.tbl{}"
        family = {16: "ssse3.pshuf.b.128", 32: "avx2.pshuf.b", 64: "avx512.pshuf.b.512"}
        return f"llvm.x86.{family[self.machine.vector_bytes]}"

    @property
    def byte_entries(self) -> int:
        """Entries of the largest table that is looked up by permutes of bytes."""
        return 256 if self.shuffle else 0

    @property
    def cost_of_look_up(self) -> int:
        """What looking a byte up in the largest table costs, in operations on 32 bits of an element.

        Three instructions for each 16 entries where permutes stay within 16 bytes, which are 48 for 32 elements; across
        the vector, or from four registers at once, a few.
        """
        return 12 if self.is_x86 and not self.has_wide_permutes else 4

    @property
    def is_32_bit(self) -> bool:
        """Whether 64-bit division and conversions would be library calls."""
        return self.machine.in_flash or self.machine.triple.startswith(
            ("arm", "thumb", "riscv32", "i386", "i686", "wasm32")
        )

    @property
    def avoids_float_vectors(self) -> bool:
        """Whether floats are scalars because vectors lose subnormal numbers: NEON of 32-bit ARM does.

        MVE does, too, where it is that or several times the instructions.
        """
        return self.machine.triple.startswith("arm")

    @property
    def has_bytes_of_words(self) -> bool:
        """Whether a processor like this may compute on the four bytes of a word at once."""
        return self.machine.in_c and self.machine.triple.startswith(("thumb", "unknown"))

    @property
    def has_extremes(self) -> bool:
        """Whether the lesser and the greater of two numbers of f32 is one instruction, which C has a name for."""
        return self.machine.in_c and self.machine.extremes

    @property
    def calls_for_floats(self) -> bool:
        """Whether kernels are C for a processor without a unit for floats, where each operation on them is a call."""
        return self.machine.in_c and self.machine.float_abi == "soft"

    @property
    def compares_bits(self) -> bool:
        """Whether the bits of floats are compared in less than the floats."""
        return self.calls_for_floats or self.has_mve

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
        if self.small or self.machine.in_flash:
            return 1
        return 4 if self.machine.vectors >= 32 else 2

    def lanes(self, bits: int, floats: bool) -> int:
        """Return how many elements of this width are computed at once; 1 for plain scalar code."""
        lanes = self.machine.vector_bytes * 8 // bits
        if self.has_mve and bits > 32:
            return 1  # MVE's vectors have no operations on numbers of 64 bits.
        return 1 if lanes < 2 or (floats and self.avoids_float_vectors) else lanes
