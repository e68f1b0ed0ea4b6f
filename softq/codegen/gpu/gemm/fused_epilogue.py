"""Fused epilogues: biases, activations, residual sums and quantization of a product's elements, before the store.

TVM's expression as text, on an element in a register. It is computed in float32, also where the model has float16, and
rounded once, by the store; products and sums may be contracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import tvm
from tvm import tirx

from softq.codegen.gpu.attention.elementwise import TYPES, Expressions, UnwrittenError
from softq.codegen.gpu.dialect.text import Text
from softq.compiler.tir.symbolic import key

if TYPE_CHECKING:
    from softq.compiler.steps.product import Epilogue

_MEMORY: Mapping[str, str] = {**TYPES, "float16": "f16"}
"""Types in memory by NumPy's name."""

_FLOATS: Mapping[type, str] = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.Div: "/"}

_CALLS: Mapping[str, str] = {
    "tirx.sqrt": "ROOT({})", "tirx.rsqrt": "QUOTIENT(1.0f, ROOT({}))", "tirx.nearbyint": "ROUND({})",
    "tirx.round": "ROUND({})",
}  # fmt: skip


@dataclass(frozen=True)
class FusedEpilogue:
    """An epilogue, or none: then elements are stored as they are.

    Attributes:
        epilogue: What is done to each element of the product.
        result: Type of the result in memory, if it is another one than the product's own.
    """

    epilogue: Epilogue | None = None
    result: str = ""

    def parameters(self) -> list[str]:
        """Return the declarations of the pointers that it reads, which stand behind the result's."""
        operands = () if self.epilogue is None else self.epilogue.operands
        return [f"const GLOBAL {TYPES[operand.dtype]} *RESTRICT operand{i}" for i, operand in enumerate(operands)]

    def value(self, text: Text, element: str, at: str, column: str) -> str:
        """Return the result for an element (f32, or i32 of integers) at an index and column of the result.

        Raises:
            UnwrittenError: the epilogue has no text.
        """
        if self.epilogue is None:
            return element
        own = text.define("i32" if str(self.epilogue.element.ty.dtype) == "int32" else "f32", element, "element")
        names = {key(self.epilogue.element): own}
        places = {"same": at, "column": column, "one": "0"}
        for i, operand in enumerate(self.epilogue.operands):
            load = f"operand{i}[{places[operand.where]}]"
            load = f"from_f16({load})" if TYPES[operand.dtype] == "u16" else load
            names[key(operand.var)] = text.define(_Numbered.TYPES[operand.dtype], load, "read")
        return _Numbered(text, names).of(self.epilogue.value)


PLAIN = FusedEpilogue()


def fuse(epilogue: Epilogue, result: str) -> FusedEpilogue | None:
    """Return an epilogue whose result has a type, by NumPy's name; None if it has no text."""
    fused = FusedEpilogue(epilogue, _MEMORY.get(result, ""))
    try:
        fused.value(Text(), "0", "0", "0")
    except (UnwrittenError, KeyError):
        return None
    return fused if fused.result in ("f32", "f16", "i32", "u8", "i8") else None


class _Numbered(Expressions):
    """Common subexpressions are computed once: each part has a name."""

    TYPES: ClassVar[Mapping[str, str]] = {**Expressions.TYPES, "uint32": "u32"}

    def __init__(self, text: Text, names: Mapping[int, str]) -> None:
        super().__init__(text, names)
        self._lines, self._known = text, dict[str, str]()

    def bind(self, var: Any, value: Any) -> str:
        return self.of(value)

    def of(self, expr: Any) -> str:
        if isinstance(expr, (tirx.Let, tirx.Var, tirx.FloatImm, tirx.IntImm)):
            return super().of(expr)
        kind = self.type_of(expr)
        written = f"{kind} {self._part(expr, kind)}"
        if written not in self._known:
            self._known[written] = self._lines.define(*written.split(" ", 1))
        return self._known[written]

    def _part(self, expr: Any, kind: str) -> str:
        if isinstance(expr, tirx.Cast):
            return self._converted(expr, kind)
        if kind == "f32" and type(expr) in _FLOATS:
            return f"{self.of(expr.a)} {_FLOATS[type(expr)]} {self.of(expr.b)}"
        if isinstance(expr, tirx.LShift):
            return f"({kind})((u32){self.of(expr.a)} << {self.of(expr.b)})"
        if isinstance(expr, tirx.RShift):
            return f"({self.of(expr.a)} >> {self.of(expr.b)})"
        if not isinstance(expr, tvm.ir.Call):
            return super().of(expr)
        name = str(getattr(expr.op, "name", ""))
        given = [self.of(x) for x in expr.args]
        if name == "tirx.reinterpret":
            return f"FLOAT((u32)({given[0]}))" if kind == "f32" else f"({kind})BITS({given[0]})"
        if name in _CALLS:
            return _CALLS[name].format(*given)
        return super().of(expr)

    def _converted(self, expr: Any, kind: str) -> str:
        value, given = expr.value, self.of(expr.value)
        if str(expr.ty.dtype) == "float16" and str(value.ty.dtype) != "float16":
            return f"from_f16(to_f16((f32)({given})))"
        return f"({given} != 0)" if kind == "bool" else f"({kind})({given})"
