"""The C driver of a program: what is generated is the model's part, between the constant parts in the folder `c`.

The driver knows the model's inputs and outputs, computes every size of their dimensions with a check for overflow,
places the slots of the arena, and calls one kernel after another; `softq.h` says how it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

from softq.artifact import features
from softq.artifact.abi import DTYPES, MAX_RANK
from softq.artifact.program import Place, Program, Step, Tensor
from softq.artifact.sizes import SizeTable, dimensions, number
from softq.errors import SoftqError
from softq.targets._native.machine import Machine

SEAL_BYTES = 64
"""Length of what ends the weights file and is known to the driver."""

_PLACES: dict[Place, str] = {"input": "SQ_INPUT", "output": "SQ_OUTPUT", "weight": "SQ_WEIGHT", "arena": "SQ_SLOT"}

_SYMBOL = re.compile(r"(?!sq_)[A-Za-z_]\w*", re.ASCII)


def header() -> str:
    """Return the text of `softq.h`, which is the same for every model."""
    return _part("softq.h")


def driver_source(program: Program, machine: Machine, *, weights_bytes: int, seal: bytes) -> str:
    """Return the text of `driver.c`.

    Args:
        program: The model.
        machine: What its kernels were made for.
        weights_bytes: Size of the weights file.
        seal: Its last `SEAL_BYTES` bytes.

    Raises:
        SoftqError: the program contradicts itself, or has no form in the driver.
    """
    assert len(seal) == SEAL_BYTES
    dims = dimensions(program)
    table = SizeTable(dims)
    model = _Model(program, table)
    body = [*model.interface(), *model.slots(), *model.limits(), *model.kernels(), *model.steps()]
    counts = {
        "INPUTS": len(program.inputs),
        "OUTPUTS": len(program.outputs),
        "DIMS": len(dims),
        "SIZES": len(table),
        "SLOTS": len(program.slots),
        "LIMITS": len(program.limits),
        "STEPS": len(program.steps),
    }
    return "\n".join(
        [
            "/* The driver of one model, written by softq build; softq.h says how it is used. */",
            _part("prelude.c"),
            "/* ---- The model: generated ---- */\n",
            *(f"#define SQ_{name} {count}" for name, count in counts.items()),
            f"#define SQ_WEIGHTS_BYTES UINT64_C({weights_bytes})",
            f"#define SQ_MACHINE {_string(machine.name)}",
            f"#define SQ_CPU {_string(machine.cpu)}\n",
            _part("types.c"),
            "/* ---- The model: generated ---- */\n",
            "/* The end of the weights file. */",
            f"static const unsigned char sq_seal[{SEAL_BYTES}] = {{{', '.join(f'0x{byte:02x}' for byte in seal)}}};\n",
            _array("static const char *const sq_dims[SQ_DIMS + 1]", [*map(_string, dims), "NULL"]),
            *_compute(table),
            *body,
            _part("system.c"),
            "/* ---- The processor: generated ---- */\n",
            features.source(machine),
            *map(_part, ("context.c", "shapes.c", "memory.c", "run.c")),
        ]
    )


class _Model:
    """The generated declarations, which share one table of sizes."""

    def __init__(self, program: Program, table: SizeTable) -> None:
        self.program = program
        self.table = table

    def interface(self) -> Iterable[str]:
        for name, positions in (("inputs", self.program.inputs), ("outputs", self.program.outputs)):
            entries = [self._tensor(self.program.tensors[position]) for position in positions]
            yield _array(f"static const struct sq_interface sq_{name}[SQ_{name.upper()} + 1]", [*entries, _NOTHING])

    def _tensor(self, tensor: Tensor) -> str:
        if tensor.dtype not in DTYPES:
            raise SoftqError(f"{tensor.name!r} is {tensor.dtype}; inputs and outputs are one of: {', '.join(DTYPES)}")
        if len(tensor.shape) > MAX_RANK:
            raise SoftqError(
                f"{tensor.name!r} has {len(tensor.shape)} axes; inputs and outputs have at most {MAX_RANK}"
            )
        shape = ", ".join(map(self.table.reference, tensor.shape)) or "{SQ_NUMBER, 0}"
        dtype = f"SOFTQ_{tensor.dtype.upper()}"
        place = f"{_PLACES[tensor.place]}, {number(tensor.at)}"
        return f"{{{_string(tensor.name)}, {dtype}, {len(tensor.shape)}, {{{shape}}}, {place}}}"

    def slots(self) -> Iterable[str]:
        references = [self.table.reference(size) for size in self.program.slots]
        yield _array("static const struct sq_ref sq_slots[SQ_SLOTS + 1]", [*references, "{SQ_NUMBER, 0}"])
        yield f"static const struct sq_ref sq_scratch = {self.table.reference(self.program.scratch)};\n"

    def limits(self) -> Iterable[str]:
        entries: list[str] = []
        for limit in self.program.limits:
            bounds = f"{number(limit.low)}, {number(limit.high)}"
            entries.append(f"{{{self.table.reference(limit.size)}, {bounds}, {_string(limit.because)}}}")
        yield _array(
            "static const struct sq_limit sq_limits[SQ_LIMITS + 1]", [*entries, "{{SQ_NUMBER, 0}, 0, 0, NULL}"]
        )

    def kernels(self) -> Iterable[str]:
        known: dict[str, tuple[int, int]] = {}
        for step in self.program.steps:
            if not _SYMBOL.fullmatch(step.kernel):
                raise SoftqError(f"the kernel's symbol {step.kernel!r} is no name in C, or is one of the driver's own")
            form = (len(step.tensors), len(step.scalars))
            if known.setdefault(step.kernel, form) != form:
                raise SoftqError(f"kernel {step.kernel!r} is called with different numbers of arguments")
        for symbol, (tensors, scalars) in known.items():
            types = ", ".join(["void *"] * tensors + ["int64_t"] * (scalars + 2))
            yield f"SQ_HIDDEN void {symbol}({types});"
        yield ""

    def steps(self) -> Iterable[str]:
        entries: list[str] = []
        for position, step in enumerate(self.program.steps):
            yield from self._function(position, step)
            items, cost = self.table.reference(step.items), self.table.reference(step.cost)
            flag, error = self._flag(step)
            entries.append(f"{{sq_step_{position}, {items}, {cost}, {flag}, {error}}}")
        last = "{NULL, {SQ_NUMBER, 0}, {SQ_NUMBER, 0}, -1, NULL}"
        yield _array("static const struct sq_step sq_steps[SQ_STEPS + 1]", [*entries, last])

    def _function(self, position: int, step: Step) -> Iterable[str]:
        tensors = [self._pointer(self.program.tensors[number]) for number in step.tensors]
        arguments = [*tensors, *map(self.table.value, step.scalars), "begin", "end"]
        if step.site is not None:
            yield f"/* The softmax {_comment(step.site)}. */"
        yield f"static void sq_step_{position}(const struct sq_state *s, unsigned char *scratch, int64_t begin,"
        yield "                    int64_t end)"
        yield "{"
        if not any("s->" in argument for argument in arguments):
            yield "    (void)s;"
        if "scratch" not in arguments:
            yield "    (void)scratch;"
        yield f"    {step.kernel}({', '.join(arguments)});"
        yield "}\n"

    def _pointer(self, tensor: Tensor) -> str:
        if tensor.place == "weight":
            return f"s->weights + {number(tensor.at)}"
        if tensor.place == "scratch":
            return "scratch"
        return f"s->{'slot' if tensor.place == 'arena' else tensor.place}[{tensor.at}]"

    def _flag(self, step: Step) -> tuple[int, str]:
        if step.error is None:
            return -1, "NULL"
        first = self.program.tensors[step.tensors[0]]
        if first.place != "arena" or first.dtype != "int32":
            raise SoftqError(f"kernel {step.kernel!r} reports errors in {first.dtype} of place {first.place}")
        return first.at, _string(step.error)


_NOTHING = "{NULL, SOFTQ_BOOL, 0, {{SQ_NUMBER, 0}}, SQ_INPUT, 0}"


def _compute(table: SizeTable) -> Iterable[str]:
    yield "/* Compute the sizes; 1 comes back if one of them overflows. */"
    yield "static int sq_compute(const int64_t *dim, int64_t *size)"
    yield "{"
    yield "    int bad = 0;"
    yield "    (void)dim;"
    yield "    (void)size;"
    for statement in table.statements():
        yield f"    {statement}"
    yield "    return bad;"
    yield "}\n"


def _array(declaration: str, entries: Sequence[str]) -> str:
    """Return an array; the last entry is there because C has no empty arrays."""
    return f"{declaration} = {{\n" + "".join(f"    {entry},\n" for entry in entries) + "};\n"


def _string(text: str) -> str:
    """Return a C string literal; what is not plain ASCII is written as octal bytes."""
    plain = {ord(" "), *range(ord("0"), ord("9") + 1), *range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)}
    plain |= set(b"_-.,:;/()[]'+*=<>")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode("utf-8", "replace")) + '"'


def _comment(text: str) -> str:
    # A comment must not end early.
    return re.sub(r"[^\w .:#,()/\[\]-]", "?", text, flags=re.ASCII)


def _part(name: str) -> str:
    return files("softq.artifact").joinpath("c", name).read_text("utf-8")
