"""The C of a model, compiled with sanitizers and run: they end the program if they find something."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from numpy.typing import NDArray

import softq
from softq.artifact.program import Program, evaluate
from tests.native import GUARD, guarded_attentions

Array = NDArray[Any]
STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
UNDEFINED = ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

CTYPES = {**{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
          "float32": "float", "float64": "double", "bool": "bool"}  # fmt: skip

Gaps = list[tuple[int, int]]
"""Where bytes of the arena that no kernel may touch begin and end."""


def run(
    model: onnx.ModelProto,
    given: Mapping[str, Array],
    outputs: Mapping[str, Array],
    folder: Path,
    flags: Sequence[str] = UNDEFINED,
) -> dict[str, Array]:
    """Return what the C of a model gives.

    Args:
        model: The model.
        given: Its inputs.
        outputs: Arrays of the types and shapes of its outputs.
        folder: Where to build.
        flags: The sanitizers; with `ADDRESS` no two tensors share memory, and nothing may touch what is between them.
    """
    if flags is ADDRESS:
        with _apart() as gaps:
            softq.build(model, folder / "built", target="c,name=m")
    else:
        gaps: Gaps = []
        softq.build(model, folder / "built", target="c,name=m")
    (folder / "main.c").write_text("\n".join([*_main(given, outputs, gaps), ""]))
    (folder / "in").write_bytes(b"".join(np.ascontiguousarray(array).tobytes() for array in given.values()))
    sources = sorted(map(str, (folder / "built").glob("*.c")))
    command = ["gcc", *STRICT, *flags, f"-I{folder / 'built'}", "main.c", *sources, "-lm", "-o", "main"]
    subprocess.run(command, check=True, cwd=folder)
    done = subprocess.run([str(folder / "main")], capture_output=True, text=True, check=False, cwd=folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    data, at = (folder / "out").read_bytes(), 0
    found: dict[str, Array] = {}
    for name, array in outputs.items():
        found[name] = np.frombuffer(data[at : at + array.nbytes], array.dtype).reshape(array.shape)
        at += array.nbytes
    return found


def _main(given: Mapping[str, Array], outputs: Mapping[str, Array], gaps: Gaps) -> Iterator[str]:
    yield '#include "m.h"\n#include <stdbool.h>\n#include <stdio.h>'
    yield from ["#include <sanitizer/asan_interface.h>"] * bool(gaps)
    for name, array in {**given, **outputs}.items():
        yield f"static {CTYPES[array.dtype.name]} {name}[{max(array.size, 1)}];"
    yield "static unsigned char memory[M_ARENA_BYTES] __attribute__((aligned(64)));"
    yield 'int main(void)\n{\n    FILE *f = fopen("in", "rb");\n    size_t n = 0;'
    yield from (f"    n += fread({name}, sizeof {name}[0], {array.size}, f);" for name, array in given.items())
    yield from (f"    __asan_poison_memory_region(memory + {start}, {end - start});" for start, end in gaps)
    arguments = ", ".join((*given, *outputs, "memory", "sizeof memory"))
    yield f"    fclose(f);\n    if (n == 0 || m_run_in({arguments}) != 0) {{\n        return 1;\n    }}"
    yield '    f = fopen("out", "wb");'
    yield from (f"    fwrite({name}, sizeof {name}[0], {array.size}, f);" for name, array in outputs.items())
    yield "    return fclose(f);\n}"


@contextmanager
def _apart() -> Generator[Gaps]:
    """Let a model that is built inside have its tensors apart in memory; the gaps are known afterwards."""
    from softq.codegen.c import backend, memory
    from softq.compiler.steps.offset_plan import OffsetPlan, Span

    gaps: Gaps = []
    plan_memory = backend.plan_memory

    def place(spans: Sequence[Span]) -> OffsetPlan:
        offsets, end = list[int](), GUARD
        for span in spans:
            offsets.append(end)
            end += -(-span.bytes // GUARD) * GUARD + GUARD
        return OffsetPlan(tuple(offsets), end, (end,))

    with mock.patch.object(memory, "plan_offsets", place), guarded_attentions() as parts:

        def plan(program: Program, replaced: Mapping[str, Mapping[int, frozenset[int]]]) -> memory.Memory:
            made = plan_memory(program, replaced)
            used = [(at, at + evaluate(size, {})) for at, size in zip(made.offsets, program.slots, strict=True)]
            for position, at in made.scratch.items():
                step = program.steps[position]
                (shape,) = (program.tensors[i].shape for i in step.tensors if program.tensors[i].place == "scratch")
                used += [(at + a, at + b) for a, b in parts(step, {}) or [(0, evaluate(shape[0], {}))]]
            end = 0
            for start, behind in [*sorted(used), (made.bytes, made.bytes)]:
                gaps.extend([(end, start)] * (start > end))
                end = max(end, behind)
            return made

        with mock.patch.object(backend, "plan_memory", plan):
            yield gaps
