"""The texts of a model in C: what its users include, what runs it, its kernels and its weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from softq.artifact.ctext import comment
from softq.artifact.firmware.numbers import CODES, ctype, identifiers, literals
from softq.artifact.firmware.program import Firmware, KernelText
from softq.artifact.manifest import firmware_files
from softq.artifact.program import Jump, Step, Tensor, evaluate

Array = NDArray[np.generic]


class FirmwareText:
    """The files of a model, all of whose symbols begin with its name.

    Args:
        firmware: The model.
        name: The name: a C identifier.
        whole: Whether the texts are to stand in one file.

    Attributes:
        name: The name.
        inputs: The name in C and the type of elements of each input.
        outputs: Likewise.
    """

    def __init__(self, firmware: Firmware, name: str, *, whole: bool = False) -> None:
        self._whole = whole
        self._firmware, self._program, self.name = firmware, firmware.program, name
        self._kernels = {kernel.symbol: kernel for kernel in firmware.kernels}
        self._macro = name.upper()
        self._tensors = [self._program.tensors[at] for at in (*self._program.inputs, *self._program.outputs)]
        names = identifiers([tensor.name for tensor in self._tensors], f"{name}_", ("m", "arena", "bytes"))
        arguments = [(name, ctype(tensor.dtype)) for name, tensor in zip(names, self._tensors, strict=True)]
        count = len(self._program.inputs)
        self.inputs, self.outputs = arguments[:count], arguments[count:]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name of each file and what is in it."""
        make = self._firmware.kernel_object
        endings = {".h": self.header, ".c": self.runner, "_kernels.h": self.kernel_header,
                   "_kernels.c": self.kernels, "_weights.c": self.weights, "_host.c": self.host}  # fmt: skip
        for file in firmware_files(self.name, "c" if make is None else "object"):
            text = endings.get(file.removeprefix(self.name))
            if text is not None:
                yield file, text().encode()
            else:
                assert make is not None
                yield file, make(self.name)

    def host(self) -> str:
        """Return the model for other processors in one file, which is empty where nobody asks for it."""
        assert self._firmware.host is not None
        text, asked = FirmwareText(self._firmware.host, self.name, whole=True), f"{self._macro}_HOST"
        parts = (text.header(), text.kernel_header(), text.kernels(), text.weights(), text.runner())
        return "\n".join([f"/* The same for other processors, if {asked} is defined. */", f"#ifdef {asked}", "",
                          *parts, "#else", "/* C has no empty files. */", f"typedef int {self.name}_no_host;",
                          "#endif", ""])  # fmt: skip

    def _include(self, *endings: str) -> list[str]:
        return [] if self._whole else [f'#include "{self.name}{ending}"' for ending in endings]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in flash."""
        return sum(array.nbytes for array in self._weights().values())

    def header(self) -> str:
        """Return what users include, from C or C++."""
        macro = self._macro
        lines = [
            f"/* {self.name}: a model in C, written by softq build. */",
            f"#ifndef {macro}_H",
            f"#define {macro}_H",
            "",
            *["#include <stdbool.h>"] * any(tensor.dtype == "bool" for tensor in self._tensors),
            "#include <stdint.h>",
            "",
        ]
        lines += [
            "/* Bytes of memory that a run needs beside its inputs and outputs. */",
            f"#define {macro}_ARENA_BYTES {self._firmware.arena}",
        ]
        lines += [
            "/* Alignment of that memory in bytes; of inputs and outputs it is that of their type. */",
            f"#define {macro}_ALIGNMENT 16",
            "",
        ]
        for name, tensor in zip(self._names(), self._tensors, strict=True):
            what = " x ".join(map(str, tensor.shape)) or "one number"
            what += "" if name == tensor.name else f", {comment(tensor.name)} in the model"
            lines.append(f"#define {macro}_{name.upper()}_LENGTH {_count(tensor)} /* {what} */")
        lines += ["", "/* What a run returns. */"]
        lines += [f"#define {macro}_{what} {code}" for code, what in enumerate(CODES)]
        lines += ["", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        lines += [
            "/* Run the model once.",
            " *",
            " * arena: memory of the caller's, which runs that are under way at once may not share.",
            " * Nothing is kept from one run to the next. An error leaves the outputs as they were, but for bad data.",
            " */",
            f"int {self.name}_run_in({self._parameters()}, void *arena, uint32_t bytes);",
            "",
            f"/* The same in memory of its own, unless {macro}_NO_ARENA is defined where {self.name}.c is compiled. */",
            f"int {self.name}_run({self._parameters()});",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    def _names(self) -> list[str]:
        return [name for name, _ in (*self.inputs, *self.outputs)]

    def _parameters(self) -> str:
        return ", ".join(
            [f"const {kind} *{name}" for name, kind in self.inputs] + [f"{kind} *{name}" for name, kind in self.outputs]
        )

    def kernel_header(self) -> str:
        """Return the declarations of the kernels and the weights, for the other files alone."""
        macro = f"{self._macro}_KERNELS_H"
        weights = [
            f"extern const {ctype(str(a.dtype))} {self._weight(at)}[{a.size}];" for at, a in self._weights().items()
        ]
        called = dict.fromkeys(step.kernel for step in self._program.steps)
        kernels = [f"void {self._head(self._kernels[symbol])};" for symbol in called]
        return (
            "\n".join(
                [
                    f"#ifndef {macro}",
                    f"#define {macro}",
                    "",
                    self._firmware.prelude,
                    *weights,
                    "",
                    *kernels,
                    "",
                    "#endif",
                ]
            )
            + "\n"
        )

    def _head(self, kernel: KernelText) -> str:
        return self._named(kernel.head)

    def _named(self, text: str) -> str:
        """Return a text in which kernels have the model's name before theirs."""
        names = "|".join(sorted(self._kernels, key=len, reverse=True))
        return re.sub(rf"\b({names})(?=\()", rf"{self.name}_\1", text)

    def kernels(self) -> str:
        """Return the kernels."""
        parts = ["\n".join([*self._include("_kernels.h"), ""])]
        called = {step.kernel for step in self._program.steps}
        for kernel in self._firmware.kernels:
            storage = "void" if kernel.symbol in called else "static void"
            parts.append(f"{storage} {self._head(kernel)}\n{self._named(kernel.body)}")
        return "\n".join(parts)

    def _weights(self) -> Mapping[int, Array]:
        used = {
            tensor.at
            for step in self._program.steps
            for at in step.tensors
            if (tensor := self._program.tensors[at]).place == "weight"
        }
        return {at: array for at, array in sorted(self._program.weights.items()) if at in used}

    def _weight(self, at: int) -> str:
        return f"{self.name}_weight_{at}"

    def weights(self) -> str:
        """Return the weights as constant arrays."""
        parts = ["\n".join([*self._include("_kernels.h"), ""])]
        for at, array in self._weights().items():
            dtype, values = str(array.dtype), literals(array)
            lines = [", ".join(values[i : i + 8]) for i in range(0, len(values), 8)]
            parts.append(
                f"const {ctype(dtype)} {self._weight(at)}[{array.size}] = {{\n    " + ",\n    ".join(lines) + "};\n"
            )
        return "\n".join(parts)

    def runner(self) -> str:
        """Return what checks the arguments and calls one kernel after the other."""
        macro = self._macro
        lines = [*self._include(".h", "_kernels.h"), ""]
        lines += [f"int {self.name}_run_in({self._parameters()}, void *arena, uint32_t bytes)", "{"]
        lines += ["    uint8_t *const m = (uint8_t *)arena;", ""]
        nothing = " || ".join(f"{pointer} == NULL" for pointer in (*self._names(), "m"))
        lines += [f"    if ({nothing}) {{", f"        return {macro}_NULL_POINTER;", "    }"]
        lines += [f"    if (bytes < {macro}_ARENA_BYTES) {{", f"        return {macro}_ARENA_TOO_SMALL;", "    }"]
        lines += [f"    if ((uintptr_t)m % {macro}_ALIGNMENT != 0) {{", f"        return {macro}_MISALIGNED;", "    }"]
        goals = {step.then.target for step in self._program.steps if isinstance(step.then, Jump)}
        for position, step in enumerate(self._program.steps):
            if position in goals:
                lines.append(f"step_{position}:")
            lines += [f"    {line}" for line in self._step(position, step)]
        if len(self._program.steps) in goals:
            lines.append(f"step_{len(self._program.steps)}:")
        lines += [f"    return {macro}_OK;", "}", "", f"#ifndef {macro}_NO_ARENA"]
        memory = f"{self.name}_arena.bytes"
        lines += [
            "static union {",
            f"    uint8_t bytes[{macro}_ARENA_BYTES];",
            "    uint64_t aligned;",
            f"}} {self.name}_arena SQ_ALIGNED;",
            "",
        ]
        lines += [
            f"int {self.name}_run({self._parameters()})",
            "{",
            f"    return {self.name}_run_in({', '.join([*self._names(), memory, f'sizeof {memory}'])});",
            "}",
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    def _step(self, position: int, step: Step) -> Iterator[str]:
        kernel = self._kernels[step.kernel]
        if step.site is not None:
            yield f"/* The softmax {comment(step.site)}. */"
        given = [f"(void *)({self._pointer(position, self._program.tensors[at])})" for at in step.tensors]
        given += [str(evaluate(size, {})) for size in (*step.scalars, 0, step.items)]
        if step.error is not None:
            yield f"{self._flag(position, step)} = 0;"
        yield f"{self.name}_{step.kernel}({', '.join(given[at] for at in kernel.kept)});"
        if step.error is not None:
            yield f"if ({self._flag(position, step)} != 0) {{"
            yield f"    return {self._macro}_BAD_DATA; /* {comment(step.error)} */"
            yield "}"
        if isinstance(step.then, Jump):
            yield f"if ({self._flag(position, step)} != 0) {{"
            yield f"    goto step_{step.then.target};"
            yield "}"

    def _flag(self, position: int, step: Step) -> str:
        """Return what a step's kernel says to the one that calls it."""
        return f"*(sq_int32 *)({self._pointer(position, self._program.tensors[step.tensors[0]])})"

    def _pointer(self, position: int, tensor: Tensor) -> str:
        if tensor.place in ("input", "output"):
            return (self.inputs if tensor.place == "input" else self.outputs)[tensor.at][0]
        if tensor.place == "weight":
            return self._weight(tensor.at)
        at = self._firmware.scratch[position] if tensor.place == "scratch" else self._firmware.offsets[tensor.at]
        return f"m + {at}"


def _count(tensor: Tensor) -> int:
    return math.prod(evaluate(size, {}) for size in tensor.shape)
