"""What the C drivers of all devices share: the model's interface, sizes and limits, and the parts in the folder `c`.

A driver knows the model's inputs and outputs, computes every size of their dimensions with a check for overflow, and
places the slots of the arena; how steps are done is the device's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from softq.artifact.abi import DTYPES, MAX_RANK
from softq.artifact.machine import Machine
from softq.artifact.program import Jump, Place, Program, Step, Tensor
from softq.artifact.sizes import SizeTable, all_dimensions, number
from softq.errors import SoftqError

SEAL_BYTES = 64
"""Length of what ends the weights file and is known to the driver."""

PLACES: Mapping[Place, str] = {"input": "SQ_INPUT", "output": "SQ_OUTPUT", "weight": "SQ_WEIGHT", "arena": "SQ_SLOT"}
"""The places of tensors in C."""


class ModelText:
    """The generated declarations of a model, which share one table of sizes.

    Attributes:
        program: The model.
        table: The sizes; complete when all declarations were made.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.dims = all_dimensions(program)
        self.table = SizeTable(self.dims)

    def interface(self) -> Iterable[str]:
        """Yield the inputs, the outputs, the slots and the limits.

        Raises:
            SoftqError: the program has something that has no form in C.
        """
        for name, positions in (("inputs", self.program.inputs), ("outputs", self.program.outputs)):
            entries = [self._tensor(self.program.tensors[position]) for position in positions]
            yield array(f"static const struct sq_interface sq_{name}[SQ_{name.upper()} + 1]", [*entries, _NOTHING])
        references = [self.table.reference(size) for size in self.program.slots]
        yield array("static const struct sq_ref sq_slots[SQ_SLOTS + 1]", [*references, NO_SIZE])
        yield from self._limits()

    def _tensor(self, tensor: Tensor) -> str:
        if tensor.dtype not in DTYPES:
            raise SoftqError(f"{tensor.name!r} is {tensor.dtype}; inputs and outputs are one of: {', '.join(DTYPES)}")
        if len(tensor.shape) > MAX_RANK:
            axes = f"{len(tensor.shape)} axes; inputs and outputs have at most {MAX_RANK}"
            raise SoftqError(f"{tensor.name!r} has {axes}")
        shape = ", ".join(map(self.table.reference, tensor.shape)) or NO_SIZE
        dtype = f"SOFTQ_{tensor.dtype.upper()}"
        place = f"{PLACES[tensor.place]}, {number(tensor.at)}"
        return f"{{{string(tensor.name)}, {dtype}, {len(tensor.shape)}, {{{shape}}}, {place}}}"

    def _limits(self) -> Iterable[str]:
        entries: list[str] = []
        for limit in self.program.limits:
            bounds = f"{number(limit.low)}, {number(limit.high)}"
            entries.append(f"{{{self.table.reference(limit.size)}, {bounds}, {string(limit.because)}}}")
        yield array("static const struct sq_limit sq_limits[SQ_LIMITS + 1]", [*entries, f"{{{NO_SIZE}, 0, 0, NULL}}"])

    def flag(self, step: Step) -> str:
        """Return the slot in which a step tells of bad data, and what is said then, as two initializers."""
        if step.error is None:
            return "-1, NULL"
        return f"{self._told(step, 'int32')}, {string(step.error)}"

    def then(self, step: Step) -> str:
        """Return what the driver does behind a step, as four initializers: what, with which slot, and where to."""
        if step.then is None:
            return "SQ_NEXT, -1, 0, 0"
        if isinstance(step.then, Jump):
            if not 0 <= step.then.target <= len(self.program.steps):
                raise SoftqError(f"kernel {step.kernel!r} leads to step {step.then.target}, which is none")
            return f"SQ_JUMP, {self._told(step, 'int32')}, {step.then.target}, 0"
        first = self.dims.index(step.then.dims[0])
        if self.dims[first : first + len(step.then.dims)] != step.then.dims:
            raise SoftqError(f"kernel {step.kernel!r} measures {', '.join(step.then.dims)}, which do not lie together")
        return f"SQ_MEASURE, {self._told(step, 'int64')}, {first}, {len(step.then.dims)}"

    def _told(self, step: Step, dtype: str) -> int:
        """Return the slot in which a step tells the driver something."""
        first = self.program.tensors[step.tensors[0]]
        if first.place != "arena" or first.dtype != dtype:
            raise SoftqError(f"kernel {step.kernel!r} tells the driver {first.dtype} in place {first.place}")
        return first.at

    def source(
        self,
        machine: Machine,
        *,
        weights_bytes: int,
        seal: bytes,
        address: str,
        counts: Mapping[str, int],
        types: str,
        declarations: Sequence[str],
        device: Sequence[str],
        execution: str,
    ) -> str:
        """Return the whole text of a driver.

        Args:
            machine: What its kernels were made for.
            weights_bytes: Size of the weights file.
            seal: Its last `SEAL_BYTES` bytes.
            address: What kernels get of memory, as a type.
            counts: Macros of the device beyond those of all, without their `SQ_`.
            types: Name of the part that has the device's types.
            declarations: The device's, which are generated.
            device: What works on the device, in texts.
            execution: Name of the part that executes the model.
        """
        assert len(seal) == SEAL_BYTES
        program, body = self.program, [*self.interface(), *declarations]
        macros = {
            "INPUTS": len(program.inputs),
            "OUTPUTS": len(program.outputs),
            "DIMS": len(self.dims),
            "MEASURED": len(program.measured),
            "SIZES": len(self.table.statements),
            "SLOTS": len(program.slots),
            "LIMITS": len(program.limits),
            "STEPS": len(program.steps),
            **counts,
        }
        return "\n".join(
            [
                "/* The driver of one model, written by softq build; softq.h says how it is used. */",
                part("prelude.c"),
                "/* ---- The model: generated ---- */\n",
                *(f"#define SQ_{name} {count}" for name, count in macros.items()),
                f"#define SQ_WEIGHTS_BYTES UINT64_C({weights_bytes})",
                f"#define SQ_MACHINE {string(machine.name)}",
                f"#define SQ_CPU {string(machine.cpu)}\n",
                "/* What a kernel gets of memory. */",
                f"typedef {address} sq_address;\n",
                *map(part, ("sizes.c", "types.c", types)),
                "/* ---- The model: generated ---- */\n",
                "/* The end of the weights file. */",
                f"static const unsigned char sq_seal[{SEAL_BYTES}] = {{{', '.join(f'0x{b:02x}' for b in seal)}}};\n",
                array("static const char *const sq_dims[SQ_DIMS + 1]", [*map(string, self.dims), "NULL"]),
                compute_function("sq_compute", self.table),
                *body,
                part("files.c"),
                *device,
                *map(part, ("context.c", "shapes.c", "memory.c", execution, "run.c")),
            ]
        )


