"""Recurrent layers: what is left of LSTM, GRU and RNN when the products with their inputs are done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import Value

Kind: TypeAlias = Literal["RNN", "GRU", "LSTM"]


@dataclass(frozen=True)
class Activation:
    """A function of a gate: ONNX's name of it, and its numbers."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class RecurrenceOp:
    """A recurrence over steps. Arguments, all float32 but the last, where `given` says so:

    * x, [steps, batch, directions, gates x hidden]: products of the inputs with their weights, and biases. Gates stand
      in ONNX's order: of LSTM input, output, forget, cell; of GRU update, reset, hidden.
    * weights of the recurrence, [directions, gates x hidden, hidden]: two arguments for GRU, those of the hidden gate
      are the second.
    * `bias`, [directions, hidden]: what the reset gate of a GRU multiplies too.
    * `hidden`, [directions, batch, hidden], and `cell`: the states before the first step, else 0.
    * `peepholes`, [directions, 3 x hidden]: of input, output and forget gate.
    * `lengths`, [batch], int64: the steps that each sequence has.

    Results are the hidden states of all steps, [steps, directions, batch, hidden], the last ones, [directions, batch,
    hidden], and of LSTM the last cells.

    Attributes:
        kind: The operator.
        reverse: Of each direction, whether it begins with the last step.
        activations: Those of each direction.
        given: Which of the optional arguments there are.
        clip: What bounds the arguments of activations, or None.
        coupled: Whether an LSTM's forget gate is 1 less the input gate.
    """

    kind: Kind
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    given: frozenset[str]
    clip: float | None = None
    coupled: bool = False

    @property
    def gates(self) -> int:
        """How many gates there are."""
        return {"RNN": 1, "GRU": 3, "LSTM": 4}[self.kind]

    @property
    def symbol(self) -> str:
        """What tells its kernel from others."""
        names = "_".join(
            f"{'backward' if backward else 'forward'}_" + "_".join(f"{f.name}_{f.alpha}_{f.beta}" for f in functions)
            for backward, functions in zip(self.reverse, self.activations, strict=True)
        )
        text = f"{self.kind}_{names}_{'_'.join(sorted(self.given))}_{self.clip}_{self.coupled}"
        return re.sub(r"\W", "_", text.replace("-", "minus")).lower()

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> tuple[Value, ...]:
        """Append the steps and return the results."""
        append = lowering.backend.recurrence
        assert append is not None, "`supports` is asked before"
        x, *rest = arguments
        count = 2 if self.kind == "GRU" else 1
        weights = [lowering.weight(weight, rank=3) for weight in rest[:count]]
        return append(lowering.builder, self, lowering.value(x), weights, [*map(lowering.value, rest[count:])], result)
