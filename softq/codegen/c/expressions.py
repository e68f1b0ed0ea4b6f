"""Expressions of TIR in C99, with exactly the type that they have in TIR.

Signed integers of 32 bits and more must not overflow where they are positions; those of data wrap (`defined`), as
others do. Every narrow result is converted to its type again, so that no conversion is implicit. Literals of floats are
hexadecimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx

from softq.artifact.firmware.numbers import NATIVE, bits_of, ctype, literal
from softq.codegen.c.defined import Data, cast_helper, quotient_helper
from softq.codegen.c.four_bytes import FOUR_BYTES, HAS_DSP
from softq.codegen.c.names import MATH_H, OF_BITS, OF_MATH, free_name
from softq.codegen.c.prelude import EXTREMES, PRODUCTS
from softq.codegen.c.terms import (
    HELPER,
    as_type,
    bare,
    converted,
    dtype,
    intrinsic_name,
    is_address,
    is_kernel_call,
    is_pointer,
    promoted,
    unsigned,
)
from softq.compiler.tir.symbolic import key
from softq.errors import RefusalError

_ARITHMETIC: Mapping[type, str] = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*"}
_QUOTIENTS: Mapping[type, str] = {tirx.Div: "/", tirx.Mod: "%"}
_CONDITIONS: Mapping[type, str] = {
    tirx.EQ: "==", tirx.NE: "!=", tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.And: "&&",
    tirx.Or: "||",
}  # fmt: skip
_BITWISE: Mapping[type, str] = {tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^"}
_SAME = ("llvm.arithmetic.fence",)
"""Intrinsics of LLVM that give back what they are given: the text is compiled without contraction anyway."""


class Expressions:
    """The expressions of one function, and the names in them.

    Attributes:
        name: The function.
        used: Names of the helpers that are called (`prelude.helper`).
        scalars: The buffers that are variables.
        roots: Whose memory a view of another name is: a parameter, or a buffer of the function's own.
        definitions: What variables are that have one value.
        data: What hangs on data; None if all integers are proved to fit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.used: set[str] = set()
        self.scalars: set[int] = set()
        self.roots: dict[int, Any] = {}
        self.definitions: dict[int, Any] = {}
        self.data: Data | None = None
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()

    def root(self, buffer: Any) -> Any:
        """Return whose memory a buffer is."""
        return self.roots.get(key(buffer), buffer)

    def name_of(self, var: Any, wanted: str) -> str:
        """Return the name of a variable, a buffer or a parameter, by default the one that is wanted."""
        if key(var) not in self._names:
            self._names[key(var)] = free_name(wanted, self._taken)
            self._taken.add(self._names[key(var)])
        return self._names[key(var)]

    def element(self, buffer: Any, indices: Sequence[Any]) -> str:
        """Return an element of memory, or a variable."""
        root = self.root(buffer)
        name = self.name_of(root, str(root.name))
        if key(root) in self.scalars:
            return name
        assert len(indices) == 1, buffer
        return f"{name}[{self.position(indices[0])}]"

    def position(self, x: Any) -> str:
        """Return an expression that stands alone, without brackets around it."""
        return bare(self.expression(x))

    def expression(self, x: Any) -> str:
        """Return an expression of exactly the type that it has in TIR; it binds tighter than any operator."""
        for kind, emit in _EXPRESSIONS.items():
            if isinstance(x, kind):
                return emit(self, x)
        raise RefusalError(f"an expression {type(x).__name__} of {self.name} has no form in C")

    def number(self, x: Any) -> str:
        """Return a constant."""
        return literal(x.value, dtype(x))

    def variable(self, x: Any) -> str:
        """Return a variable."""
        return self.name_of(x, str(x.name))

    def load(self, x: Any) -> str:
        """Return an element of memory."""
        element = self.element(x.source, x.indices)
        is_byte = str(x.source.dtype) == "bool" and key(self.root(x.source)) not in self.scalars
        return f"({element} != 0)" if is_byte else element

    def arithmetic(self, x: Any) -> str:
        """Return a sum, a difference or a product."""
        sign, name = _ARITHMETIC[type(x)], dtype(x)
        a, b = self.expression(x.a), self.expression(x.b)
        if name.startswith("float"):
            return f"({a} {sign} {b})"
        if name == "uint16" and sign == "*":
            # As ints they could overflow.
            return f"(uint16_t)((uint32_t){a} * (uint32_t){b})"
        if name in ("int32", "int64") and self.data is not None and x in self.data:
            wide = unsigned(name)
            return converted(f"{as_type(a, name, wide)} {sign} {as_type(b, name, wide)}", wide, name)
        return converted(f"{a} {sign} {b}", promoted(name), name)

    def quotient(self, x: Any) -> str:
        """Return a quotient or a rest, towards zero for integers."""
        name = dtype(x)
        helper = None if self.data is None else quotient_helper(x, self.data)
        if helper is not None:
            return f"{self._help(helper)}({self.position(x.a)}, {self.position(x.b)})"
        text = f"{self.expression(x.a)} {_QUOTIENTS[type(x)]} {self.expression(x.b)}"
        return f"({text})" if name.startswith("float") else converted(text, promoted(name), name)

    def condition_of(self, x: Any) -> str:
        """Return a comparison, a conjunction or a disjunction."""
        return f"({self.expression(x.a)} {_CONDITIONS[type(x)]} {self.expression(x.b)})"

    def inverse(self, x: Any) -> str:
        """Return a negation."""
        return f"!{self.expression(x.a)}"

    def extreme(self, x: Any) -> str:
        """Return the lesser or the greater of two numbers, the second one if the first is NaN."""
        names = ("min", "max")
        if isinstance(x.b, tirx.FloatImm) and dtype(x) == "float32" and x.b.value not in (0.0, math.inf, -math.inf):
            # Beside a number that is not 0 this gives what the function of math.h does, of NaN and zeros, too.
            names = ("least", "greatest") if not math.isnan(x.b.value) else names
        function = self._help(f"{names[isinstance(x, tirx.Max)]}_{dtype(x)}")
        return f"{function}({self.position(x.a)}, {self.position(x.b)})"

    def choice(self, x: Any) -> str:
        """Return one of two values."""
        given = x.args if isinstance(x, tvm.ir.Call) else (x.condition, x.true_value, x.false_value)
        condition, yes, no = map(self.expression, given)
        name = dtype(x)
        text = f"{condition} ? {yes} : {no}"
        return f"({text})" if bits_of(name) >= NATIVE else f"({ctype(name)})({text})"

    def cast(self, x: Any) -> str:
        """Return a number in another type; integers wrap."""
        old, new = dtype(x.value), dtype(x)
        if new == "bool":
            return f"({self.expression(x.value)} != {literal(0, old)})"
        helper = None if self.data is None else cast_helper(x, self.definitions)
        if helper is not None:
            return as_type(f"{self._help(helper)}({self.position(x.value)})", helper.split("_")[1], new)
        return self.expression(x.value) if old == new else f"({ctype(new)}){self.expression(x.value)}"

    def call(self, x: Any) -> str:
        """Return the call of a function."""
        name = str(x.op.name)
        if name not in _CALLS:
            what = " ".join([name, *(str(arg.value) for arg in x.args[:1] if isinstance(arg, tvm.ir.StringImm))])
            raise RefusalError(f"the function {what} of {self.name} has no form in C")
        return _CALLS[name](self, x)

    def intrinsic(self, x: Any) -> str:
        """Return what stands for an intrinsic of LLVM."""
        name = intrinsic_name(x)
        if name in OF_BITS:
            return f"{self._help(OF_BITS[name])}({self.position(x.args[1])})"
        given = [self.expression(arg) for arg in x.args[1:]]
        if name in _SAME:
            return given[0]
        if name in OF_MATH:
            return f"{OF_MATH[name]}{'f' if dtype(x) == 'float32' else ''}({', '.join(given)})"
        raise RefusalError(f"the intrinsic {name} of {self.name} has no form in C")

    def of_math(self, x: Any) -> str:
        """Return the call of a function of math.h, or of a helper."""
        name, *given = x.args
        if str(name.value) == HAS_DSP:
            self.used.add(HAS_DSP)
            return "(SQ_DSP != 0)"
        if str(name.value) in (*FOUR_BYTES, *EXTREMES) or str(name.value).startswith(PRODUCTS):
            texts = [self.address(arg) if is_address(arg) else self.position(arg) for arg in given]
            return f"{self._help(str(name.value))}({', '.join(texts)})"
        if str(name.value) not in MATH_H:
            raise RefusalError(f"the function {name.value} of {self.name} has no form in C")
        return f"{name.value}({', '.join(map(self.position, given))})"

    def no_number(self, x: Any) -> str:
        """Return whether a float is none: what is not equal to itself."""
        inner = self.expression(x.args[0])
        return f"({inner} != {inner})"

    def magnitude(self, x: Any) -> str:
        """Return a float without its sign."""
        return f"fabs{'f' if dtype(x) == 'float32' else ''}({self.position(x.args[0])})"

    def bitwise(self, x: Any) -> str:
        """Return an operation on bits."""
        kind = dtype(x)
        return converted(f"{self.expression(x.a)} {_BITWISE[type(x)]} {self.expression(x.b)}", promoted(kind), kind)

    def shift(self, x: Any) -> str:
        """Return a shift; that to the left goes by way of an unsigned type."""
        kind = dtype(x)
        a, b = self.expression(x.a), self.expression(x.b)
        if isinstance(x, tirx.RShift):
            return converted(f"{a} >> {b}", promoted(kind), kind)
        return converted(f"{as_type(a, kind, unsigned(kind))} << {b}", unsigned(kind), kind)

    def complement(self, x: Any) -> str:
        """Return all bits inverted."""
        return converted(f"~{self.expression(x.a)}", promoted(dtype(x)), dtype(x))

    def address(self, x: Any) -> str:
        """Return the address of an element."""
        load = x.args[0]
        return f"&{self.element(load.source, load.indices)}"

    def kernel(self, x: Any) -> str:
        """Return the call of another kernel."""
        name, *given = x.args
        if not is_kernel_call(x):
            self.used.add(str(name.value).removeprefix(HELPER))
        return f"{name.value}({', '.join(map(self._argument, given))})"

    def _argument(self, x: Any) -> str:
        if is_address(x):
            return f"(void *){self.address(x)}"
        root = self.pointer(x)
        return self.position(x) if root is None else f"(void *){self.name_of(root, str(root.name))}"

    def pointer(self, x: Any) -> Any:
        """Return what an expression points to the beginning of; None if it is no pointer."""
        if isinstance(x, tvm.ir.Call) and str(x.op.name) == "tirx.buffer_data":
            return self.root(x.args[0])
        return x if isinstance(x, tirx.Var) and is_pointer(x) else None

    def reinterpreted(self, x: Any) -> str:
        """Return the same bits as another type."""
        old, new = dtype(x.args[0]), dtype(x)
        inner = self.expression(x.args[0])
        if not {"float32", "float64"} & {old, new}:
            return f"({ctype(new)}){inner}"
        return f"{self._help(f'{new}_of_{old}')}({inner})"

    def _help(self, name: str) -> str:
        self.used.add(name)
        return f"sq_{name}"