NO_SIZE = "{SQ_NUMBER, 0}"
_NOTHING = f"{{NULL, SOFTQ_BOOL, 0, {{{NO_SIZE}}}, SQ_INPUT, 0}}"


def compute_function(name: str, table: SizeTable) -> str:
    """Return the function that computes a table's sizes."""
    body = ["int bad = 0;", "(void)dim;", "(void)size;", *table.statements, "return bad;"]
    head = "/* Compute the sizes; 1 comes back if one of them overflows. */\n"
    return f"{head}static int {name}(const int64_t *dim, int64_t *size)\n{block(body)}"


def block(statements: Iterable[str]) -> str:
    """Return a function's body."""
    return "{\n" + "".join(f"    {statement}\n" for statement in statements) + "}\n"


def array(declaration: str, entries: Sequence[str]) -> str:
    """Return an array; its last entry is there because C has no empty arrays."""
    return f"{declaration} = {{\n" + "".join(f"    {entry},\n" for entry in entries) + "};\n"


def string(text: str) -> str:
    """Return a C string literal; what is not plain ASCII is written as octal bytes."""
    plain = {ord(" "), *range(ord("0"), ord("9") + 1), *range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)}
    plain |= set(b"_-.,:;/()[]'+*=<>")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode("utf-8", "replace")) + '"'


def comment(text: str) -> str:
    """Return a text that does not end the comment that it stands in."""
    return re.sub(r"[^\w .:#,()/\[\]-]", "?", text, flags=re.ASCII)


def part(name: str) -> str:
    """Return a part that is the same for every model."""
    return files("softq.artifact").joinpath("c", name).read_text("utf-8")
