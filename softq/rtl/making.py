"""A core of one method: which program it computes, and everything that belongs to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from softq._version import __version__
from softq.codegen.verilog.core import Core, write_core
from softq.codegen.verilog.plan import CorePlan, Settings
from softq.codegen.verilog.testbench import Stream, testbench
from softq.errors import UsageError
from softq.methods import METHODS, Method, Options
from softq.rowprog import DType, Kind, Program, to_text
from softq.rowprog.program import Node, param_of, substitute
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rtl.beats import Beats, beats
from softq.vectors.making import configured, scores_type
from softq.vectors.rows import choose

SCORES = (DType.I8, DType.U8)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_PATIENCE = 64
"""Clocks without a move, for each element of the longest row, after which a core counts as stuck."""


@dataclass(frozen=True)
class MadeCore:
    """A core and what belongs to it.

    Attributes:
        core: The core.
        beats: Rows for its testbench, and what they come to.
        facts: What it is, as plain values.
    """

    core: Core
    beats: Beats
    facts: Mapping[str, object]

    @property
    def testbench(self) -> str:
        """The testbench."""
        plan = self.core.plan
        found = self.beats
        numbers = [Stream("n_axis", "numbers", len(found.numbers))] if found.numbers else []
        return testbench(
            self.core.name,
            plan.ports,
            [Stream("s_axis", "scores", len(found.scores))],
            [Stream("m_axis", "results", len(found.results)), *numbers],
            patience=_PATIENCE * plan.settings.length + 10_000,
            reset=plan.settings.reset,
        )


def rtl(
    method: str,
    settings: Mapping[str, object] | None = None,
    *,
    fitted: Mapping[str, float] | None = None,
    scores: str = "i8",
    masked: bool = False,
    outputs: Sequence[str] = (),
    length: int = 1024,
    lanes: int = 1,
    reset: bool = True,
    name: str = "",
    rows: int = 10,
    seed: int = 0,
) -> MadeCore:
    """Return a core that computes a method over a stream of rows; the same arguments give the same one.

    Args:
        method: Name of the method.
        settings: Its options by name, as text or numbers; the others keep their defaults.
        fitted: Numbers for the options that calibration would fit; they become constants of the core.
        scores: Type of the scores: i8 or u8; NumPy's names (int8) are taken, too.
        masked: Whether a bit beside each score says that it takes part.
        outputs: What the core gives, by the names of the program's outputs: one per element and any per row. By default
            the codes, or else the first per element, and all per row.
        length: Elements of the longest row.
        lanes: Elements of a beat: 1, 2, 4 or 8.
        reset: Whether there is a synchronous reset.
        name: The module's name; by default the method's.
        rows: Random rows of each length in the testbench; the special ones come on top.
        seed: Seed of the random rows.

    Raises:
        UsageError: an argument is wrong, or the method does not take it.
        RefusalError: the program has a value that a core cannot compute; the message names it.
        ProofError: the length is above the longest row for which nothing overflows.
    """
    chosen = METHODS.get(method)
    kind = scores_type(scores, SCORES)
    options, params, numbers = configured(chosen, settings or {}, fitted or {})
    return make_core(
        chosen,
        options,
        _fix(chosen.program(options, scores=kind, masked=masked), params),
        Settings(length, lanes, reset),
        name=name or chosen.name.replace("-", "_"),
        fitted=numbers,
        outputs=outputs,
        rows=rows,
        seed=seed,
    )


def make_core(
    method: Method,
    options: Options,
    program: Program,
    settings: Settings,
    *,
    name: str,
    fitted: Mapping[str, float] | None = None,
    outputs: Sequence[str] = (),
    rows: int = 10,
    seed: int = 0,
) -> MadeCore:
    """Return a core of a program; the same arguments give the same one.

    Args:
        method: The method.
        options: Its options.
        program: Its program with these options, for scores of 8 bits, without run-time parameters.
        settings: What the core is built for.
        name: The module's name.
        fitted: Numbers that are constants of the program, by their options.
        outputs: As for `rtl`.
        rows: As for `rtl`.
        seed: As for `rtl`.

    Raises:
        UsageError: an argument is wrong.
        RefusalError: the program has a value that a core cannot compute; the message names it.
        ProofError: the length is above the longest row for which nothing overflows.
    """
    if rows < 0:
        raise UsageError(f"rows is {rows}; allowed is 0 and more")
    if not _NAME.fullmatch(name):
        raise UsageError(f"name is {name!r}; a module's is at most 63 small letters, digits and _, a letter first")
    plan = CorePlan(_with_outputs(tabulate_or_keep(program)[0], outputs), settings)
    core = write_core(plan, name, [f"{name}: {method.summary}", f"softq {__version__}.", ""])
    lanes, longest = settings.lanes, settings.length
    lengths = sorted({n for n in (1, 2, 3, lanes, lanes + 1, 16, 61, 197, longest) if n <= longest})
    found = beats(plan, choose(plan.source, {}, lengths, rows, seed))
    facts = {
        "schema": 1,
        "softq": __version__,
        "module": name,
        "method": method.name,
        "source": method.source,
        "options": options.to_json(),
        "fitted": dict(fitted or {}),
        "scores": program.scores.value,
        "masked": program.masked,
        "length": longest,
        "lanes": lanes,
        "reset": settings.reset,
        "program": to_text(plan.source),
        **core.describe(),
    }
    return MadeCore(core, found, facts)


def _fix(program: Program, params: Mapping[str, ArrayLike]) -> Program:
    """Return the program with its run-time parameters as constants."""
    known: dict[Node, Node] = {}
    for node in program.nodes():
        if node.op == "param":
            values = np.asarray(params[param_of(node).name], node.dtype.numpy)
            if node.kind is Kind.TABLE:
                known[node] = Node("table", (), node.dtype, node.kind, {"values": tuple(values.ravel().tolist())})
            else:
                known[node] = Node("const", (), node.dtype, node.kind, {"value": values.item()})
    return replace(program, outputs=substitute(program.outputs, known, assumptions=True)) if known else program


def _with_outputs(program: Program, names: Sequence[str]) -> Program:
    """Return the program with some of its outputs."""
    rows = [name for name, node in program.outputs.items() if node.kind is Kind.ROW]
    wanted = list(names)
    if not wanted:
        first = "codes" if "codes" in rows else rows[0]
        wanted = [first, *(name for name in program.outputs if name not in rows)]
    for name in wanted:
        if name not in program.outputs:
            raise UsageError(f"program {program.name} has no output {name!r}; it gives {', '.join(program.outputs)}")
    return replace(program, outputs={name: program.outputs[name] for name in wanted})
