"""Operators that the driver takes part in: bodies that are skipped or repeated, and dimensions that data decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.backend import Lowering
from softq.compiler.ops.control_kernels import (
    copy_numbers_kernel,
    count_kernel,
    flag_kernel,
    part_kernel,
    sizes_kernel,
    test_kernel,
)
from softq.compiler.steps.builder import Builder, StepCall, Value, tensor_types
from softq.compiler.steps.tir_kernels import PREFIX
from softq.compiler.tir.symbolic import multiplied


def decided_dims(operator: object) -> tuple[str, ...]:
    """Return the names of the dimensions that are known behind an operator, not before it."""
    if isinstance(operator, MeasureOp):
        return operator.dims
    if isinstance(operator, IfOp):
        return operator.measured
    if isinstance(operator, LoopOp):
        return (*operator.measured, *([] if operator.rounds is None else [operator.rounds]))
    return ()


def bodies_of(operator: object) -> tuple[Body, ...]:
    """Return the bodies that an operator computes."""
    if isinstance(operator, IfOp):
        return operator.then, operator.other
    return (operator.body,) if isinstance(operator, LoopOp) else ()


@dataclass(frozen=True, eq=False)
class Body:
    """The body of an operator in Relax.

    Attributes:
        module: Its function `main` takes the body's inputs, what the body takes from around it, then weights.
        inputs: The variables of its inputs and of what it takes from around it.
        captured: What the body takes from around it, as it is there.
        values: Its results, which stand before what measures dimensions.
        limits: What must hold for the dimensions where it is computed.
    """

    module: tvm.IRModule
    inputs: tuple[relax.Var, ...]
    captured: tuple[relax.Expr, ...]
    values: tuple[relax.Expr, ...]
    limits: tuple[Limit, ...]

    @property
    def types(self) -> tuple[Any, ...]:
        """The types of its results."""
        return tuple(value.ty for value in self.values)

    def lower(self, lowering: Lowering, inputs: Sequence[Value], captured: Sequence[Any]) -> list[Value]:
        """Append the steps of the body and return its results."""
        with lowering.builder.requiring(self.limits):
            values = lowering.body(self.module, [*inputs, *(lowering.known(x) for x in captured)])
        return values[: len(self.values)]


@dataclass(frozen=True)
class MeasureOp:
    """Dimensions that data decide: the argument is an int64 tensor [n] with their values.

    The result, which nothing reads, keeps Relax from leaving the call out.

    Attributes:
        dims: Their names.
    """

    dims: tuple[str, ...]

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the values, where the driver finds them."""
        builder = lowering.builder
        values, told = lowering.value(arguments[0]), builder.allocated((len(self.dims),), "int64")
        symbol = f"{PREFIX}measure"
        kernel = builder.tir.add(symbol, lambda: copy_numbers_kernel(symbol))
        builder.measure(StepCall(kernel, [told, values], [], len(self.dims), len(self.dims)), self.dims)
        return told


@dataclass(frozen=True)
class IfOp:
    """One of two bodies: arguments are a condition of one bool, then what each of the bodies takes from around it.

    Attributes:
        then: The body that is computed where the condition holds.
        other: The other one.
        measured: Names of the results' dimensions that differ between the bodies, in their order.
    """

    then: Body
    other: Body
    measured: tuple[str, ...]

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Any:
        """Append the steps and return the results."""
        builder, condition = lowering.builder, lowering.value(arguments[0])
        builder.dims.update(self.measured)
        results = [builder.new(ty) for ty in tensor_types(result)]
        captured = list(arguments[1:])
        for body, wanted in ((self.then, True), (self.other, False)):
            skip = _jump(builder, condition, not wanted)
            values = body.lower(lowering, [], captured[: len(body.captured)])
            del captured[: len(body.captured)]
            _measure(builder, _differing(results, values, self.measured), self.measured)
            for value, out in zip(values, results, strict=True):
                builder.move(value, out)
            builder.land(skip)
        return tuple(results) if isinstance(result, relax.TupleType) else results[0]


