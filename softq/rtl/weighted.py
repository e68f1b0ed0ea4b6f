"""A core of a method's weights and their product with V, and everything that belongs to it.

Of a row of scores, with the weights w and the normalizer n that the method's program makes of them, and V, a row of
8-bit integers for each score, it computes

    sums      S_j = sum over i of w_i V_ij
    averages  floor(2^f S_j / max(n, 1) + 1/2), n the sum of the weights, f bits behind the point

S and n are the integers of the kernels' attention of integers, which divides them in float32. An average is an integer
instead, the same on every device: the nearest one to the quotient in units of 2^-f, and 0 where no weight is above 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from softq._version import __version__
from softq.codegen.verilog.plan import CorePlan, Settings
from softq.codegen.verilog.testbench import Stream, testbench
from softq.codegen.verilog.weighted_plan import AVERAGES, NORMALIZER, ValueSettings, WeightedPlan
from softq.codegen.verilog.weighted_sum import WeightedCore, write_weighted_sum
from softq.methods import METHODS
from softq.rowprog import Program, to_text
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rtl.arguments import (
    SCORES,
    check_arguments,
    describe_method,
    describe_settings,
    lengths_for,
    patience,
)
from softq.rtl.beats import pack_scores, run_rows
from softq.rtl.weights import find_weights
from softq.vectors.making import configured, scores_type
from softq.vectors.rows import Row, choose

Integers = NDArray[np.int64]


def sums(weights: NDArray[np.generic], values: NDArray[np.generic]) -> Integers:
    """Return the sums of a row, int64 [d], of weights [N] and V [N, d]."""
    return np.asarray(weights.astype(np.int64) @ values.astype(np.int64))


def averages(found: Integers, normalizer: int, fraction: int) -> Integers:
    """Return sums divided by their normalizer, int64, in units of 2^-fraction."""
    divisor = max(normalizer, 1)
    return np.asarray(((found << (fraction + 1)) + divisor) // (2 * divisor))


@dataclass
class ValueBeats:
    """The words of the streams, from the lowest bits on: data, then bits of the lanes, then the end of the row.

    Attributes:
        scores: Scores that go in.
        values: V that goes in.
        results: What comes back.
        numbers: Normalizers that come back.
    """

    scores: list[int] = field(default_factory=list[int])
    values: list[int] = field(default_factory=list[int])
    results: list[int] = field(default_factory=list[int])
    numbers: list[int] = field(default_factory=list[int])

    @property
    def words(self) -> dict[str, list[int]]:
        """The words of the files that the testbench reads, by what their names end with."""
        return vars(self)


@dataclass(frozen=True)
class MadeWeightedCore:
    """A core with V and what belongs to it.

    Attributes:
        core: The core.
        beats: Rows for its testbench, and what they come to.
        facts: What it is, as plain values.
    """

    core: WeightedCore
    beats: ValueBeats
    facts: Mapping[str, object]

    @property
    def testbench(self) -> str:
        """The testbench."""
        plan, found = self.core.plan, self.beats
        taken = [Stream("o_axis", "results", len(found.results))]
        if found.numbers:
            taken.append(Stream("n_axis", "numbers", len(found.numbers)))
        return testbench(
            self.core.name,
            plan.ports,
            [Stream("s_axis", "scores", len(found.scores)), Stream("v_axis", "values", len(found.values))],
            taken,
            patience=patience(int(self.core.interval(self.core.longest))),
            reset=plan.rows.settings.reset,
            accesses=0,
        )


def rtl_with_values(
    method: str,
    values: ValueSettings,
    settings: Mapping[str, object] | None = None,
    *,
    fitted: Mapping[str, float] | None = None,
    scores: str = "i8",
    masked: bool = False,
    length: int = 1024,
    reset: bool = True,
    name: str = "",
    rows: int = 10,
    seed: int = 0,
) -> MadeWeightedCore:
    """Return a core that computes a method's weights and their product with V; the same arguments give the same one.

    Args:
        method: Name of the method.
        values: What the product with V is built for.
        settings: As for `rtl`, and so are those that follow.
        fitted: Numbers for the options that calibration would fit; they become constants of the core.
        scores: Type of the scores.
        masked: Whether a bit beside each score says that it takes part.
        length: Elements of the longest row.
        reset: Whether there is a synchronous reset.
        name: The module's name; by default the method's, with `_values` behind it.
        rows: Random rows of each length in the testbench; the special ones come on top.
        seed: Seed of the random rows, and of V.

    Raises:
        UsageError: an argument is wrong, or the method does not take it.
        RefusalError: the program has a value that a core cannot compute, or gives no weights; the message says which.
        ProofError: the length is above the longest row for which nothing overflows.
    """
    chosen = METHODS.open(method)
    kind = scores_type(scores, SCORES)
    options, _, numbers = configured(chosen, settings or {}, fitted or {}, kind)
    program = chosen.program(options, scores=kind, masked=masked)
    name, built = name or f"{chosen.name.replace('-', '_')}_values", Settings(length, 1, reset)
    check_arguments(name, rows)
    needs_normalizer = AVERAGES in values.outputs or NORMALIZER in values.outputs
    found = find_weights(tabulate_or_keep(program)[0], built, needs_normalizer)
    plan = WeightedPlan(CorePlan(found.program, built), found.entries, found.is_sum, values)
    core = write_weighted_sum(plan, name, [f"{name}: {chosen.summary}", f"softq {__version__}.", ""])
    facts = {
        **describe_method(chosen, options, program, name, numbers),
        **describe_settings(built),
        "value_width": values.width,
        "value_lanes": values.lanes,
        "multipliers": values.multipliers,
        "weights": None if found.entries is None else list(found.entries),
        "program": to_text(found.program),
        **core.describe(),
    }
    beats = _make_beats(plan, program, choose(plan.rows.source, {}, lengths_for(built), rows, seed), seed)
    return MadeWeightedCore(core, beats, facts)


def _make_beats(plan: WeightedPlan, program: Program, rows: Sequence[Row], seed: int) -> ValueBeats:
    """Return the beats of rows with V, and what they come to by the weights of the method's own program."""
    found, settings = ValueBeats(), plan.settings
    weights = next(name for name in ("weights", "probabilities") if name in program.outputs)
    heads = [0] * len(rows)
    for at, (row, given) in enumerate(zip(rows, run_rows(program, rows, heads, {}), strict=True)):
        v = _choose_values((row.scores.size, settings.width), at, seed)
        found.scores += pack_scores(plan.rows, row, 0)
        bytes_of = v.view(np.uint8).reshape(-1, settings.lanes)
        found.values += [int.from_bytes(beat.tobytes(), "little") for beat in bytes_of]
        result = sums(given[weights], v)
        normalizer = int(given["normalizer"].item()) if plan.normalizer is not None else 0
        if plan.divides:
            result = averages(result, normalizer, settings.fraction)
        ends = [at + 1 == settings.width for at in range(settings.width)]
        mask = (1 << plan.padded) - 1
        found.results += [int(x) & mask | end << plan.padded for x, end in zip(result.tolist(), ends, strict=True)]
        if plan.gives_normalizer:
            found.numbers.append(normalizer)
    return found


def _choose_values(shape: tuple[int, int], number: int, seed: int) -> NDArray[np.int8]:
    """Return V of a row: random, or at its ends, where sums are greatest."""
    kinds = {0: -128, 1: 127}
    if (number % 8) in kinds:
        return np.full(shape, kinds[number % 8], np.int8)
    rng = np.random.default_rng((seed, number))
    if number % 8 == 2:
        return np.where(rng.random(shape) < 0.5, np.int8(-128), np.int8(127))
    return rng.integers(-128, 128, shape, np.int8)
