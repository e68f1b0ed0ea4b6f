"""Row kernels in C on a board: instructions per element, and bytes of code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.mcu.boards import Board, code_bytes, run
from softq.artifact.firmware.numbers import ctype, literal
from softq.codegen.c import object_kernels
from softq.codegen.c.function import Function, constants_of
from softq.codegen.c.lowering import lower
from softq.codegen.c.prelude import prelude
from softq.codegen.c.specialization import specialize
from softq.codegen.common.patterns import INTEGERS, output_type, with_integers
from softq.codegen.cpu.rows import row_kernel
from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program
from softq.rowprog import run as interpret
from softq.rowprog.tabulate import tabulate_or_keep

LENGTH, ROWS, TURNS = 197, 8, 4
SCALE = 0.0625


@dataclass(frozen=True)
class Work:
    """A row kernel.

    Attributes:
        name: What tables call it.
        method: The method.
        settings: Its options.
        scores: The type of its scores.
        outputs: What it writes; None for what the interface has.
        nibbles: Outputs of which two elements share a byte.
        stored: What the weights are written as, if that is no float.
    """

    name: str
    method: str
    settings: Mapping[str, object] = field(default_factory=dict)
    scores: DType = DType.I8
    outputs: tuple[str, ...] | None = None
    nibbles: tuple[str, ...] = ()
    stored: DType | None = None

    def program(self) -> Program:
        """Return its program, with tables for 8-bit scores."""
        method = METHODS.get(self.method)
        try:
            program = method.program(method.resolve(method.configure(self.settings), False), scores=self.scores)
        except UsageError:
            scaled = {**self.settings, "step": SCALE}
            program = method.program(method.resolve(method.configure(scaled), False), scores=self.scores)
        program = tabulate_or_keep(program)[0] if self.scores is not DType.F32 else program
        return program if self.stored is None else with_integers(program, self.stored)


WORKS = (
    Work("deferred-log, int8 to codes", "deferred-log", {"bits": 4, "r": 1.0, "step": 0.1}, DType.I8,
         ("codes", "normalizer")),
    Work("deferred-log, int8 to codes of 4 bits", "deferred-log", {"bits": 4, "r": 1.0, "step": 0.1}, DType.I8,
         ("codes", "normalizer"), ("codes",)),
    Work("ita", "ita"),
    Work("index-softmax", "index-softmax"),
    Work("tflite-int8 to int8", "tflite-int8", {"output": "int8"}, DType.I8, (INTEGERS,), (), DType.U8),
    Work("exact", "exact", {}, DType.F32),
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a kernel takes on a board.

    Attributes:
        instructions: Per element.
        code: Bytes of code.
        tables: Bytes of tables.
    """

    instructions: float
    code: int
    tables: int


def measure(work: Work, board: Board, folder: Path) -> Cost:
    """Return what a kernel takes, after its results were compared with the interpreter's.

    Raises:
        AssertionError: they differ.
    """
    cost, found, wanted = execute(work, board, folder, rows_of(work.scores))
    for got, expected in zip(found, wanted, strict=True):
        if expected.dtype.kind == "f" and work.scores is DType.F32:
            np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-12, err_msg=f"{work.name} on {board.machine}")
        else:
            np.testing.assert_array_equal(got, expected, f"{work.name} on {board.machine}")
    return cost


