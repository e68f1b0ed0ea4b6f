"""From fitted numbers to run-time parameters as tensors, and how the weights change with these numbers.

Tables of codes and weights follow from a few numbers (codes per octave, where the first code begins). Weights are steps
in these numbers, with a derivative of zero: the gradient of a number takes the difference between what comes out for
numbers a little below and above it instead, all else as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from softq.errors import UsageError
from softq.methods import Fitted, Method, Options
from softq.rowprog.program import Param
from softq.torch.rules import CARRIERS

_REACH = 1 / 16
"""How far below and above a number is looked, as a share of it, or of 1 where it is smaller: thresholds that lie on a
grid, of bytes, have to move."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Run-time parameters as a function of the numbers that they follow from.

    Attributes:
        method: The method.
        options: Its options, resolved.
        params: What the program takes.
    """

    method: Method
    options: Options
    params: tuple[Param, ...]

    def tensors(self, fitted: Fitted) -> dict[str, Tensor]:
        """Return the parameters by name: numbers as [1] or [heads, 1, 1], tables as [size] or [heads, 1, size].

        Raises:
            UsageError: fitted are other options than those that say `site` or `head`.
        """
        if set(self.options.fitted) != set(fitted):
            raise UsageError(
                f"{self.method.name}: fitted numbers are given for {sorted(fitted)}; its options ask for "
                f"{sorted(self.options.fitted)}"
            )
        arrays = self.method.parameters(self.options, fitted) if fitted else {}
        missing = [param.name for param in self.params if param.name not in arrays]
        if fitted and missing:
            raise UsageError(f"{self.method.name}: parameters {missing} do not follow from {sorted(fitted)}")
        return {param.name: torch.as_tensor(arrays[param.name]).to(CARRIERS[param.dtype])
                for param in self.params if param.name in arrays}  # fmt: skip

    def at(self, numbers: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the parameters in the program's order, where the numbers are."""
        device = next(iter(numbers.values())).device
        made = self.tensors({name: self.plain(name, value) for name, value in numbers.items()})
        return tuple(made[param.name].to(device) for param in self.params)

    def plain(self, name: str, number: Tensor) -> float | tuple[float, ...]:
        """Return a number as plans hold it: one, or one per head."""
        values = tuple(map(float, number.detach().flatten()))
        return values if self.options.fitted[name] == "head" else values[0]

    def limits(self, name: str) -> tuple[float, float]:
        """Return the least and the greatest number that an option may be."""
        spec = type(self.options).specs()[name]
        return spec.low, spec.high

    def gradients(
        self, numbers: Mapping[str, Tensor], wanted: Sequence[bool], gradient: Tensor,
        result: Callable[[tuple[Tensor, ...]], Tensor],
    ) -> list[Tensor | None]:  # fmt: skip
        """Return the gradients of the numbers, None where none is wanted.

        Args:
            numbers: The numbers by name.
            wanted: Of which a gradient is wanted.
            gradient: That of the result.
            result: What follows from the parameters, [..., heads, L, D].
        """
        found: list[Tensor | None] = []
        for (name, value), asked in zip(numbers.items(), wanted, strict=True):
            if not asked:
                found.append(None)
                continue
            reach = value.abs().clamp(min=1.0) * _REACH
            low, high = ((value + side).clamp(*self.limits(name)) for side in (-reach, reach))
            # Heads do not touch each other: all of them are moved at once.
            less, more = (result(self.at({**numbers, name: end})) for end in (low, high))
            change = gradient * (more - less)
            change = change.reshape(*(1,) * (3 - change.dim()), *change.shape).sum((-2, -1), keepdim=True)
            total = change.sum_to_size(value.shape) if value.dim() == 3 else change.sum().reshape(value.shape)
            found.append((total / (high - low)).to(value.dtype))
        return found


def as_tensor(number: float | tuple[float, ...]) -> Tensor:
    """Return a fitted number as [1], numbers per head as [heads, 1, 1], in float64."""
    values = torch.from_numpy(np.atleast_1d(np.asarray(number, np.float64)))
    return values.reshape(-1, 1, 1) if isinstance(number, tuple) else values
