"""A method as a function in C++ for high-level synthesis, and everything that belongs to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from softq._version import __version__
from softq.codegen.hls.function import Argument, Function, write_function
from softq.codegen.verilog.plan import Settings
from softq.methods import METHODS
from softq.rowprog import Program, run, to_text
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rtl.arguments import (
    SCORES,
    check_arguments,
    describe_method,
    lengths_for,
    select_outputs,
)
from softq.rtl.writing import kernel_folder, write_into
from softq.vectors.making import configured, scores_type
from softq.vectors.rows import Row, choose

_TESTBENCH = """\
// Reads {name}_rows.txt: of each row its length, what goes in, and what is to come out. Prints PASS or FAIL.
#include <cstdio>

#include "{name}.h"

{arrays}
int main() {{
    std::FILE *file = std::fopen("{name}_rows.txt", "r");
    long long rows = 0, wrong = 0, length, number;
    while (file && std::fscanf(file, "%lld", &length) == 1) {{
{reads}        {name}::run({arguments});
{checks}        ++rows;
    }}
    const bool passed = rows == {rows} && wrong == 0;
    std::printf("%s: %lld rows, %lld wrong\\n", passed ? "PASS" : "FAIL", rows, wrong);
    return passed ? 0 : 1;
}}
"""


@dataclass(frozen=True)
class MadeFunction:
    """A function and what belongs to it.

    Attributes:
        function: The function.
        program: What it computes.
        rows: Rows for its testbench.
        facts: What it is, as plain values.
        constants: The numbers that are the same for every row, by name.
    """

    function: Function
    program: Program
    rows: tuple[Row, ...]
    facts: Mapping[str, object]
    constants: Mapping[str, int]

    @property
    def testbench(self) -> str:
        """The testbench, in C++."""
        arguments = self.function.arguments
        return _TESTBENCH.format(
            name=self.function.name,
            rows=len(self.rows),
            arrays="".join(f"static {each.type} {each.name}{self._size(each)};\n" for each in arguments),
            reads="".join(_read(each) for each in arguments if not each.output),
            checks="".join(_check(each) for each in arguments if each.output),
            arguments=", ".join(["int(length)", *(each.name for each in arguments)]),
        )

    @property
    def golden_rows(self) -> str:
        """The rows as text: a line of integers for each."""
        return "".join(" ".join(map(str, self._numbers(row))) + "\n" for row in self.rows)

    def _size(self, argument: Argument) -> str:
        return f"[{self.facts['length']}]" if argument.row else ""

    def _numbers(self, row: Row) -> Iterator[int]:
        found = run(self.program, row.scores, valid=row.valid if self.program.masked else None)
        given = {"scores": row.scores, "valid": row.valid, **found}
        yield row.scores.size
        for each in self.function.arguments:
            yield from (int(value) for value in np.ravel(given[each.name]))


def hls(
    method: str,
    settings: Mapping[str, object] | None = None,
    *,
    fitted: Mapping[str, float] | None = None,
    scores: str = "i8",
    masked: bool = False,
    outputs: Sequence[str] = (),
    constants: bool = True,
    length: int = 1024,
    name: str = "",
    rows: int = 10,
    seed: int = 0,
) -> MadeFunction:
    """Return a function in C++ that computes a method over one row; the same arguments give the same one.

    Its types are those of `ap_int.h`, which Vitis HLS has, and hls4ml brings for other compilers.

    Args:
        method: Name of the method.
        settings: Its options by name, as text or numbers; the others keep their defaults.
        fitted: Numbers for the options that calibration would fit; they become constants.
        scores: Type of the scores: i8 or u8; NumPy's names (int8) are taken, too.
        masked: Whether a bit for each score says that it takes part.
        outputs: What it gives, by the names of the program's outputs; by default as for `rtl`.
        constants: Whether it gives numbers that are the same for every row; their values are in the description.
        length: Elements of the longest row.
        name: Name of its namespace and header; by default the method's.
        rows: Random rows of each length in the testbench; the special ones come on top.
        seed: Seed of the random rows.

    Raises:
        UsageError: an argument is wrong, or the method does not take it.
        RefusalError: the program has a value that integers cannot compute; the message names it.
        ProofError: the length is above the longest row for which nothing overflows.
    """
    chosen = METHODS.open(method)
    kind = scores_type(scores, SCORES)
    title = name or chosen.name.replace("-", "_")
    check_arguments(title, rows, ["cpp"])
    built = Settings(length)
    options, _, numbers = configured(chosen, settings or {}, fitted or {}, kind)
    program = chosen.program(options, scores=kind, masked=masked)
    program = select_outputs(tabulate_or_keep(program)[0], outputs)
    head = [f"{title}: {chosen.summary}", f"softq {__version__}.", ""]
    function = write_function(program, title, length, head)
    scalars = {each.name: each.interval for each in function.arguments if each.output and not each.row}
    known = {output: int(value.low) for output, value in scalars.items() if value.low == value.high}
    if known and not constants:
        varying = {output: node for output, node in program.outputs.items() if output not in known}
        program = replace(program, outputs=varying)
        function = write_function(program, title, length, head)
    facts = {
        **describe_method(chosen, options, program, title, numbers),
        "length": length,
        "constants": known,
        "program": to_text(program),
        "arguments": [
            {
                "name": each.name,
                "type": each.type,
                "output": each.output,
                "row": each.row,
                "interval": [int(each.interval.low), int(each.interval.high)],
            }
            for each in function.arguments
        ],
    }
    return MadeFunction(function, program, tuple(choose(program, {}, lengths_for(built), rows, seed)), facts, known)


def write_hls(made: MadeFunction, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the files of a function, all or none, and return their names.

    NAME.h is the function; NAME_tb.cpp its testbench, which reads NAME_rows.txt; NAME.json is what the function is.

    Args:
        made: The function.
        folder: Where they go; it is made if it is not there, and holds nothing but files of this kind.

    Raises:
        UsageError: there is a file of that name, or a folder with other things.
        InputError: the folder cannot be made or written, or the disk is full.
    """
    path, name = kernel_folder(folder), made.function.name
    contents = {
        f"{name}.h": made.function.text,
        f"{name}_tb.cpp": made.testbench,
        f"{name}_rows.txt": made.golden_rows,
        f"{name}.json": json.dumps(dict(made.facts), indent=1, allow_nan=False) + "\n",
    }
    return write_into(path, {file: text.encode() for file, text in contents.items()})


def _read(argument: Argument) -> str:
    return (
        "        for (int at = 0; at < length; ++at) {\n"
        f'            if (std::fscanf(file, "%lld", &number) == 1) {argument.name}[at] = number;\n'
        "        }\n"
    )


def _check(argument: Argument) -> str:
    name, size = (f"{argument.name}[at]", "length") if argument.row else (argument.name, "1")
    return (
        f"        for (int at = 0; at < {size}; ++at) {{\n"
        f'            wrong += std::fscanf(file, "%lld", &number) != 1 || {name} != number;\n'
        "        }\n"
    )
