"""Input shapes that a user gives: `NAME:1,3,48,320` for all axes, `NAME:batch=1` for those that the model names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from softq.errors import InputError, UsageError
from softq.passes.fix_dimensions import FixDimensions, check_length
from softq.wording import counted

InputShapes: TypeAlias = Mapping[str, "Sequence[int | None] | Mapping[str, int]"]
"""For an input's name its lengths, None for an axis that stays as it is; or lengths by the names of its axes."""

OPEN = "?"
"""An axis that stays as it is."""


def parse_input_shapes(texts: Sequence[str]) -> InputShapes:
    """Return what options `--input-shape` say.

    Raises:
        UsageError: a text has another form, or an input is given twice.
    """
    shapes: dict[str, list[int | None] | dict[str, int]] = {}
    for text in texts:
        name, colon, lengths = text.rpartition(":")
        parts = [part.strip() for part in lengths.split(",")]
        form = f"--input-shape {text!r}: expected NAME:1,3,48,320 ({OPEN} for an axis that stays open) or NAME:batch=1"
        if not colon or not name or not all(parts):
            raise UsageError(form)
        named = [part.rpartition("=") for part in parts]
        numbers = [number for _, _, number in named]
        if not all(_is_length(number) or (number == OPEN and not equals) for _, equals, number in named):
            raise UsageError(form)
        given = shapes.get(name)
        if all(equals for _, equals, _ in named):
            added = {axis: int(number) for axis, _, number in named}
            if len(added) < len(named) or (given is not None and not isinstance(given, dict)):
                raise UsageError(f"--input-shape {text!r}: {name!r} has a length given twice")
            clash = sorted(added.keys() & (given or {}))
            if clash:
                raise UsageError(f"--input-shape {text!r}: {name!r} has {clash[0]!r} given twice")
            shapes[name] = {**(given or {}), **added}
        elif any(equals for _, equals, _ in named):
            raise UsageError(form)
        elif given is not None:
            raise UsageError(f"--input-shape {text!r}: {name!r} is given twice")
        else:
            shapes[name] = [None if number == OPEN else int(number) for number in numbers]
    return shapes


def fix_input_shapes(model: ir.Model, shapes: InputShapes | None) -> None:
    """Give inputs of a model their shapes; an axis that has a name is fixed wherever the name stands.

    Raises:
        InputError: there is no such input or axis, or the model fixes another length.
    """
    inputs = {value.name: value for value in model.graph.inputs if value.name not in model.graph.initializers}
    named: dict[str, int] = {}
    for name, lengths in (shapes or {}).items():
        if name not in inputs:
            raise InputError(f"the model has no input {name!r}; there are: {', '.join(map(repr, inputs)) or 'none'}")
        _fix(inputs[name], lengths, named)
    FixDimensions(named)(model)


def resolve(model: ir.Model, shapes: InputShapes | None) -> InputShapes:
    """Return the shapes by position alone: for other models whose inputs have the same names, but not their axes.

    Raises:
        InputError: as `fix_input_shapes` does.
    """
    fix_input_shapes(model, shapes)
    return {value.name or "": _lengths(value) for value in model.graph.inputs if value.name in (shapes or {})}


def open_axes(graph: ir.Graph) -> str:
    """Return the options that would fix the axes that inputs leave open, with `?` for lengths to fill in; or ''."""
    options: list[str] = []
    for value in graph.inputs:
        if value.name in graph.initializers:
            continue
        if value.shape is None:
            options.append(f"--input-shape '{value.name}:LENGTHS'")
        elif not all(isinstance(dim, int) for dim in value.shape):
            lengths = ",".join(OPEN if length is None else str(length) for length in _lengths(value))
            options.append(f"--input-shape '{value.name}:{lengths}'")
    return " ".join(options)


def _is_length(text: str) -> bool:
    return text.isdecimal() and len(text) < 19  # What an axis of ONNX can hold.


def _lengths(value: ir.Value) -> list[int | None]:
    return [dim if isinstance(dim, int) else None for dim in value.shape or ()]


def _fix(value: ir.Value, lengths: Sequence[int | None] | Mapping[str, int], named: dict[str, int]) -> None:
    """Fix the axes without names, and take down the lengths of the others."""
    what = f"input {value.name!r}"
    if isinstance(lengths, Mapping):
        names = {dim.value for dim in value.shape or () if not isinstance(dim, int) and dim.value}
        for name, length in lengths.items():
            if name not in names:
                there = ", ".join(map(repr, sorted(names))) or "none"
                raise InputError(f"{what} has no axis named {name!r}; there are: {there}; it is {_text(value)}")
            _take_down(named, name, length)
        return
    if value.shape is not None and len(value.shape) != len(lengths):
        axes = counted(len(value.shape), "axis", "axes")
        given = counted(len(lengths), "length is", "lengths are")
        raise InputError(f"{what} has {axes}, {given} given; it is {_text(value)}")
    dims: list[int | ir.SymbolicDim | None] = list(value.shape or [None] * len(lengths))
    for axis, (dim, length) in enumerate(zip(dims, lengths, strict=True)):
        if length is None:
            continue
        check_length(f"{what}, axis {axis}, cannot be", length)
        if isinstance(dim, int) and dim != length:
            raise InputError(f"{what} has {dim} on axis {axis}, {length} is given; it is {_text(value)}")
        if isinstance(dim, ir.SymbolicDim) and dim.value:
            _take_down(named, dim.value, length)
        else:
            dims[axis] = length
    value.shape = ir.Shape(dims)


def _take_down(named: dict[str, int], name: str, length: int) -> None:
    if named.setdefault(name, length) != length:
        raise InputError(f"dimension {name!r} is given as {named[name]} and as {length}")


def _text(value: ir.Value) -> str:
    dims = [dim if isinstance(dim, int) else dim.value or OPEN for dim in value.shape or ()]
    return f"[{', '.join(map(str, dims))}]" if value.shape is not None else "of an unknown number of axes"
