"""What several files do with TVM's expressions and statements: find parts of them, and copy them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm_ffi.structural import structural_map, structural_walk

from softq.compiler.tir.symbolic import key


def found(root: Any, kind: type) -> list[Any]:
    """Return the parts of a kind, each as often as it stands in the text."""
    parts: list[Any] = []
    structural_walk(root, (kind, parts.append))
    return parts


def mentions(root: Any, var: tirx.Var) -> bool:
    """Say whether a variable stands in it."""
    return any(v.same_as(var) for v in found(root, tirx.Var))


class Names:
    """Names for the values in a formula that stand in many places of it.

    TVM's passes walk an expression as a tree: without names a value stands in all of these, and so do its own parts.
    """

    def __init__(self) -> None:
        self._lets: list[tuple[tirx.Var, Any]] = []

    def bind(self, name: str, value: Any) -> tirx.Var:
        """Return a name for a value."""
        var = tirx.Var(name, str(value.ty.dtype))
        self._lets.append((var, value))
        return var

    def around(self, result: Any) -> Any:
        """Return a formula in which the names are used, with their values."""
        for var, value in reversed(self._lets):
            result = tirx.Let(var, value, result)
        return result


def substitute(expr: Any, values: Mapping[tirx.Var, Any]) -> Any:
    """Return an expression or a statement with values in the place of variables.

    Where it binds variables the copy has others: TVM takes no function in which one is bound twice.
    """
    known = {key(var): value for var, value in values.items()}
    known |= {key(let.var): tirx.Var(let.var.name, str(let.var.ty.dtype)) for let in found(expr, tirx.Let)}
    return structural_map(expr, (tirx.Var, lambda var: known.get(key(var), var)))
