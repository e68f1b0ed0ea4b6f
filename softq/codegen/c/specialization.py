"""Kernels for the sizes of one model: what all calls of a kernel agree on is part of it and no argument.

A model in C has static shapes. A kernel that is called with other sizes elsewhere keeps those as arguments, so that
its code stands in flash once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.codegen.c.dead_stores import drop_unused_names
from softq.codegen.c.terms import is_kernel_call
from softq.codegen.cpu.rows.arguments import CONSTANTS
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key


@dataclass
class Specialized:
    """The kernels of a model, lowered.

    Attributes:
        functions: By symbol, callees before their callers.
        kept: For each symbol, which of its arguments are left.
    """

    functions: dict[str, tirx.PrimFunc] = field(default_factory=dict)
    kept: dict[str, tuple[int, ...]] = field(default_factory=dict)


def specialize(
    functions: Iterable[tirx.PrimFunc],
    calls: Mapping[str, Sequence[Sequence[int | None]]],
    lower: Callable[[tirx.PrimFunc], tirx.PrimFunc],
) -> Specialized:
    """Return the kernels that calls need, lowered, for what these agree on.

    Args:
        functions: The kernels; each has its `global_symbol`.
        calls: Of each symbol that the model calls, the arguments of every call: None for a pointer.
        lower: Brings a kernel into the form that is printed or compiled, with positions of 32 bits.
    """
    by_symbol = {str(f.attrs["global_symbol"]): f for f in functions}
    callers = _callers_first(by_symbol)
    every: dict[str, list[Sequence[int | None]]] = {symbol: list(map(tuple, given)) for symbol, given in calls.items()}
    result = Specialized()
    for symbol in callers:
        if symbol not in every:
            continue  # nothing that the model needs calls it
        function = by_symbol[symbol]
        params = list(function.params)
        agreed = _agreed(every[symbol])
        known = {params[at]: tirx.IntImm(str(params[at].ty.dtype), value) for at, value in agreed.items()}
        function = lower(_filled(function, known) if known else function)
        for callee, given in _calls(function):
            every.setdefault(callee, []).append([int(x) if isinstance(x, tirx.IntImm) else None for x in given])
        result.functions[symbol] = function
    result.functions = dict(reversed(result.functions.items()))
    for symbol, function in result.functions.items():
        body = drop_unused_names(_trimmed(function.body, result.kept))
        used = {key(var) for var in found(body, tirx.Var)}
        constant = set(map(str, function.attrs.get(CONSTANTS, {}))) if function.attrs is not None else set()
        kept = [at for at, param in enumerate(function.params) if key(param) in used]
        result.kept[symbol] = tuple(at for at in kept if str(function.params[at].name) not in constant)
        params = [function.params[at] for at in kept]
        result.functions[symbol] = tirx.PrimFunc(params, body, function.ret_type, attrs=function.attrs)
    return result


def _agreed(calls: Sequence[Sequence[int | None]]) -> dict[int, int]:
    """Return the arguments that are the same number in all calls, by their position."""
    return {
        at: values[0]
        for at, values in enumerate(zip(*calls, strict=True))
        if values[0] is not None and len({*values}) == 1
    }


def _filled(function: tirx.PrimFunc, known: Mapping[Any, Any]) -> tirx.PrimFunc:
    by_key = {key(var): value for var, value in known.items()}
    body = structural_map(function.body, (tirx.Var, lambda var: by_key.get(key(var), var)))
    return tirx.PrimFunc(function.params, body, function.ret_type, attrs=function.attrs)


def _calls(function: tirx.PrimFunc) -> list[tuple[str, Sequence[Any]]]:
    """Return the calls of other kernels, with their arguments."""
    every = [call for call in found(function.body, tvm.ir.Call) if is_kernel_call(call)]
    return [(str(call.args[0].value), list(call.args[1:])) for call in every]


def _callers_first(functions: Mapping[str, tirx.PrimFunc]) -> list[str]:
    order: list[str] = []

    def visit(symbol: str) -> None:
        if symbol not in order:
            for callee, _ in _calls(functions[symbol]):
                visit(callee)
            order.append(symbol)

    for symbol in functions:
        visit(symbol)
    return order[::-1]


def _trimmed(body: Any, kept: Mapping[str, Sequence[int]]) -> Any:
    """Return a kernel's body without the arguments that what it calls does not take any more."""

    def call(x: tvm.ir.Call) -> Any:
        if not is_kernel_call(x):
            return x
        name, *given = x.args
        return tirx.call_extern("void", str(name.value), *(given[at] for at in kept[str(name.value)]))

    return structural_map(body, (tvm.ir.Call, call))
