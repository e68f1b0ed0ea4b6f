"""The C source of a library of custom operators: what all have in common, and tables of what is known of each.

It speaks to onnxruntime through positions in the table of its C interface, version 17 (onnxruntime 1.17), and needs
none of its headers: the table only grows at its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from softq.artifact import features
from softq.artifact.ctext import array, part, string
from softq.artifact.machine import Cpu
from softq.artifact.operators.attention_source import AttentionsText
from softq.artifact.operators.library import Level, Operator, OperatorLibrary, Parameter

_TYPES = {
    "float32": "ORT_FLOAT", "bool": "ORT_BOOL", "int8": "ORT_INT8", "uint8": "ORT_UINT8", "int16": "ORT_INT16",
    "uint16": "ORT_UINT16", "int32": "ORT_INT32", "uint32": "ORT_UINT32", "int64": "ORT_INT64",
    "uint64": "ORT_UINT64", "float16": "ORT_FLOAT16", "bfloat16": "ORT_BFLOAT16", "float64": "ORT_DOUBLE",
}  # fmt: skip


def library_source(library: OperatorLibrary, machine: Cpu) -> str:
    """Return the text of `operators.c`.

    Args:
        library: The operators.
        machine: What their kernels were made for, but for those of the library's levels.
    """
    count = len(library.operators)
    levels = [*library.levels, Level(machine, library.operators)]
    attentions = AttentionsText(library.attentions, _TYPES)
    most = max((len(operator.parameters) for operator in library.operators), default=0)
    questions = {f"sq_missing_{number}": level.machine for number, level in enumerate(levels)}
    needed = features.sources(questions)
    operators = [operator for level in levels for operator in level.operators]
    given = list(dict.fromkeys(operator.parameters for operator in operators))
    tables = [_parameters(number, parameters) for number, parameters in enumerate(given)]
    facts = [_facts(operator, given.index(operator.parameters)) for operator in operators]
    kernels = list(dict.fromkeys(map(_kernel, operators)))
    # By this a library knows itself: the same operators for the same processor are the same.
    known = [needed, *(level.machine.cpu for level in levels), *tables, *facts, *kernels, *attentions.declarations]
    digest = hashlib.sha256("".join(known).encode()).hexdigest()
    return "\n".join(
        [
            "/* Custom operators for onnxruntime, written by softq build. */",
            part("onnxruntime/api.c"),
            part("onnxruntime/types.c"),
            "/* ---- The operators: generated ---- */\n",
            f"#define SQ_LEVELS {len(levels)}",
            f"#define SQ_OPERATORS {count}",
            f"#define SQ_MOST_PARAMETERS {most}",
            *attentions.macros,
            f"#define SQ_CPU {string(machine.cpu)}",
            f"#define SQ_DIGEST {string(digest)}\n",
            needed,
            array("static const char *(*const sq_missing[SQ_LEVELS])(void)", list(questions)),
            *kernels,
            *tables,
            array("static const struct sq_facts sq_facts[SQ_LEVELS * SQ_OPERATORS + 1]", [*facts, "{0}"]),
            *map(part, ("sizes.c", "onnxruntime/graph.c")),
            *attentions.declarations,
            *(part(f"onnxruntime/{name}.c") for name in ("tensors", "compute", "operator", "buffers", "attention")),
            attentions.operators,
            part("onnxruntime/register.c"),
        ]
    )


def _kernel(operator: Operator) -> str:
    """Return a kernel's declaration and the function that calls it."""
    masked = operator.masked or operator.dense
    pointers = ["call->scores", *(["call->valid"] if masked else [])]
    pointers += [f"call->parameters[{i}]" for i in range(len(operator.parameters))]
    written = [f"call->outputs[{i}]" for i in range(len(operator.outputs))]
    written += ["call->scratch"] if operator.scratch_bytes else []
    sizes = ["call->length", "call->heads", "call->queries"]
    sizes += [f"call->strides[{i}]" for i in range(4)] if masked else []
    types = ["const void *"] * len(pointers) + ["void *"] * len(written) + ["int64_t"] * (len(sizes) + 2)
    given = ", ".join([*pointers, *written, *sizes, "begin", "end"])
    return (
        f"SQ_HIDDEN void {operator.kernel}({', '.join(types)});\n\n"
        f"static void run_{operator.kernel}(const struct sq_call *call, int64_t begin, int64_t end)\n"
        f"{{\n    {operator.kernel}({given});\n}}\n"
    )


def _parameters(number: int, parameters: Sequence[Parameter]) -> str:
    entries = [*map(_parameter, parameters), "{NULL, 0, 0, 0, 0}"]
    return array(f"static const struct sq_parameter sq_parameters_{number}[]", entries)


def _parameter(parameter: Parameter) -> str:
    types = f"{_TYPES[parameter.given]}, {_TYPES[parameter.taken]}"
    return f"{{{string(parameter.name)}, {types}, {parameter.per_head:d}, {parameter.size}}}"


def _facts(operator: Operator, table: int) -> str:
    rows = ", ".join(f"{row:d}" for row in operator.outputs.values())
    parameters = f"{len(operator.parameters)}, sq_parameters_{table}, {operator.offsets}"
    return (
        f"{{{string(operator.name)}, {_TYPES[operator.scores]}, {operator.masked:d}, {operator.dense:d}, {parameters}, "
        f"{len(operator.outputs)}, {{{rows}}}, INT64_C({operator.max_length}), {operator.scratch_bytes}, "
        f"run_{operator.kernel}}}"
    )
