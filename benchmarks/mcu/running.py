"""Whole models in C on a board: what they compute, instructions, flash and stack."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.mcu.boards import Board, compile_object, run, sections
from softq.artifact.firmware.numbers import ctype, literal

Array = NDArray[Any]
Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Run:
    """What a model does on a board.

    Attributes:
        outputs: For each feed the outputs by name.
        instructions: Of each run.
        stack: Bytes, at most; that of the program around the model is among them.
        code: Bytes of the model's instructions, without those of the compiler's and the C library's functions.
        tables: Bytes of its constants that are no weights.
        weights: Bytes of its weights.
        arena: Bytes of its memory.
    """

    outputs: Sequence[Feeds]
    instructions: Sequence[float]
    stack: int
    code: int
    tables: int
    weights: int
    arena: int

    @property
    def flash(self) -> int:
        """Bytes of code, tables and weights."""
        return self.code + self.tables + self.weights


def run_model(board: Board, built: Path, folder: Path, feeds: Sequence[Feeds], *, opt: str = "-O2") -> Run:
    """Return what a model does on a board.

    Args:
        board: Where it runs.
        built: What `softq build` wrote for the board's processor.
        folder: For what is made.
        feeds: Inputs by name, one for each run.
        opt: How the compiler optimizes.

    Raises:
        subprocess.CalledProcessError: it does not compile.
        AssertionError: a run ends with an error.
    """
    facts = json.loads((built / "manifest.json").read_text(encoding="utf-8"))
    objects = model_objects(board, built, folder, opt)
    (folder / "main.c").write_text(_main(facts, feeds))
    words = [int(line, 16) for line in run(board, folder, [folder / "main.c", *objects], [built], opt)]
    stack, at = words.pop(), 0
    outputs: list[Feeds] = []
    counts: list[float] = []
    for _ in feeds:
        counts.append(words[at] * board.tick)
        at += 1
        found: dict[str, Array] = {}
        for output in facts["outputs"]:
            empty = np.empty(output["shape"], output["dtype"])
            count = -(-empty.nbytes // 4)
            whole = np.array(words[at : at + count], np.uint32).tobytes()
            found[output["name"]] = np.frombuffer(whole[: empty.nbytes], empty.dtype).reshape(empty.shape)
            at += count
        outputs.append(found)
    assert at == len(words), (at, len(words))
    sizes = [item for made in objects for item in sections(board, made).items()]
    weights = sum(size for name, size in sizes if "_weight_" in name)
    code = sum(size for name, size in sizes if name.startswith(".text"))
    tables = sum(size for _, size in sizes) - code - weights
    return Run(outputs, counts, stack, code, tables, weights, facts["memory"]["arena"])


def model_objects(board: Board, built: Path, folder: Path, opt: str = "-O2") -> list[Path]:
    """Return the objects of a model in C for a board."""
    sources = sorted(built.glob("*.c"))
    made = [compile_object(board, source, folder / f"{source.stem}.o", opt=opt) for source in sources]
    return [*made, *sorted(built.glob("*.o"))]


def _main(facts: Mapping[str, Any], feeds: Sequence[Feeds]) -> str:
    """Return a program that prints of each run its ticks and its outputs, and at the end the stack."""
    name = facts["name"]
    lines = [f'#include "{name}.h"', '#include "board.h"', "#include <stdbool.h>", ""]
    given: list[str] = []
    for spec in facts["inputs"]:
        arrays = [np.ascontiguousarray(feed[spec["name"]], spec["dtype"]) for feed in feeds]
        rows = [", ".join(literal(value, spec["dtype"]) for value in array.ravel().tolist()) for array in arrays]
        given.append(f"in_{len(given)}")
        head = f"static const {ctype(spec['dtype'])} {given[-1]}[{len(feeds)}][{arrays[0].size}]"
        lines.append(f"{head} = {{{', '.join(f'{{{row}}}' for row in rows)}}};")
    taken = [f"out_{i}" for i in range(len(facts["outputs"]))]
    for spec, out in zip(facts["outputs"], taken, strict=True):
        lines.append(f"static {ctype(spec['dtype'])} {out}[{int(np.prod(spec['shape'], dtype=int))}];")
    call = f"{name}_run({', '.join([*(f'{array}[i]' for array in given), *taken])})"
    lines += ["", "int main(void)", "{", f"    for (uint32_t i = 0; i < {len(feeds)}; ++i) {{"]
    lines += ["        const uint32_t before = count_now();", f"        const int code = {call};"]
    lines += ["        const uint32_t ticks = count_from(before);", "        if (code != 0) {"]
    lines += ["            return code;", "        }", "        print_number(ticks);"]
    lines += [f"        print_bytes({out}, sizeof {out});" for out in taken]
    return "\n".join([*lines, "    }", "    print_number(stack_used());", "    return 0;", "}", ""])
