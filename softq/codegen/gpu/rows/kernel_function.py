"""The kernel of a row program: its signature, its tables, the row of each thread, and its passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from softq.codegen.common.patterns import check_nibbles, fenced, output_type
from softq.codegen.gpu.dialect.dialects import Dialect
from softq.codegen.gpu.dialect.text import F32, HALVES, Text, pruned, word_type
from softq.codegen.gpu.rows.emission import Emission, KernelContext
from softq.codegen.gpu.rows.load_store import STRIDES, Output, Scores, as_stored, bytes_of
from softq.codegen.gpu.rows.online_softmax import ExponentialSum, merge_passes
from softq.codegen.gpu.rows.row_loop import RowContext, write_loop
from softq.codegen.gpu.rows.rules import RULES
from softq.codegen.gpu.rows.tables import constants, held, read_tables
from softq.codegen.gpu.rows.tiling import Tiling
from softq.errors import UsageError
from softq.rowprog.onnx.emitter import output_names
from softq.rowprog.phases import is_group, phases
from softq.rowprog.program import Program, size_of
from softq.rowprog.ranges import prove
from softq.rowprog.types import DType, Kind


@dataclass(frozen=True)
class RowKernel:
    """The kernel of a row program.

    Attributes:
        symbol: Its name.
        text: Its text, to stand behind the prelude of its language.
        tiling: Its shape.
        parameters: Names of the run-time parameters in their order.
        outputs: Names of the outputs in their order.
        stored: The type of each output in memory: f32, f16, bf16 or an integer type; those of two per byte are u8.
        scores: The same of the scores.
        masked: Whether there is a mask.
        shared_bytes: Shared memory that its launch gives a block.
    """

    symbol: str
    text: str
    tiling: Tiling
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    stored: Mapping[str, str]
    scores: str
    masked: bool
    shared_bytes: int = 0


def row_kernel(
    program: Program,
    tiling: Tiling,
    dialect: Dialect,
    *,
    symbol: str,
    max_length: int,
    outputs: Sequence[str] | None = None,
    nibbles: Collection[str] = (),
    scores: str | None = None,
    stored: Mapping[str, str] | None = None,
) -> RowKernel:
    """Return the kernel of a program.

        void symbol(const S *scores, [const u8 *valid,] const P *param..., O *output...,
                    i64 rows, i32 length, i32 heads, i32 queries, [i64 valid_outer, i64 valid_head, i64 valid_query,
                    i64 valid_element])

    Rows are numbered over the axes (outer, heads, queries); a block takes `tiling.rows` of them. All arrays are
    row-major. The mask has strides of its own, in elements; its last one is 0 or 1.

    Args:
        program: What to compute.
        tiling: The kernel's shape.
        dialect: The language.
        symbol: Name of the function.
        max_length: Greatest length of a row that the proof covers.
        outputs: Names of the outputs; by default those of the interface.
        nibbles: Those of them that are written two elements per byte, as the kernels of processors do.
        scores: Type of the scores in memory: f32, f16 or bf16 for float scores; by default the program's.
        stored: Type of an output in memory where it is not its own: f16 or bf16 for f32.

    Raises:
        ProofError: the program has no complete proof.
        UsageError: an output is unknown or named twice, has numbers that four bits do not hold, or cannot have the type
            asked for; or the tiling cannot compute the program.
    """
    names = output_names(program, outputs)
    chosen = replace(program, outputs={name: program.outputs[name] for name in names})
    proof = prove(program, max_length=max(max_length, 1))
    for name in nibbles:
        check_nibbles(chosen, name, proof)
    kept = _stored(chosen, stored or {})
    given = scores or program.scores.value
    if given != program.scores.value and not (program.scores.is_float and given in HALVES):
        raise UsageError(f"scores of {program.name} are {program.scores.value}; they cannot be read as {given}")
    if tiling.group > 1 and any(node.op == "scan" for node in program.nodes()):
        raise UsageError(f"{program.name} goes along the row element by element; that takes one thread a row")
    groups = [size_of(node) for node in program.nodes() if is_group(node)]
    if groups and not tiling.holds:
        raise UsageError(
            f"{program.name} takes maxima over groups of elements; {tiling.name} does not hold the row: allowed are "
            "rows of up to 16,384 elements, for which --max-length converts the model"
        )
    if groups and min(groups) < tiling.chunk:
        raise UsageError(
            f"{program.name} takes maxima over groups of {min(groups)} elements; a thread of {tiling.name} takes "
            f"{tiling.chunk} side by side, more than a group"
        )
    if tiling.shared and (tiling.holds or not 0 < tiling.shared < tiling.chunks or bytes_of(given) > 4):
        raise UsageError(f"{tiling.name}: shared memory takes some of the chunks, of scores of at most 32 bits")
    if nibbles and tiling.chunk % 2:
        raise UsageError("two elements per byte take chunks of two")
    text, parameters = Text(), tuple(param.name for param in program.params)
    kernel = KernelContext(text, proof, RULES, fenced(chosen), {name: f"param_{name}" for name in parameters})
    masked = any(node.op == "input" and node.attrs["name"] == "valid" for node in chosen.nodes())
    written = {n: Output(n, node, kept[n], n in nibbles) for n, node in chosen.outputs.items()}
    row = RowContext(kernel, Scores(given, tiling), masked, written, dialect.shuffles)
    with text.block(f"KERNEL({tiling.threads}) {symbol}({_signature(program, given, kept)})"):
        _locate_row(text, tiling, program.masked)
        read_tables(kernel, chosen, symbol, tiling.threads)
        _write_passes(row, chosen)
    whole, shared_bytes = constants(chosen, symbol) + pruned(str(text)), row.scores.shared_bytes
    return RowKernel(symbol, whole, tiling, parameters, tuple(names), kept, given, program.masked, shared_bytes)


def _stored(program: Program, asked: Mapping[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for name in program.outputs:
        own = output_type(program, name)
        own = "u8" if own is DType.BOOL else own.value
        kind = asked.get(name, own)
        if kind != own and not (own == F32 and kind in HALVES):
            raise UsageError(f"output {name} of {program.name} is {own}; it cannot be written as {kind}")
        result[name] = kind
    return result


def _signature(program: Program, scores: str, stored: Mapping[str, str]) -> str:
    result = [f"const GLOBAL {word_type(scores)} *RESTRICT scores"]
    result += ["const GLOBAL u8 *RESTRICT valid"] * program.masked
    result += [f"const GLOBAL {held(p.dtype)} *RESTRICT param_{p.name}" for p in program.params]
    result += [f"GLOBAL {word_type(kind)} *RESTRICT output_{name}" for name, kind in stored.items()]
    result += ["i64 rows", "i32 length", "i32 heads", "i32 queries"]
    return ", ".join(result + [f"i64 {name}" for name in STRIDES * program.masked])


def _locate_row(text: Text, tiling: Tiling, masked: bool) -> None:
    text.line(
        f"const i32 lane = THREAD % {tiling.group};",
        f"const i64 asked = GROUP * {tiling.rows} + THREAD / {tiling.group};",
        "const bool live = asked < rows;",
        # Threads without a row of their own go along with the last one, so that all meet at each barrier.
        "const i64 row = live ? asked : rows - 1;",
        "const i64 first = row * length;",
        "const i64 query = row % queries;",
        "const i64 head = row / queries % heads;",
        "const i64 outer = row / queries / heads;",
    )
    if masked:
        text.line("const i64 mask = outer * valid_outer + head * valid_head + query * valid_query;")


def _write_passes(row: RowContext, program: Program) -> None:
    scalars, tiling, text = Emission.of_row(row.kernel, program), row.tiling, row.kernel.text
    row.keep_scores()
    live = "live" if tiling.rows > 1 else ""
    passes, sums = phases(program, stores=tiling.holds), list[ExponentialSum]()
    if not tiling.chunks and tiling.group > 1:
        passes, sums = merge_passes(passes)
    for phase in passes:
        write_loop(row, phase, scalars, live, sums)
        sums = []
    numbers = [out for out in row.outputs.values() if out.node.kind is Kind.SCALAR]
    if numbers:
        with text.block(f"if ({live + ' && ' if live else ''}lane == 0)"):
            for out in numbers:
                text.line(f"output_{out.name}[row] = {as_stored(out, f'({out.value(scalars)})')};")
