"""The C driver of a program for a processor: it calls one kernel after another; `softq.h` says how it is used."""

from __future__ import annotations

import re
from collections.abc import Iterable

from softq.artifact import features
from softq.artifact.ctext import NO_SIZE, ModelText, array, block, comment, part
from softq.artifact.machine import Cpu
from softq.artifact.program import Program, Step, Tensor
from softq.artifact.sizes import number
from softq.errors import SoftqError

_SYMBOL = re.compile(r"(?!sq_)[A-Za-z_]\w*", re.ASCII)


def driver_source(program: Program, machine: Cpu, *, weights_bytes: int, seal: bytes) -> str:
    """Return the text of `driver.c`.

    Args:
        program: The model.
        machine: What its kernels were made for.
        weights_bytes: Size of the weights file.
        seal: Its last `SEAL_BYTES` bytes.

    Raises:
        SoftqError: the program contradicts itself, or has no form in the driver.
    """
    model = ModelText(program)
    scratch = f"static const struct sq_ref sq_scratch = {model.table.reference(program.scratch)};\n"
    return model.source(
        machine,
        weights_bytes=weights_bytes,
        seal=seal,
        address="unsigned char *",
        counts={},
        types="host/step.c",
        declarations=[scratch, *kernel_declarations([program]), *_steps(model)],
        device=[
            "/* ---- The processor: generated ---- */\n",
            features.source(machine),
            *map(part, ("host/pool.c", "host/model.c")),
        ],
        execution="host/engine.c",
    )


def kernel_declarations(programs: Iterable[Program]) -> Iterable[str]:
    """Yield the declarations of all kernels of programs, each once.

    Raises:
        SoftqError: a symbol is no name in C, or two calls of a kernel differ in their arguments.
    """
    known: dict[str, tuple[int, int]] = {}
    for step in (step for program in programs for step in program.steps):
        if not _SYMBOL.fullmatch(step.kernel):
            raise SoftqError(f"the kernel's symbol {step.kernel!r} is no name in C, or is one of the driver's own")
        form = (len(step.tensors), len(step.scalars))
        if known.setdefault(step.kernel, form) != form:
            raise SoftqError(f"kernel {step.kernel!r} is called with different numbers of arguments")
    for symbol, (tensors, scalars) in known.items():
        types = ", ".join(["void *"] * tensors + ["int64_t"] * (scalars + 2))
        yield f"SQ_HIDDEN void {symbol}({types});"
    yield ""


def _steps(model: ModelText) -> Iterable[str]:
    entries: list[str] = []
    for position, step in enumerate(model.program.steps):
        yield from step_function(f"sq_step_{position}", model, step)
        items, cost = model.table.reference(step.items), model.table.reference(step.cost)
        entries.append(f"{{sq_step_{position}, {items}, {cost}, {model.flag(step)}, {model.then(step)}}}")
    last = f"{{NULL, {NO_SIZE}, {NO_SIZE}, -1, NULL, SQ_NEXT, -1, 0, 0}}"
    yield array("static const struct sq_step sq_steps[SQ_STEPS + 1]", [*entries, last])


def step_function(name: str, model: ModelText, step: Step) -> Iterable[str]:
    """Yield the lines of the function that calls a step's kernel for some of its work items."""
    tensors = [_pointer(model.program.tensors[number]) for number in step.tensors]
    arguments = [*tensors, *map(model.table.value, step.scalars), "begin", "end"]
    if step.site is not None:
        yield f"/* The softmax {comment(step.site)}. */"
    yield f"static void {name}(const struct sq_state *s, unsigned char *scratch, int64_t begin,"
    yield "                    int64_t end)"
    unused = [] if any("s->" in argument for argument in arguments) else ["(void)s;"]
    unused += [] if "scratch" in arguments else ["(void)scratch;"]
    yield block([*unused, f"{step.kernel}({', '.join(arguments)});"])


def _pointer(tensor: Tensor) -> str:
    if tensor.place == "weight":
        return f"s->weights + {number(tensor.at)}"
    if tensor.place == "scratch":
        return "scratch"
    return f"s->{'slot' if tensor.place == 'arena' else tensor.place}[{tensor.at}]"
