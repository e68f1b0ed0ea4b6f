"""The two languages that kernels are written in; what differs between them stands in a prelude of each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Dialect:
    """A language.

    Attributes:
        name: What people call it.
        suffix: How the names of its files end.
        shuffles: Whether the threads of a warp see each other's registers.
    """

    name: str
    suffix: str
    shuffles: bool

    def prelude(self) -> str:
        """Return what stands before the kernels of a file."""
        return (files("softq.codegen.gpu.dialect") / f"prelude.{self.suffix}").read_text(encoding="utf-8")


CUDA = Dialect("CUDA C++", "cu", True)
OPENCL = Dialect("OpenCL C", "cl", False)
