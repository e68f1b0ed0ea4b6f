"""What code generation, linking and kernels need to know of a processor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A processor and its system.

    Attributes:
        name: The target's name.
        triple: LLVM's triple.
        cpu: LLVM's name of the processor.
        features: LLVM's names of the features used beyond those of `cpu`.
        zig: Triple of the C compiler that comes with zig.
        vector_bytes: Width of the vectors that kernels use, in bytes.
        vectors: Number of vector registers.
        requires: Features that the driver looks for before it runs anything, as the system names them.
        float_abi: `hard` or `soft` where the architecture has both, else empty.
        abi: Name of the calling convention where LLVM needs one, else empty.
        fused: Whether a multiply-add of float32 that is rounded once is an instruction.
        single_items: Whether a work item of an elementwise nest is one element: where each has a thread of its own.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    zig: str
    vector_bytes: int
    vectors: int
    requires: tuple[str, ...] = ()
    float_abi: str = ""
    abi: str = ""
    fused: bool = False
    single_items: bool = False

    def lanes(self, bits: int) -> int:
        """Return how many elements of so many bits a vector holds."""
        return self.vector_bytes * 8 // bits
