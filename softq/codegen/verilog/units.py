"""One product, one division and one normalization for a whole core, each a bit at a clock.

The sequences of steps that have work for them are the numbers of a row behind a pass, and each element of a pass with
products. They take turns: one begins where no other is under way, and then goes through its steps without a wait. Of
several that would begin, numbers of rows come first, since elements come again at once, and then the later pass, so
that what an earlier one has filled is emptied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.serial import NORMALIZING_CLOCKS, IsStep, Job, clocks_of_product, divide, multiply, normalize
from softq.codegen.verilog.signals import Signal, shape
from softq.codegen.verilog.simplification import Simplified
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node

SERIAL = ("mul", "divide", "normalize")
"""Operators that these units compute."""

_APART = 1 << 20
"""More than any sequence has steps."""


def clocks_of(op: str, nodes: Sequence[Node], simplified: Simplified) -> int:
    """Return how many clocks a unit takes that all values of an operator share.

    Args:
        op: The operator, one of `SERIAL`.
        nodes: The values, of any operators.
        simplified: The program.
    """

    def bits(node: Node) -> Signal:
        return Signal("", *shape(simplified.intervals[node]))

    own = [node for node in nodes if node.op == op]
    if op == "mul":
        return clocks_of_product([(bits(node.args[0]), bits(node.args[1])) for node in own])
    if op == "divide":
        return max(bits(node).width for node in own)
    return NORMALIZING_CLOCKS


def write_unit(
    module: Module, name: str, op: str, jobs: Sequence[Job], clocks: int, is_step: IsStep, *, at_once: bool = False
) -> None:
    """Write a unit.

    Args:
        module: Where it is written.
        name: What its names begin with.
        op: The operator, one of `SERIAL`.
        jobs: What it computes.
        clocks: As `clocks_of` says.
        is_step: Gives the condition that this is a step.
        at_once: Whether the factors of products are chosen at once, as for `multiply`.
    """
    if op == "mul":
        multiply(module, name, jobs, clocks, is_step, at_once=at_once)
    elif op == "divide":
        divide(module, name, jobs, clocks, is_step)
    else:
        normalize(module, name, jobs, is_step)


def has_products(phase: Phase) -> bool:
    """Say whether a pass multiplies its elements."""
    return any(node.op == "mul" for node in phase.rows)


def needs_units(nodes: Sequence[Node], simplified: Simplified) -> bool:
    """Say whether a sequence of values has work for these units."""
    return any(node.op in SERIAL and simplified.constant(node) is None for node in nodes)


@dataclass(frozen=True)
class _Turn:
    """A sequence of steps.

    Attributes:
        wants: The condition under which it would begin.
        uses: The condition that it is under way.
        done: The condition that this is its last step.
        granted: The wire that says that it may begin.
        again: Whether it may begin in its last step.
        order: Of several that would begin, the one of which this is greatest does.
    """

    wants: str
    uses: str
    done: str
    granted: str
    again: bool
    order: tuple[bool, int]


class Units:
    """The units of a core.

    Args:
        module: Where they are written.
        simplified: The program.
        phases: Its passes.
    """

    def __init__(self, module: Module, simplified: Simplified, phases: Sequence[Phase]) -> None:
        self._module = module
        nodes = [node for phase in phases for node in (*phase.scalars, *(phase.rows if has_products(phase) else ()))]
        left = [node for node in nodes if simplified.constant(node) is None]
        self.clocks: Mapping[str, int] = {
            op: clocks_of(op, left, simplified) for op in SERIAL if any(node.op == op for node in left)
        }
        self._turns: list[_Turn] = []
        self._jobs: dict[str, list[Job]] = {}
        self._steps: list[IsStep] = []

    def take_turns(self, wants: str, uses: str, done: str, granted: str, *, elements: bool, number: int) -> None:
        """Let a sequence of steps begin where no other is under way; see `_Turn`.

        Args:
            wants: The condition under which it would begin.
            uses: The condition that it is under way.
            done: The condition that this is its last step.
            granted: The wire that says that it may begin; what drives it is written last.
            elements: Whether it is one of the elements of a pass, which may begin in the last step of the one before.
            number: The number of the pass.
        """
        self._turns.append(_Turn(wants, uses, done, granted, elements, (not elements, number)))

    def add(self, jobs: Mapping[str, Sequence[Job]], is_step: IsStep) -> None:
        """Add the work of a sequence; `is_step` gives the condition that this is one of its steps."""
        first = _APART * len(self._steps)
        self._steps.append(is_step)
        for op, own in jobs.items():
            self._jobs.setdefault(op, []).extend(replace(job, step=first + job.step) for job in own)

    def write(self) -> None:
        """Write the units, and who begins."""
        module = self._module
        module.part("One unit of each kind for all passes")
        for turn in self._turns:
            taken = [f"~{other.uses}" for other in self._turns if other is not turn]
            before = [f"~({other.wants})" for other in self._turns if other.order > turn.order]
            own = [f"(~{turn.uses} | {turn.done})"] if turn.again else []
            module.assign(turn.granted, " & ".join([*own, *taken, *before]) or "1'b1")
        for op, jobs in self._jobs.items():
            write_unit(module, f"unit_{op}", op, jobs, self.clocks[op], self._is_step, at_once=True)

    def _is_step(self, step: int) -> str:
        return self._steps[step // _APART](step % _APART)
