"""The C driver of a program for a GPU of NVIDIA: it starts one kernel after another through the driver of the system.

That is found when a model is opened, so that compiling and linking need nothing of CUDA. The kernels' code is taken
into the library from the files beside the text (the assembler's `.incbin`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from softq.artifact.ctext import NO_SIZE, PLACES, ModelText, array, comment, part, string
from softq.artifact.device.starting import MOST_BLOCKS, Number, Start
from softq.artifact.device.steps import DeviceProgram
from softq.artifact.machine import Machine
from softq.artifact.program import Step
from softq.artifact.sizes import number
from softq.errors import SoftqError


def driver_source(device: DeviceProgram, machine: Machine, *, weights_bytes: int, seal: bytes) -> str:
    """Return the text of `driver.c`.

    Args:
        device: The model.
        machine: What its kernels were made for.
        weights_bytes: Size of the weights file.
        seal: Its last `SEAL_BYTES` bytes.

    Raises:
        SoftqError: the program contradicts itself, or has no form in the driver.
    """
    model = ModelText(device.program)
    tables = _Tables(device, model)
    declarations = [*tables.declarations()]
    return model.source(
        machine,
        weights_bytes=weights_bytes,
        seal=seal,
        address="unsigned long long",
        counts={
            "MODULES": len(tables.modules),
            "FUNCTIONS": len(tables.functions),
            "ARGUMENTS": max((len(s.tensors) + len(tables.numbers_of(s)) for s in device.program.steps), default=0),
            "FLAGS": sum(step.error is not None for step in device.program.steps),
            "MOST_BLOCKS": MOST_BLOCKS,
            "COMPILED": int(tables.compiled),
        },
        types="cuda/step.c",
        declarations=declarations,
        device=[*map(part, ("cuda/driver.c", "cuda/model.c"))],
        execution="cuda/engine.c",
    )


class _Runs:
    """An array of entries of which runs are referred to; equal runs stand there once."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._entries: list[str] = []
        self._known: dict[Hashable, int] = {}

    def reference(self, entries: Sequence[str]) -> str:
        """Return the first entry's number and how many there are."""
        key = tuple(entries)
        if key not in self._known:
            self._known[key] = len(self._entries)
            self._entries += key
        return f"{self._known[key]}, {len(key)}"

    def declaration(self, last: str) -> str:
        return array(f"static const struct sq_{self._kind} sq_{self._kind}s[]", [*self._entries, last])


class _Tables:
    def __init__(self, device: DeviceProgram, model: ModelText) -> None:
        self._device, self._model = device, model
        used = dict.fromkeys(device.launches[step.kernel].module for step in device.program.steps)
        self.modules = [*used]
        self.compiled = all(module in device.code for module in used)
        self.functions: dict[tuple[str, str, int], int] = {}
        self._ranges, self._forms = _Runs("range"), _Runs("form")
        self._operands, self._numbers = _Runs("operand"), _Runs("number")

    def declarations(self) -> Iterable[str]:
        steps = [*self._steps()]
        yield from self._code()
        functions = [f"{{{self.modules.index(module)}, {string(symbol)}, {shared}}}"
                     for module, symbol, shared in self.functions]  # fmt: skip
        yield array("static const struct sq_function sq_functions[SQ_FUNCTIONS + 1]", [*functions, "{0, NULL, 0}"])
        yield self._operands.declaration("{SQ_INPUT, 0}")
        yield self._numbers.declaration(f"{{8, {NO_SIZE}}}")
        yield self._ranges.declaration(f"{{{NO_SIZE}, 0, 0}}")
        yield self._forms.declaration(f"{{0, 0, {NO_SIZE}, 0, 0}}")
        last = f"{{0, 0, 0, 0, 0, 0, {NO_SIZE}, -1, NULL}}"
        yield array("static const struct sq_step sq_steps[SQ_STEPS + 1]", [*steps, last])

    def _code(self) -> Iterable[str]:
        if self.compiled and self.modules:
            yield "/* The kernels' code; PTX is text that ends with a zero. */"
            yield '__asm__(".section .rodata\\n"'
            for position, module in enumerate(self.modules):
                yield f'        ".balign 64\\n.globl sq_code_{position}\\n.hidden sq_code_{position}\\n"'
                yield f'        "sq_code_{position}:\\n.incbin \\"{module}.{self._device.form}\\"\\n.byte 0\\n"'
            yield '        ".previous\\n");'
            for position in range(len(self.modules)):
                yield f"SQ_HIDDEN extern const unsigned char sq_code_{position}[];"
        names = [f"sq_code_{position}" for position in range(len(self.modules))] if self.compiled else []
        yield array("\nstatic const unsigned char *const sq_code[SQ_MODULES + 1]", [*names, "NULL"])

    def _steps(self) -> Iterable[str]:
        for step in self._device.program.steps:
            operands = [self._operand(position) for position in step.tensors]
            reference = self._model.table.reference
            numbers = [f"{{{int(one.dtype[3:]) // 8}, {reference(one.size)}}}" for one in self.numbers_of(step)]
            launch = self._device.launches[step.kernel]
            forms = [self._form(launch.module, start) for start in launch.starts(step)]
            runs = (self._forms.reference(forms), self._operands.reference(operands), self._numbers.reference(numbers))
            site = "" if step.site is None else f"/* the softmax {comment(step.site)} */ "
            yield f"{site}{{{', '.join(runs)}, {reference(step.items)}, {self._model.flag(step)}}}"

    def numbers_of(self, step: Step) -> Sequence[Number]:
        return self._device.launches[step.kernel].numbers(step)

    def _operand(self, position: int) -> str:
        tensor = self._device.program.tensors[position]
        if tensor.place not in PLACES:
            raise SoftqError(f"a kernel for a GPU has a tensor in {tensor.place!r}, which GPUs have not")
        return f"{{{PLACES[tensor.place]}, {number(tensor.at)}}}"

    def _form(self, module: str, start: Start) -> str:
        function = self.functions.setdefault((module, start.symbol, start.shared), len(self.functions))
        table = self._model.table
        ranges = [f"{{{table.reference(one.size)}, {number(one.low)}, {number(one.high)}}}" for one in start.when]
        blocks = table.reference(start.blocks)
        return f"{{{function}, {start.threads}, {blocks}, {self._ranges.reference(ranges)}}}"
