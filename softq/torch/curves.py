"""From fitted numbers to run-time parameters as tensors, and how the weights change with these numbers.

Tables of codes and weights follow from a few numbers (codes per octave, where the first code begins). Weights are steps
in these numbers, with a derivative of zero: the gradient of a number takes the difference between what comes out for
numbers a little below and above it instead, all else as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from softq.errors import UsageError
from softq.methods import METHODS, Fitted, Method, Options
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
        limits: The least and the greatest number that each option may be which is fitted.
        key: The method and its options as a text.
    """

    method: Method
    options: Options
    params: tuple[Param, ...]
    limits: Mapping[str, tuple[float, float]]
    key: str = field(repr=False)

    @classmethod
    def of(cls, method: Method, options: Options, params: tuple[Param, ...]) -> Curve:
        """Return the curve of a method with its options; `params` are those of its program."""
        specs, names = type(options).specs(), options.fitted
        limits = {name: (float(specs[name].low), float(specs[name].high)) for name in names}
        key = json.dumps([method.name, options.to_json()])
        return cls(method, options, params, limits, key)

    def tensors(self, fitted: Fitted) -> dict[str, Tensor]:
        """Return the parameters by name: numbers as [1] or [heads, 1, 1], tables as [size] or [heads, 1, size].

        Raises:
            UsageError: fitted are other options than those that say `site` or `head`, or a number is not allowed.
        """
        scopes = self.options.fitted
        if set(scopes) != set(fitted):
            raise UsageError(
                f"{self.method.name}: fitted numbers are given for {sorted(fitted)}; its options ask for "
                f"{sorted(scopes)}"
            )
        for name, value in fitted.items():
            numbers = np.asarray(value, np.float64)
            low, high = self.limits[name]
            allowed = numbers.size and np.all((low <= numbers) & (numbers <= high))
            if numbers.ndim != (scopes[name] == "head") or not allowed:
                raise UsageError(
                    f"{self.method.name}: {name} is {value}; expected one number per {scopes[name]}, "
                    f"from {low:g} to {high:g}"
                )
        heads = {name: np.size(value) for name, value in fitted.items() if scopes[name] == "head"}
        if len(set(heads.values())) > 1:
            raise UsageError(f"{self.method.name}: fitted numbers are for another number of heads each: {heads}")
        arrays = self.method.parameters(self.options, fitted) if fitted else {}
        missing = [param.name for param in self.params if param.name not in arrays]
        if fitted and missing:
            raise UsageError(f"{self.method.name}: parameters {missing} do not follow from {sorted(fitted)}")
        return {param.name: torch.as_tensor(arrays[param.name]).to(CARRIERS[param.dtype])
                for param in self.params if param.name in arrays}  # fmt: skip

    def at(self, numbers: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the parameters in the program's order, where the numbers are; without a gradient."""
        return tuple(_tables([numbers[name].detach() for name in self.limits], self.key))

    def plain(self, name: str, number: Tensor) -> float | tuple[float, ...]:
        """Return a number as plans hold it: one, or one per head."""
        values = tuple(map(float, number.detach().flatten()))
        return values if self.options.fitted[name] == "head" else values[0]

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
            low, high = ((value + side).clamp(*self.limits[name]) for side in (-reach, reach))
            # Heads do not touch each other: all of them are moved at once.
            less, more = (result(self.at({**numbers, name: end})) for end in (low, high))
            change = gradient * (more - less)
            change = change.reshape(*(1,) * (3 - change.dim()), *change.shape).sum((-2, -1), keepdim=True)
            total = change.sum_to_size(value.shape) if value.dim() == 3 else change.sum().reshape(value.shape)
            found.append((total / (high - low)).to(value.dtype))
        return found


@lru_cache(maxsize=256)
def _of_key(key: str) -> Curve:
    name, options = json.loads(key)
    method = METHODS.get(name)
    made = method.options(**options)
    return Curve.of(method, made, method.program(made).params)


@torch.library.custom_op("softq::tables", mutates_args=())
def _tables(numbers: list[Tensor], key: str) -> list[Tensor]:
    """Return run-time parameters from numbers: one operator, since torch.compile cannot trace how tables are made."""
    curve = _of_key(key)
    made = curve.tensors({name: curve.plain(name, value) for name, value in zip(curve.limits, numbers, strict=True)})
    return [made[param.name].to(numbers[0].device) for param in curve.params]


@torch.library.register_fake("softq::tables")
def _(numbers: list[Tensor], key: str) -> list[Tensor]:
    curve = _of_key(key)
    heads = max(value.shape[0] for value in numbers)
    return [
        numbers[0].new_empty(
            (param.size or 1,) if param.scope == "site" else (heads, 1, param.size or 1), dtype=CARRIERS[param.dtype]
        )
        for param in curve.params
    ]


def as_tensor(number: float | tuple[float, ...]) -> Tensor:
    """Return a fitted number as [1], numbers per head as [heads, 1, 1], in float64."""
    values = torch.from_numpy(np.atleast_1d(np.asarray(number, np.float64)))
    return values.reshape(-1, 1, 1) if isinstance(number, tuple) else values
