"""What of the C source of a library of operators is generated for attentions: sizes, tensors and steps of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softq.artifact.abi import MAX_RANK
from softq.artifact.ctext import NO_SIZE, ModelText, array, compute_function, string
from softq.artifact.driver import kernel_declarations, step_function
from softq.artifact.operators.library import AttentionOperator
from softq.artifact.sizes import number
from softq.errors import SoftqError


class AttentionsText:
    """The generated parts.

    Attributes:
        declarations: Kernels, tables and functions of all attentions.
        macros: Definitions of the greatest counts, on which memory on the stack depends.
        operators: What is registered.
    """

    def __init__(self, attentions: Sequence[AttentionOperator], types: Mapping[str, str]) -> None:
        """Make the texts.

        Args:
            attentions: The operators.
            types: The runtime's names of element types, by NumPy's.
        """
        texts = [_AttentionText(position, attention, types) for position, attention in enumerate(attentions)]
        self.declarations = [
            *kernel_declarations(attention.program for attention in attentions),
            *(line for text in texts for line in text.lines),
            array("static const struct sq_graph sq_graphs[SQ_ATTENTIONS + 1]", [*(t.graph for t in texts), "{0}"]),
        ]
        counts = {"ATTENTIONS": len(texts), "MEASURED": 0, "MOST_RANK": MAX_RANK}
        for name in ("INPUTS", "RESULTS", "DIMS", "SIZES", "SLOTS"):
            counts[f"MOST_{name}"] = max((text.counts[name] for text in texts), default=0)
        self.macros = [f"#define SQ_{name} {count}" for name, count in counts.items()]
        entries = [f"{{SQ_ATTENTION_OP, &sq_graphs[{position}]}}" for position in range(len(texts))]
        head = "static const struct sq_attention_operator sq_attention_operators[SQ_ATTENTIONS + 1]"
        self.operators = array(head, [*entries, "{{0}, NULL}"])


class _AttentionText:
    """The declarations of one attention, whose names end in its number."""

    def __init__(self, position: int, attention: AttentionOperator, types: Mapping[str, str]) -> None:
        program = attention.program
        if program.measured or any(step.then is not None or step.error is not None for step in program.steps):
            raise SoftqError(f"function {attention.name} has steps that depend on data")
        self._position, self._types, self._model = position, types, ModelText(program)
        self._table = self._model.table
        functions: list[str] = []
        steps: list[str] = []
        for at, step in enumerate(program.steps):
            functions += step_function(f"sq_step_{position}_{at}", self._model, step)
            sizes = map(self._table.reference, (step.items, step.cost))
            steps.append(f"{{sq_step_{position}_{at}, {', '.join(sizes)}}}")
        limits = [
            f"{{{self._table.reference(x.size)}, {number(x.low)}, {number(x.high)}, {string(x.because)}}}"
            for x in program.limits
        ]
        slots = [self._table.reference(size) for size in program.slots]
        tables = [
            self._array("struct sq_port", "inputs", [*map(self._port, program.inputs), "{0}"]),
            self._array("struct sq_port", "outputs", [*map(self._port, program.outputs), "{0}"]),
            self._array("struct sq_ref", "slots", [*slots, NO_SIZE]),
            self._array("struct sq_step", "steps", [*steps, f"{{NULL, {NO_SIZE}, {NO_SIZE}}}"]),
            self._array("struct sq_limit", "limits", [*limits, f"{{{NO_SIZE}, 0, 0, NULL}}"]),
            self._constants(),
        ]
        scratch = self._table.reference(program.scratch)
        # Behind all that refers to sizes.
        self.lines = [*functions, *tables, compute_function(self._name("compute"), self._table)]
        self.counts = {
            "INPUTS": len(program.inputs), "RESULTS": len(program.outputs), "DIMS": len(self._model.dims),
            "SIZES": len(self._table.statements), "SLOTS": len(slots),
        }  # fmt: skip
        counted = ", ".join(map(str, [*self.counts.values(), len(steps), len(limits)]))
        parts = map(self._name, ("inputs", "outputs", "slots", "steps", "limits", "constants", "compute"))
        self.graph = f"{{{string(attention.name)}, {counted}, {', '.join(parts)}, {scratch}}}"

    def _name(self, what: str) -> str:
        return f"sq_{what}_{self._position}"

    def _array(self, kind: str, what: str, entries: Sequence[str]) -> str:
        return array(f"static const {kind} {self._name(what)}[]", entries)

    def _port(self, position: int) -> str:
        tensor = self._model.program.tensors[position]
        if tensor.dtype not in self._types or len(tensor.shape) > MAX_RANK:
            raise SoftqError(f"{tensor.name!r} is {tensor.dtype} of {len(tensor.shape)} axes")
        shape = ", ".join(map(self._table.reference, tensor.shape)) or NO_SIZE
        return f"{{{string(tensor.name)}, {self._types[tensor.dtype]}, {len(tensor.shape)}, {{{shape}}}}}"

    def _constants(self) -> str:
        weights = self._model.program.weights
        data = bytearray(max((at + array.nbytes for at, array in weights.items()), default=1))
        for at, values in weights.items():
            data[at : at + values.nbytes] = np.ascontiguousarray(values).tobytes()
        text = ", ".join(map(str, data))
        return f"static unsigned char {self._name('constants')}[] __attribute__((aligned(64))) = {{{text}}};\n"
