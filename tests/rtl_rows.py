"""Long simulations of cores: every maximum and score, every length, and what is chosen to break kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from softq.methods import METHODS
from softq.rowprog import DType, Program
from softq.rtl import MadeCore, rtl, write_rtl
from softq.rtl.rehearsal import rehearse
from softq.vectors.rows import Row, choose
from tests.simulators import compile_core, simulate

STALLS = ((100, 100), (70, 60), (30, 100), (100, 20))
"""Percentages of clocks in which scores are offered, and in which results are taken."""

INTEGER = [name for name, method in METHODS.entries().items() if method.drop_in and method.integer_scores]
REFUSED = {"qlinear": "is a float"}
"""Methods that are no core, and what the refusal says."""

WITH_LANES = ("deferred-log", "e2softmax", "index-softmax", "ita")
"""Methods that are simulated with more than one lane."""

_SERIAL = (
    ("tflite-int8", "i8", False, "int8"),
    ("tflite-int8", "u8", True, "int16"),
    ("softermax", "u8", True, "uint8"),
    ("index-softmax", "i8", False, "uint8"),
)
"""Methods, scores, masks and outputs that are simulated with serial products: beside them numbers of a row with and
without products, and a division of each element."""

_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 61, 128, 197, 512, 1024)
_SPREADS = (1, 8, 32, 128)


def settings_of(method: str) -> Mapping[str, object]:
    """Return a step of the scores, where a method asks for one."""
    return {"step": 0.06} if "step" in METHODS.get(method).options.specs() else {}


@dataclass(frozen=True)
class Configuration:
    """A core that is simulated.

    Attributes:
        method: What it computes.
        scores: Type of the scores.
        masked: Whether there is a mask.
        lanes: Elements of a beat.
        output: What it gives, of a method that has a choice; by default weights and their sum.
        products: How products of elements are computed.
    """

    method: str
    scores: str = "i8"
    masked: bool = False
    lanes: int = 1
    output: str = ""
    products: str = "parallel"

    def __str__(self) -> str:
        """Return it as part of a test's name."""
        parts = [self.method, self.output, self.scores, "masked" if self.masked else "", str(self.lanes)]
        parts += ["serial"] if self.products == "serial" else []
        return "-".join(filter(None, parts))

    def make(self) -> MadeCore:
        """Return the core, for rows of up to 1,024 elements."""
        settings = {**settings_of(self.method), **({"output": self.output} if self.output else {})}
        return rtl(
            self.method,
            settings,
            scores=self.scores,
            masked=self.masked,
            lanes=self.lanes,
            products=self.products,
            rows=0,
        )


def configurations() -> list[Configuration]:
    """Return all cores of a long simulation."""
    methods = [method for method in INTEGER if method not in REFUSED]
    given = [(method, output) for method in methods for output in ("", *_probabilities(method))]
    kinds = (("i8", False), ("u8", True))
    found = [Configuration(method, *kind, output=output) for method, output in given for kind in kinds]
    found += [Configuration(method, lanes=lanes) for method in WITH_LANES for lanes in (2, 4, 8)]
    found += [Configuration(method, masked=True, lanes=4) for method in WITH_LANES]
    found += [Configuration(m, scores, masked, output=o, products="serial") for m, scores, masked, o in _SERIAL]
    return found + [Configuration(m, lanes=4, output=o) for m, o in given if o and m in WITH_LANES]


def _probabilities(method: str) -> Sequence[str]:
    """Return the outputs of a method that are probabilities, divided as published."""
    output = METHODS.get(method).options.specs().get("output")
    return [word for word in output.words if word != "pair"] if output else []


@dataclass(frozen=True)
class Simulated:
    """What a simulation was.

    Attributes:
        rows: Rows in it, of all runs together.
        elements: Elements in it.
        wrong: Beats and numbers that are not what the interpreter gives.
        clocks: Clocks that it took.
    """

    rows: int
    elements: int
    wrong: int
    clocks: int


def simulate_rows(configuration: Configuration, folder: Path) -> Simulated:
    """Simulate a core with each of `STALLS`; one that hangs or gives too much is an AssertionError."""
    made = configuration.make()
    plan = made.core.plan
    rows = rows_of(plan.source, plan.settings.length)
    made = replace(made, beats=rehearse(plan, rows, 0))
    write_rtl(made, folder)
    command = compile_core(folder, made.core.name, "verilator")
    found: list[tuple[int, int]] = []
    for seed, (valid, ready) in enumerate(STALLS):
        said = simulate(folder, command, valid=valid, ready=ready, seed=seed + 1)
        verdict = re.search(r"(?:PASS|FAIL): (\d+) beats, (\d+) numbers, (\d+) wrong, (\d+) clocks$", said)
        assert verdict is not None, said
        results, numbers, wrong, clocks = map(int, verdict.groups())
        assert (results, numbers) == (len(made.beats.results), len(made.beats.numbers)), said
        found.append((wrong, clocks))
    runs = len(STALLS)
    return Simulated(
        runs * len(rows), runs * sum(r.scores.size for r in rows), sum(w for w, _ in found), sum(c for _, c in found)
    )


def rows_of(program: Program, longest: int) -> list[Row]:
    """Return rows: all 32,896 pairs of a maximum and a score, one of each length, those that are chosen to break, and
    a mask over each third of them where the program has one."""
    rng, kind = np.random.default_rng(longest), program.scores
    found = [*_pairs(kind), *_of_each_length(kind, longest, rng)]
    found += choose(program, {}, [n for n in _LENGTHS if n <= longest], 10, 0)
    if program.masked:
        found += [replace(row, valid=rng.random(row.valid.size) < 0.7) for row in found[::3]]
    # In any order: what a row leaves in the core is to meet every other.
    return [found[at] for at in rng.permutation(len(found))]


def _pairs(kind: DType) -> Iterator[Row]:
    for high in range(int(kind.low), int(kind.high) + 1):
        for low in range(int(kind.low), high + 1):
            pair = [high, low] if (high + low) % 2 else [low, high]
            yield Row("a maximum and a score", np.asarray(pair, kind.numpy), np.ones(2, np.bool_))


def _of_each_length(kind: DType, longest: int, rng: np.random.Generator) -> Iterator[Row]:
    for n in range(1, longest + 1):
        middle = rng.integers(int(kind.low), int(kind.high), endpoint=True)
        scores = np.clip(np.rint(rng.normal(middle, _SPREADS[n % len(_SPREADS)], n)), kind.low, kind.high)
        yield Row("of each length", np.asarray(scores, kind.numpy), np.ones(n, np.bool_))
