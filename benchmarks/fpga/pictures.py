"""Draws the pictures of docs/fpga.md from what the generator knows and from a simulation.

    python -m benchmarks.fpga.pictures

Two cores with all that stands in their passes and between them, and the streams of one of them, as Icarus Verilog
simulates it. The same generator draws the same pictures.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fpga.cores import WORKS
from benchmarks.fpga.drawing import Box, Drawing
from benchmarks.fpga.simulation import DUMP, samples_of
from benchmarks.fpga.tools import call, missing
from softq.codegen.verilog.core import Core
from softq.codegen.verilog.description import name_value
from softq.codegen.verilog.plan import CorePlan, Field
from softq.rowprog.program import Node
from softq.rtl import MadeCore, write_rtl
from softq.rtl.beats import beats
from softq.vectors.rows import Row

FOLDER = Path(__file__).parents[2] / "docs"
PIPELINES: Mapping[str, str] = {"fpga-deferred-log.svg": "deferred-log", "fpga-ita.svg": "ita"}
"""Pictures of a core, and the core that is measured under this name."""

STREAMS = "fpga-streams.svg"
_ROWS = ((3, -20, 40, 12, 40), (-7, 25, 9))
"""Scores of the rows that are simulated."""

_STALLS = ("+valid=75", "+ready=70", "+seed=4")
_CLOCK = 26
_LANE = 22


def _made(name: str) -> MadeCore:
    return next(work for work in WORKS if work.name == name).make()


def draw_pipeline(core: Core) -> str:
    """Return a picture of a core: its passes with their values, the memories between them, and the numbers of a row."""
    plan, lanes = core.plan, core.plan.settings.lanes
    picture = Drawing(f"{core.name}: passes, memories and numbers of a row")
    at = picture.arrow_in("s_axis", f"{lanes * plan.score_field.width} bits")
    passes: list[Box] = []
    for number, clocks in enumerate(core.clocks):
        if number:
            kept = _fields(plan, plan.kept(number), f"{lanes} × " if lanes > 1 else "")
            at = picture.box(at, "memory", [*kept, f"{1 << plan.address_bits:,} words"], memory=True)
        phase = plan.phases[number]
        computed = [_tell(plan, node) for node in (*phase.rows, *phase.reductions)]
        stages = (clocks.results if plan.is_last(number) else clocks.joined) + 1
        at = picture.box(at, f"pass {number}", [*computed, f"{stages} {'stage' if stages == 1 else 'stages'}"])
        passes.append(at)
    at = picture.box(at, "results", [f"{plan.row_name}: {lanes} × {plan.field(plan.row).width} bits"], memory=True)
    picture.arrow_out(at, "m_axis", f"{plan.result_bytes * 8} bits")
    for number, (above, clocks) in enumerate(zip(passes, core.clocks, strict=True)):
        if plan.has_numbers(number):
            told = [_tell(plan, n) for n in plan.phases[number].scalars if plan.simplified.constant(n) is None]
            told += [f"{clocks.numbers} clocks"] if clocks.numbers else []
            told += _fields(plan, plan.carried(number + 1), "kept: ")
            below = picture.box_below(above, "numbers of a row", told)
            if plan.is_last(number):
                picture.arrow_out(below, "n_axis", f"{sum(plan.field(n).padded for n in plan.numbers.values())} bits")
            else:
                picture.arrow_up(below, passes[number + 1])
    return picture.text()


def _tell(plan: CorePlan, node: Node) -> str:
    """Return what a value is: its name, how it is computed, and its bits."""
    return f"{name_value(plan, node)} {node.op}, {plan.field(node).width} bits"


def _fields(plan: CorePlan, fields: Sequence[Field], before: str = "") -> list[str]:
    return [f"{before}{name_value(plan, field.node)}, {field.width} bits" for field in fields]


def simulate_streams(made: MadeCore) -> dict[str, list[int | None]]:
    """Return what the ports of a core are in each clock of a simulation of `_ROWS`; None where a bit is unknown."""
    rows = [Row("drawn", np.array(row, np.int8), np.ones(len(row), np.bool_)) for row in _ROWS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rtl(replace(made, beats=beats(made.core.plan, rows)), folder)
        top = f"{made.core.name}_tb"
        (folder / "dump.v").write_text(DUMP.format(core=f"{top}.core"))
        sources = [f"{made.core.name}.v", f"{top}.v", "dump.v"]
        call("iverilog", ["-g2001", "-o", "simulation", "-s", top, "-s", "dump", *sources], folder)
        said = call("vvp", ["simulation", *_STALLS], folder)
        if "PASS" not in said:
            raise RuntimeError(said)
        with (folder / "changes.vcd").open(encoding="utf-8") as lines:
            return samples_of(lines, "aclk", {port.name for port in made.core.plan.ports})


def draw_streams(made: MadeCore, samples: Mapping[str, Sequence[int | None]]) -> str:
    """Return a timing diagram of the streams, from the first beat that is offered to the last one that is taken."""
    taken = [at for side in "smn" for at in _taken(samples, side)]
    first, last = min(taken) - 1, max(taken) + 2
    picture = Drawing(
        f"{made.core.name}: its streams for rows of {' and '.join(str(len(row)) for row in _ROWS)} elements"
    )
    picture.waves("aclk", [None] * (last - first), _CLOCK, 0, is_clock=True)
    lane = 1
    for side in "smn":
        bits = [port.name for port in made.core.plan.ports if port.name.startswith(f"{side}_axis")]
        valid = samples[f"{side}_axis_tvalid"][first:last]
        beats_of = set(_taken(samples, side))
        for name in sorted(bits, key=lambda name: name.endswith("tdata")):
            values = samples[name][first:last]
            if name.endswith(("tvalid", "tready")):
                picture.waves(name, values, _CLOCK, lane * _LANE)
            else:
                known = [value if there else None for value, there in zip(values, valid, strict=True)]
                signed = name == "s_axis_tdata" and made.core.plan.score_field.signed
                shown = [_signed(value) if signed else value for value in known]
                marks = [at + first in beats_of for at in range(len(shown))]
                picture.words(name, shown, marks, _CLOCK, lane * _LANE)
            lane += 1
        lane += 0.5
    return picture.text()


def _signed(value: int | None) -> int | None:
    return None if value is None else value - 256 * (value > 127)


def _taken(samples: Mapping[str, Sequence[int | None]], side: str) -> Iterator[int]:
    both = zip(samples[f"{side}_axis_tvalid"], samples[f"{side}_axis_tready"], strict=True)
    return (at for at, pair in enumerate(both) if pair == (1, 1))


def pipelines() -> dict[str, str]:
    """Return the pictures of cores by the names of their files."""
    return {file: draw_pipeline(_made(name).core) for file, name in PIPELINES.items()}


def streams() -> str:
    """Return the timing diagram."""
    made = _made("deferred-log")
    return draw_streams(made, simulate_streams(made))


def main() -> int:
    """Write all pictures."""
    if absent := missing("iverilog", "vvp"):
        print(f"needs {absent}", file=sys.stderr)
        return 2
    for file, text in {**pipelines(), STREAMS: streams()}.items():
        (FOLDER / file).write_text(text, encoding="utf-8")
        print(f"wrote {FOLDER.name}/{file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
