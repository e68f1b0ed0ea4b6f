"""What a device is and can do: the data that the compiler, code generation, drivers and manifests need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A device that kernels are for.

    Attributes:
        name: The target's name.
        triple: LLVM's triple.
        cpu: LLVM's name of the processor, or the architecture of a GPU.
        vector_bytes: Width of the vectors that kernels use, in bytes; 0 where there are none.
        fused: Whether a multiply-add of float32 that is rounded once is an instruction.
        single_items: Whether a work item of an elementwise nest is one element: where each has a thread of its own.
    """

    name: str
    triple: str
    cpu: str
    vector_bytes: int = 0
    fused: bool = False
    single_items: bool = False

    def lanes(self, bits: int) -> int:
        """Return how many elements of so many bits a vector holds."""
        return self.vector_bytes * 8 // bits


@dataclass(frozen=True, kw_only=True)
class Cpu(Machine):
    """A processor and its system.

    Attributes:
        features: LLVM's names of the features used beyond those of `cpu`.
        zig: Triple of the C compiler that comes with zig.
        vectors: Number of vector registers.
        requires: Features that the driver looks for before it runs anything, as the system names them.
        float_abi: `hard` or `soft` where the architecture has both, else empty.
        abi: Name of the calling convention where LLVM needs one, else empty.
        in_c: Whether kernels are C: with constant arrays of their own, which LLVM's objects have not.
        in_flash: Whether there is no system: kernels are for shapes that are known, with positions of 32 bits, and
            their code is to be short.
        extremes: Whether the lesser and the greater of two numbers of float32 is an instruction, which compilers of
            C know as fminf and fmaxf.
        compiler_flags: What a compiler of C is told of the processor, as gcc and clang have it.
    """

    features: tuple[str, ...]
    zig: str
    vectors: int
    requires: tuple[str, ...] = ()
    float_abi: str = ""
    abi: str = ""
    in_c: bool = False
    in_flash: bool = False
    extremes: bool = False
    compiler_flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gpu(Machine):
    """A GPU: a thread for each work item, no vectors.

    Attributes:
        shared_bytes: The most shared memory that a block may ask for.
    """

    shared_bytes: int
    single_items: bool = True