@dataclass(frozen=True)
class LoopOp:
    """A body that is repeated.

    Arguments are the greatest number of rounds (int64), the condition (bool), the first values of what each round hands
    to the next, the inputs that are taken apart along their first axis, then what the body takes from around it. The
    body takes the number of the round, the condition, what is handed on, and its parts of the inputs; it gives the
    condition, what is handed on, and the parts that the outputs are put together from. Results are the last values of
    what is handed on, and these outputs.

    Attributes:
        body: The body.
        handed: How many values a round hands to the next.
        parts: How many inputs are taken apart.
        reversed_parts: Which of these begin with the last part.
        reversed_outputs: Which of the outputs get the first round's part last; the number of rounds is known then.
        measured: Names of the dimensions of the values handed on that may change from round to round, in their order.
        rounds: Name of the outputs' first dimension where the rounds decide it; None where it is known before.
        number: Name of the number of the round as a dimension; None where the body takes neither it nor the condition,
            and does not give the condition.
    """

    body: Body
    handed: int
    parts: int = 0
    reversed_parts: tuple[bool, ...] = ()
    reversed_outputs: tuple[bool, ...] = ()
    measured: tuple[str, ...] = ()
    rounds: str | None = None
    number: str | None = None

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Any:
        """Append the steps and return the results."""
        builder = lowering.builder
        limit, condition, *given = (lowering.value(x) for x in arguments[: 2 + self.handed + self.parts])
        captured = arguments[2 + self.handed + self.parts :]
        first, inputs = given[: self.handed], given[self.handed :]
        builder.dims.update(name for name in (*self.measured, self.rounds, self.number) if name is not None)
        results = [builder.new(ty) for ty in tensor_types(result)]
        handed, outputs = results[: self.handed], results[self.handed :]
        _measure(builder, _differing(handed, first, self.measured), self.measured)
        if self.rounds is not None:
            _measure(builder, [0], (self.rounds,))
        for value, out in zip(first, handed, strict=True):
            builder.move(value, out)
        going, number = builder.copy(condition), builder.allocated((1,), "int64")
        self._count(builder, number, start=True)
        begin = len(builder.steps)
        leave = self._test(builder, number, limit, going)
        parts = [
            self._part(builder, value, number, limit, backwards)
            for value, backwards in zip(inputs, self.reversed_parts, strict=True)
        ]
        head: list[Value] = []
        if self.number is not None:
            head = [Value((), "int64", number.place, number.at), going]
            self._measure_number(builder, number, self.number, ended=False)
        values = self.body.lower(lowering, [*head, *handed, *parts], captured)
        still = None if self.number is None else values.pop(0)
        changed, made = values[: self.handed], values[self.handed :]
        # A value that is handed on as another, or twice, would be overwritten before it is read.
        changed = [builder.copy(v) if v in handed or changed.count(v) > 1 else v for v in changed]
        if self.rounds is not None:
            self._measure_number(builder, number, self.rounds, ended=True)
        for value, out, backwards in zip(made, outputs, self.reversed_outputs, strict=True):
            _place(builder, value, out, number, limit, backwards)
        _measure(builder, _differing(handed, changed, self.measured), self.measured)
        for value, out in zip(changed, handed, strict=True):
            builder.move(value, out)
        if still is not None:
            builder.move(still, going)
        self._count(builder, number)
        back = _jump(builder, None, True)
        builder.repeat(back, begin)
        builder.land(leave)
        return tuple(results) if isinstance(result, relax.TupleType) else results[0]

    def _count(self, builder: Builder, number: Value, start: bool = False) -> None:
        """Set the number of the round to 0, or to the next one."""
        symbol = f"{PREFIX}first_round" if start else f"{PREFIX}next_round"
        kernel = builder.tir.add(symbol, lambda: count_kernel(symbol, int(not start), int(not start)))
        builder.append(StepCall(kernel, [number, number], [], 1, 1))

    def _measure_number(self, builder: Builder, number: Value, name: str, ended: bool) -> None:
        """Measure the number of the round, or how many there were with this one."""
        symbol, told = f"{PREFIX}rounds" if ended else f"{PREFIX}round", builder.allocated((1,), "int64")
        kernel = builder.tir.add(symbol, lambda: count_kernel(symbol, 1, int(ended)))
        builder.measure(StepCall(kernel, [told, number], [], 1, 1), [name])

    def _test(self, builder: Builder, number: Value, limit: Value, going: Value) -> int:
        flag, symbol = builder.allocated((1,), "int32"), f"{PREFIX}leave_loop"
        kernel = builder.tir.add(symbol, lambda: test_kernel(symbol))
        return builder.jump(StepCall(kernel, [flag, number, limit, going], [], 1, 1))

    def _part(self, builder: Builder, value: Value, number: Value, limit: Value, backwards: bool) -> Value:
        part = builder.allocated(value.dims[1:], value.dtype)
        _copy_part(builder, [value, part, number, limit], part, backwards, "take_part")
        return part


def _place(builder: Builder, value: Value, out: Value, number: Value, limit: Value, backwards: bool) -> None:
    _copy_part(builder, [value, out, number, limit], value, backwards, "place_part")


def _copy_part(builder: Builder, tensors: list[Value], part: Value, backwards: bool, name: str) -> None:
    width = tvm.DataType(part.dtype).bits // 8 if part.dtype != "bool" else 1
    count, symbol = multiplied([part.elements, width]), f"{PREFIX}{name}" + "_backwards" * backwards
    kernel = builder.tir.add(symbol, lambda: part_kernel(symbol, backwards, name == "place_part"))
    builder.append(StepCall(kernel, tensors, [count], count, part.elements))


def _differing(wanted: Sequence[Value], values: Sequence[Value], names: Sequence[str]) -> list[Any]:
    """Return what the dimensions of these names are for values that results are made of."""
    return [
        there
        for result, value in zip(wanted, values, strict=True)
        for dim, there in zip(result.dims, value.dims, strict=True)
        if dim in names
    ]


def _measure(builder: Builder, dims: Sequence[Any], names: Sequence[str]) -> None:
    """Append the step that gives dimensions of these names these sizes."""
    if not names:
        return
    told, symbol = builder.allocated((len(names),), "int64"), f"{PREFIX}sizes_{len(names)}"
    kernel = builder.tir.add(symbol, lambda: sizes_kernel(symbol, len(names)))
    step = StepCall(kernel, [told], list(dims), 1, len(names))
    builder.measure(step, names)


def _jump(builder: Builder, condition: Value | None, when: bool) -> int:
    """Append a jump that is made when a condition has a value, or always."""
    flag, symbol = builder.allocated((1,), "int32"), f"{PREFIX}always" if condition is None else f"{PREFIX}if_{when}"
    kernel = builder.tir.add(symbol, lambda: flag_kernel(symbol, condition is None, when))
    return builder.jump(StepCall(kernel, [flag] if condition is None else [flag, condition], [], 1, 1))
