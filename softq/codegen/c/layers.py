"""What each step of a model takes, for people who want to know where its time and its memory go."""

from __future__ import annotations

import math
from collections.abc import Sequence

from softq.artifact.firmware.program import KernelText, Layer
from softq.artifact.program import Program, evaluate
from softq.codegen.c.memory import Memory


def describe_layers(program: Program, kernels: Sequence[KernelText], memory: Memory) -> list[Layer]:
    """Return what each step takes.

    Args:
        program: The steps, all of whose sizes are known.
        kernels: What they call.
        memory: Where tensors lie.
    """
    writes = {kernel.symbol: kernel.writes for kernel in kernels}
    layers: list[Layer] = []
    for step, alive in zip(program.steps, memory.alive, strict=True):
        tensors = [program.tensors[at] for at in step.tensors]
        written = [t for at, t in enumerate(tensors) if at in writes[step.kernel] and t.place in ("arena", "output")]
        made = [tuple(evaluate(size, {}) for size in tensor.shape) for tensor in written]
        read = {tensor.at for tensor in tensors if tensor.place == "weight"}
        layers.append(
            Layer(
                step.kernel,
                step.site,
                max(made, key=math.prod, default=()),
                evaluate(step.multiply_adds, {}),
                sum(program.weights[at].nbytes for at in read),
                alive,
            )
        )
    return layers
