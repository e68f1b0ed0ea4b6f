"""A core of one method: which program it computes, and everything that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from softq._version import __version__
from softq.codegen.verilog.core import Core, write_core
from softq.codegen.verilog.plan import CorePlan, Settings
from softq.codegen.verilog.testbench import Stream, testbench
from softq.errors import UsageError
from softq.methods import METHODS, Method, Options
from softq.rowprog import Program, to_text
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rtl.arguments import (
    SCORES,
    check_arguments,
    describe_method,
    describe_settings,
    lengths_for,
    patience,
    select_outputs,
)
from softq.rtl.beats import Beats
from softq.rtl.opening import open_tables
from softq.rtl.rehearsal import rehearse
from softq.vectors.making import configured, scores_type
from softq.vectors.rows import Row, choose
from softq.wording import counted


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
            patience=patience(plan.settings.length),
            reset=plan.settings.reset,
            accesses=len(found.accesses),
        )


def rtl(
    method: str,
    settings: Mapping[str, object] | None = None,
    *,
    fitted: Mapping[str, float] | None = None,
    per_head: Mapping[str, Sequence[object]] | None = None,
    scores: str = "i8",
    masked: bool = False,
    outputs: Sequence[str] = (),
    length: int = 1024,
    lanes: int = 1,
    reset: bool = True,
    registers: bool = False,
    heads: int = 1,
    packed: bool = False,
    cut: bool = False,
    products: str = "parallel",
    constants: bool = True,
    name: str = "",
    rows: int = 10,
    seed: int = 0,
) -> MadeCore:
    """Return a core that computes a method over a stream of rows; the same arguments give the same one.

    Args:
        method: Name of the method.
        settings: Its options by name, as text or numbers; the others keep their defaults.
        fitted: Numbers for the options that calibration would fit; they become constants of the core.
        per_head: Options that are not the same in all heads: a value for each.
        scores: Type of the scores: i8 or u8; NumPy's names (int8) are taken, too.
        masked: Whether a bit beside each score says that it takes part.
        outputs: What the core gives, by the names of the program's outputs: one per element and any per row. By default
            the codes, or else the first per element, and all per row.
        length: Elements of the longest row.
        lanes: Elements of a beat: 1, 2, 4 or 8.
        reset: Whether there is a synchronous reset.
        registers: Whether its tables are written and read back through a register port.
        heads: Heads with tables of their own behind this port; a row comes with the number of its head.
        packed: Whether results of at most 4 bits share bytes, in fields of 1, 2 or 4 bits.
        cut: Whether a row that is too long is cut and marked; without, the core waits for ever where one comes.
        products: `parallel`, where each product of elements has multipliers, or `serial`, where all products of the
            core share one unit, and an element takes as many clocks as its products.
        constants: Whether a number that is the same for every row is in the stream of numbers; its value is in the
            description either way.
        name: The module's name; by default the method's.
        rows: Random rows of each length in the testbench; the special ones come on top.
        seed: Seed of the random rows.

    Raises:
        UsageError: an argument is wrong, or the method does not take it.
        RefusalError: the program has a value that a core cannot compute; the message names it.
        ProofError: the length is above the longest row for which nothing overflows.
    """
    chosen = METHODS.open(method)
    kind = scores_type(scores, SCORES)
    built = Settings(length, lanes, reset, heads, packed, cut, products, constants)
    of_heads = options_of_heads(settings or {}, per_head or {}, heads)
    each = [configured(chosen, given, fitted or {}, kind) for given in of_heads]
    first, *others = (chosen.program(options, scores=kind, masked=masked) for options, _, _ in each)
    options, _, numbers = each[0]
    made = make_core(
        chosen,
        options,
        first,
        built,
        name=name or chosen.name.replace("-", "_"),
        fitted=numbers,
        outputs=outputs,
        registers=registers,
        others=others,
        rows=rows,
        seed=seed,
    )
    given = {name: list(values) for name, values in (per_head or {}).items()}
    return replace(made, facts={**made.facts, "per_head": given}) if given else made


def make_core(
    method: Method,
    options: Options,
    program: Program,
    settings: Settings,
    *,
    name: str,
    fitted: Mapping[str, float | tuple[float, ...]] | None = None,
    outputs: Sequence[str] = (),
    registers: bool = False,
    others: Sequence[Program] = (),
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
        fitted: Numbers that are constants of the program, by their options; one for all heads, or one for each.
        outputs: As for `rtl`.
        registers: As for `rtl`.
        others: The programs of the heads behind the first.
        rows: As for `rtl`.
        seed: As for `rtl`.

    Raises:
        UsageError: an argument is wrong.
        RefusalError: the program has a value that a core cannot compute; the message names it.
        ProofError: the length is above the longest row for which nothing overflows.
    """
    check_arguments(name, rows)
    plan = plan_core([tabulate_or_keep(each)[0] for each in (program, *others)], outputs, settings, registers)
    core = write_core(plan, name, [f"{name}: {method.summary}", f"softq {__version__}.", ""])
    chosen = choose(plan.source, {}, lengths_for(settings), rows, seed)
    found = rehearse(plan, _with_long_rows(plan, chosen, seed) if settings.cut else chosen, seed)
    facts = {
        **describe_method(method, options, program, name, fitted or {}),
        **describe_settings(settings),
        "heads": settings.heads,
        "program": to_text(plan.source),
        **core.describe(),
    }
    return MadeCore(core, found, facts)


def _with_long_rows(plan: CorePlan, rows: Sequence[Row], seed: int) -> list[Row]:
    """Return rows with some among them that are too long: by an element, and by more than a row."""
    most = plan.settings.elements
    one, many = (choose(plan.source, {}, [length], 1, seed)[0] for length in (most + 1, 2 * most + 3))
    return [one, rows[0], many, *rows, one]


def options_of_heads(
    settings: Mapping[str, object], per_head: Mapping[str, Sequence[object]], heads: int
) -> list[Mapping[str, object]]:
    """Return the options of each head."""
    for name, values in per_head.items():
        if len(values) != heads:
            raise UsageError(
                f"{name} has {counted(len(values), 'value')} for {counted(heads, 'head')}; expected one for each"
            )
        if name in settings:
            raise UsageError(f"{name} is given for all heads and for each")
    return [{**settings, **{name: values[at] for name, values in per_head.items()}} for at in range(heads)]


def plan_core(programs: Sequence[Program], outputs: Sequence[str], settings: Settings, registers: bool) -> CorePlan:
    """Return the core of a program, which is given for each head."""
    chosen = [select_outputs(program, outputs) for program in programs]
    if not registers:
        if len(programs) > 1:
            raise UsageError(f"heads is {len(programs)} without registers; a core with constants is of one head")
        return CorePlan(chosen[0], settings)
    opened, tables = open_tables(chosen, programs[0].outputs, settings.elements)
    return CorePlan(opened, settings, tables)