def execute(
    work: Work, board: Board, folder: Path, scores: NDArray[Any]
) -> tuple[Cost, list[NDArray[Any]], list[NDArray[Any]]]:
    """Return what a kernel takes for rows of scores, its outputs, and those of the interpreter."""
    program = work.program()
    names = tuple(program.outputs) if work.outputs is None else work.outputs
    kernel = row_kernel(
        program, board.cpu, symbol="kernel", max_length=1024, outputs=names, nibbles=work.nibbles, small=True
    )
    pointers = 1 + len(kernel.outputs) + bool(kernel.scratch_bytes)
    calls = {"kernel": [[*[None] * pointers, scores.shape[1], 1, 1, 0, None]]}
    if board.cpu.in_c:
        found = specialize([kernel.function], calls, partial(lower, fused=board.cpu.fused))
        function = found.functions["kernel"]
        text = Function(function, "row_kernel", constants_of(function))
        source, head = folder / "kernel.c", text.head()
        source.write_text(f"{prelude(text.used, board.cpu.extremes)}\nvoid {head};\nvoid {head}\n{text.body()}")
    else:
        found = specialize([kernel.function], calls, partial(object_kernels.lower, machine=board.cpu))
        source, head = folder / "kernel.o", object_kernels.head(found.functions["kernel"], "row_kernel")
        source.write_bytes(object_kernels.kernel_object(found.functions, {*calls}, board.cpu, "row"))
    ours = interpret(program, scores)
    wanted = [np.ascontiguousarray(_packed(ours[name]) if name in work.nibbles else
              ours[name].astype(output_type(program, name).numpy)) for name in kernel.outputs]  # fmt: skip
    memory = ["scores", *(f"out{i}" for i in range(len(wanted))), *["scratch"] * bool(kernel.scratch_bytes)]
    given = [*(f"(void *){name}" for name in memory), "", "1", "1", "0", "rows"]
    call = f"row_kernel({', '.join(given[at] for at in found.kept['kernel'])});"
    (folder / "main.c").write_text(_main(head, scores, wanted, kernel.scratch_bytes, call))
    lines = [int(line, 16) for line in run(board, folder, [folder / "main.c", source])]
    instructions = lines[0] * board.tick / (TURNS * scores.size)
    return Cost(instructions, *code_bytes(board, source, folder)), _typed(lines[1:], wanted), wanted


def rows_of(kind: DType) -> NDArray[Any]:
    """Return rows of scores."""
    rng = np.random.default_rng(0)
    if kind.is_float:
        return (rng.normal(size=(ROWS, LENGTH)) * 3).astype(np.float32)
    return rng.integers(kind.low, kind.high + 1, (ROWS, LENGTH)).astype(kind.numpy)


def _packed(codes: NDArray[Any]) -> NDArray[np.uint8]:
    whole = np.concatenate([codes, np.zeros((len(codes), codes.shape[-1] % 2), codes.dtype)], axis=-1).astype(np.uint8)
    return np.bitwise_or(whole[:, ::2], np.left_shift(whole[:, 1::2], 4)).astype(np.uint8)


def _main(head: str, scores: NDArray[Any], wanted: Sequence[NDArray[Any]], scratch: int, call: str) -> str:
    """Return the program: it counts, and prints the bytes of each output."""
    kind = str(scores.dtype)
    values = ", ".join(literal(value, kind) for value in scores.ravel().tolist())
    outputs = "\n".join(f"static {ctype(str(x.dtype))} out{i}[{x.size}];" for i, x in enumerate(wanted))
    told = "\n".join(f"    print_bytes(out{i}, sizeof out{i});" for i in range(len(wanted)))
    memory = f"static uint64_t scratch[{-(-scratch * scores.size // 8)}];\n" if scratch else ""
    return f"""#include "board.h"
#include <stdbool.h>
{prelude(())}
void {head};
static const {ctype(kind)} scores[{scores.size}] = {{{values}}};
{outputs}
{memory}
volatile int32_t rows = {scores.shape[0]};

int main(void)
{{
    const uint32_t before = count_now();
    for (int turn = 0; turn < {TURNS}; ++turn) {{
        {call}
    }}
    print_number(count_from(before));
{told}
    return 0;
}}
"""


def _typed(words: Sequence[int], wanted: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return what a program told, with the types and shapes of what is wanted."""
    whole, at, found = np.array(words, np.uint32), 0, list[NDArray[Any]]()
    for expected in wanted:
        count = -(-expected.nbytes // 4)
        bytes_ = whole[at : at + count].tobytes()[: expected.nbytes]
        found.append(np.frombuffer(bytes_, expected.dtype).reshape(expected.shape))
        at += count
    return found
