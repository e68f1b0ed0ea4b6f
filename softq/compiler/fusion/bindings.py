"""Questions about bindings of a Relax function: what they call, what they read, and whether they are views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relax

from softq.compiler.backend import Backend, KernelOperator
from softq.compiler.ops.control_flow import bodies_of, decided_dims
from softq.compiler.tir.expressions import found
from softq.compiler.tir.loop_nests import Nest
from softq.compiler.tir.symbolic import key
from softq.compiler.tvm_errors import is_of_tvm


def bindings_of(module: tvm.IRModule) -> dict[int, Any]:
    """Return the bindings of `main` by their variable, in their order."""
    return {key(binding.var): binding for block in module["main"].body.blocks for binding in block.bindings}


def in_order(module: tvm.IRModule, operators: Mapping[str, KernelOperator]) -> dict[int, Any]:
    """Return the bindings of `main`, with what measures a dimension before what has it.

    Relax, which does not know that there is anything to wait for, moves bindings.
    """
    given = bindings_of(module)
    owner = {dim: at for at, b in given.items() for dim in decided_dims(operator_of(b, operators))}
    if not owner:
        return given
    ordered: dict[int, Any] = {}

    def needed(binding: Any) -> Iterator[int]:
        for root in [binding, *(body.module["main"] for body in bodies_of(operator_of(binding, operators)))]:
            for var in found(root, tvm.ir.Var):
                yield key(var)
                yield owner.get(str(var.name), 0)

    for last in given:
        stack = [(last, iter(needed(given[last])))]
        open_ones = {last}
        while stack:
            at, rest = stack[-1]
            step = next((i for i in rest if i in given and i not in ordered and i not in open_ones), None)
            if step is None:
                ordered.setdefault(at, given[at])
                stack.pop()
            else:
                open_ones.add(step)
                stack.append((step, iter(needed(given[step]))))
    return ordered


def row_nests(backend: Backend, name: str, function: Any) -> list[Nest]:
    """Return the kernels of a function whose work items are rows of its result; none where TVM fails to make them."""
    try:
        return backend.nests(name, function, True)
    except Exception as error:
        if not is_of_tvm(error):
            raise
        return []  # Whoever compiles the function for itself says what is wrong with it, or skips it.


def callee(binding: Any) -> str:
    """Return the name of the operator that a binding calls, such as `relax.reshape`; empty if it calls none."""
    return str(getattr(getattr(getattr(binding, "value", None), "op", None), "name", ""))


def is_view(binding: Any) -> bool:
    """Say whether a binding shows the memory of another in another shape."""
    return callee(binding) == "relax.reshape"


def is_function(binding: Any) -> bool:
    """Say whether a binding calls a TIR function."""
    return callee(binding) == "relax.call_tir"


def kernel_of(binding: Any) -> str | None:
    """Return the name of the operator with a kernel of its own that a binding calls, or None."""
    return str(binding.value.args[0].global_symbol) if callee(binding) == "relax.call_dps_packed" else None


def operator_of(binding: Any, operators: Mapping[str, KernelOperator]) -> KernelOperator | None:
    """Return the operator with a kernel of its own that a binding calls, or None."""
    return operators.get(kernel_of(binding) or "")


def item_of(binding: Any) -> tuple[Any, int] | None:
    """Return the tuple and the position that a binding takes out of it, or None if it does not."""
    value = getattr(binding, "value", None)
    return (value.tuple_value, value.index) if isinstance(value, relax.TupleGetItem) else None


def is_variable(expr: Any) -> bool:
    """Say whether an expression is a variable."""
    return isinstance(expr, relax.Var)


def is_tuple(ty: Any) -> bool:
    """Say whether a type of Relax is one of tuples."""
    return isinstance(ty, relax.TupleType)


def variables(expr: Any) -> Iterator[Any]:
    """Yield the variables of an expression, each as often as it stands there."""
    yield from found(expr, relax.Var)


def users_of(module: tvm.IRModule) -> Mapping[int, list[int]]:
    """Return the variables of `main` for which each one is read, as often as it is read; 0 is the result."""
    users: Mapping[int, list[int]] = defaultdict(list)
    results = {at: binding.value for at, binding in bindings_of(module).items()}
    for at, value in [*results.items(), (0, module["main"].body.body)]:
        for used in variables(value):
            users[key(used)].append(at)
    return users


def behind_views(value: Any, bindings: Mapping[int, Any]) -> Any:
    """Return the binding whose memory a value shows, through views; None if it is no binding."""
    binding = bindings.get(key(value)) if is_variable(value) else None
    while binding is not None and is_view(binding):
        binding = bindings.get(key(binding.value.args[0]))
    return binding


def users_behind_views(module: tvm.IRModule, value: Any) -> set[int]:
    """Return the variables that are computed of a value or of parts of it, seen through views; 0 is the result."""
    views, reading = {key(value)}, set[int]()
    for at, binding in bindings_of(module).items():
        if {key(v) for v in variables(binding.value)} & views:
            (views if is_view(binding) or item_of(binding) is not None else reading).add(at)
    return reading | ({0} if {key(v) for v in variables(module["main"].body.body)} & views else set())