_CALLS: Mapping[str, Callable[[Expressions, Any], str]] = {
    "prim.if_then_else": Expressions.choice,
    "tirx.isnan": Expressions.no_number,
    "tirx.fabs": Expressions.magnitude,
    "tirx.reinterpret": Expressions.reinterpreted,
    "tirx.call_llvm_pure_intrin": Expressions.intrinsic,
    "tirx.call_pure_extern": Expressions.of_math,
    "tirx.call_llvm_intrin": Expressions.intrinsic,
    "tirx.call_extern": Expressions.kernel,
    "tirx.address_of": Expressions.address,
}
_EXPRESSIONS: Mapping[type | tuple[type, ...], Callable[[Expressions, Any], str]] = {
    (tirx.IntImm, tirx.FloatImm): Expressions.number,
    tvm.ir.TensorLoad: Expressions.load,
    tirx.Var: Expressions.variable,
    tuple(_ARITHMETIC): Expressions.arithmetic,
    tuple(_QUOTIENTS): Expressions.quotient,
    tuple(_CONDITIONS): Expressions.condition_of,
    tuple(_BITWISE): Expressions.bitwise,
    (tirx.LShift, tirx.RShift): Expressions.shift,
    (tirx.Min, tirx.Max): Expressions.extreme,
    tirx.Not: Expressions.inverse,
    tirx.BitwiseNot: Expressions.complement,
    tirx.Select: Expressions.choice,
    tirx.Cast: Expressions.cast,
    tvm.ir.Call: Expressions.call,
}
