"""TIR functions as functions of C99.

Loop ends are computed once. Memory is read and written by types that may alias, since steps share an arena.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from softq.artifact.firmware.numbers import ctype, literal
from softq.codegen.c.defined import Data
from softq.codegen.c.expressions import Expressions
from softq.codegen.c.terms import bare, count, dtype, is_address, is_pointer, is_zero, memory_type, pointee, within
from softq.codegen.cpu.rows.arguments import CONSTANTS, PROVED
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key
from softq.errors import RefusalError

_WITH_EFFECT = ("tirx.call_extern",)
"""Calls that may write what they are given addresses of."""


def constants_of(function: tirx.PrimFunc) -> dict[str, NDArray[np.generic]]:
    """Return the constant arrays that stand in the place of parameters, by the name of the parameter."""
    given = {} if function.attrs is None else function.attrs.get(CONSTANTS, {})
    return {str(name): array.numpy() for name, array in dict(given).items()}


class Function(Expressions):
    """The text of one function.

    Args:
        function: What `lower` made of a kernel; only pointers and integers are parameters.
        name: What it is called.
        constants: Arrays in read-only memory in the place of parameters, by the name of the parameter.
    """

    def __init__(self, function: tirx.PrimFunc, name: str, constants: Mapping[str, NDArray[np.generic]]) -> None:
        self._function = function
        self._constants = constants
        super().__init__(name)
        if function.attrs is None or PROVED not in function.attrs:
            self.data = Data(function.body)
        self._written: set[int] = set()
        self._lines: list[str] = []
        self._depth = 1
        self._begun: Any = None
        self._stores = Counter(key(store.buffer) for store in found(function.body, tirx.BufferStore))
        self._find_roots()
        self._find_definitions()
        self._params: list[str] = []
        for param in function.params:
            given = self.name_of(param, str(param.name))
            if str(param.name) not in self._constants:
                self._params.append(f"{self._parameter_type(param)}{given}")
        self._statement(function.body)

    def head(self) -> str:
        """Return the name with the parameters."""
        return f"{self.name}({', '.join(self._params) or 'void'})"

    def body(self) -> str:
        """Return what is between the braces, with them."""
        tables = "".join(f"    {line}\n" for line in self._tables())
        return "{\n" + tables + "".join(self._lines) + "}\n"

    def writes(self) -> list[bool]:
        """Return which parameters are pointers to memory that it writes."""
        return [
            key(param) in self._written for param in self._function.params if str(param.name) not in self._constants
        ]

    def _parameter_type(self, param: Any) -> str:
        if not is_pointer(param):
            return ctype(dtype(param)) + " "
        return f"{'' if key(param) in self._written else 'const '}{memory_type(pointee(param))} *"

    def _find_roots(self) -> None:
        """Find whose memory each buffer is: a parameter's, or that of a buffer of the function's own."""
        inside: dict[int, Any] = {}
        for view in found(self._function.body, tirx.DeclBuffer):
            data = view.data
            if is_address(data):
                inside[key(view.buffer)] = data.args[0].source
                continue
            root = data.args[0] if isinstance(data, tvm.ir.Call) else data
            self.roots[key(view.buffer)] = self.roots.get(key(root), root)
        given = [arg.args[0].source if is_address(arg) else self.pointer(arg)
                 for call in found(self._function.body, tvm.ir.Call)
                 if str(getattr(call.op, "name", "")) in _WITH_EFFECT for arg in call.args[1:]
                 if is_address(arg) or self.pointer(arg) is not None]  # fmt: skip
        for buffer in (*given, *(store.buffer for store in found(self._function.body, tirx.BufferStore))):
            root = self.root(buffer)
            while root is not None and key(root) not in self._written:
                self._written.add(key(root))
                outer = inside.get(key(root))
                root = None if outer is None else self.root(outer)

    def _find_definitions(self) -> None:
        """Find what variables are that have one value."""
        for bind in found(self._function.body, tirx.Bind):
            self.definitions[key(bind.var)] = bind.value
        own = {key(a.buffer) for a in found(self._function.body, tirx.AllocBuffer) if count(a.buffer) == 1}
        for store in found(self._function.body, tirx.BufferStore):
            if key(store.buffer) in own and self._stores[key(store.buffer)] == 1:
                self.definitions[key(store.buffer)] = store.value

    def _tables(self) -> Iterator[str]:
        used = {str(var.name) for var in found(self._function.body, tirx.Var)}
        for name, array in self._constants.items():
            if name not in used:
                continue  # what it holds is computed
            kind = str(array.dtype)
            values = ", ".join(literal(value, kind) for value in array.ravel().tolist())
            yield f"static const {memory_type(kind)} {name}[{array.size}] = {{{values}}};"

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text + "\n")

    def _statement(self, statement: Any) -> None:
        for kind, emit in _STATEMENTS.items():
            if isinstance(statement, kind):
                emit(self, statement)
                return
        raise RefusalError(f"a statement {type(statement).__name__} of {self.name} has no form in C")

    def _block(self, statement: Any) -> None:
        self._depth += 1
        self._statement(statement)
        self._depth -= 1

    def sequence(self, statement: tirx.SeqStmt) -> None:
        """Emit statements one after another; a variable that is written at once begins with that value."""
        parts = list(statement.seq)
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            begins = isinstance(part, tirx.AllocBuffer) and isinstance(following, tirx.BufferStore)
            if begins and following.buffer.same_as(part.buffer) and count(part.buffer) == 1:
                self._begun = part.buffer
            self._statement(part)

    def evaluate(self, statement: tirx.Evaluate) -> None:
        """Emit what is computed for its effect; a number has none."""
        if not isinstance(statement.value, tirx.IntImm):
            self._line(f"{self.expression(statement.value)};")

    def allocate(self, statement: tirx.AllocBuffer) -> None:
        """Emit memory of the function's own; of one element it is a variable."""
        buffer, size = statement.buffer, count(statement.buffer)
        name = self.name_of(buffer, str(buffer.name) or "x")
        kind = ctype(str(buffer.dtype)) if size == 1 else memory_type(str(buffer.dtype))
        if size == 1:
            self.scalars.add(key(buffer))
        if self._begun is None:
            self._line(f"{kind} {name}{'' if size == 1 else f'[{size}]'};")

    def declare(self, statement: tirx.DeclBuffer) -> None:
        """Emit a pointer to a place inside other memory; another view is the memory itself."""
        if is_address(statement.data):
            buffer = statement.buffer
            kind = memory_type(str(buffer.dtype))
            qualified = kind if key(buffer) in self._written else f"const {kind}"
            name = self.name_of(buffer, str(buffer.name) or "view")
            self._line(f"{qualified} *const {name} = ({qualified} *){self.address(statement.data)};")

    def store(self, statement: tirx.BufferStore) -> None:
        """Emit an assignment."""
        buffer, value = statement.buffer, self.expression(statement.value)
        if str(buffer.dtype) == "bool" and key(self.root(buffer)) not in self.scalars:
            value = f"(uint8_t){value}"
        elif isinstance(statement.value, tirx.Cast) and key(self.root(buffer)) not in self.scalars:
            # gcc takes an element's type, which may alias, for another one, and would warn of a conversion.
            value = f"({memory_type(str(buffer.dtype))}){value}"
        begins = ""
        if self._begun is not None:
            begins = f"{'const ' * (self._stores[key(buffer)] == 1)}{ctype(str(buffer.dtype))} "
            self._begun = None
        self._line(f"{begins}{self.element(buffer, statement.indices)} = {bare(value)};")

    def condition(self, statement: tirx.IfThenElse) -> None:
        """Emit a choice."""
        self._line(f"if {within(self.expression(statement.condition))} {{")
        self._block(statement.then_case)
        if statement.else_case is not None:
            self._line("} else {")
            self._block(statement.else_case)
        self._line("}")

    def loop(self, statement: tirx.For) -> None:
        """Emit a loop, whose end is computed before it."""
        name, kind = self.name_of(statement.loop_var, str(statement.loop_var.name)), ctype(dtype(statement.loop_var))
        first = self.position(statement.min)
        extent = statement.extent
        known = isinstance(extent, tirx.IntImm) and isinstance(statement.min, tirx.IntImm)
        last = str(int(extent) + int(statement.min)) if known else self.position(extent)
        if not known and not is_zero(statement.min):
            last = f"{first} + {last}"
        if not known and not isinstance(extent, tirx.Var):
            end = self.name_of(statement, f"{name}_end")
            self._line(f"const {kind} {end} = {last};")
            last = end
        self._line(f"for ({kind} {name} = {first}; {name} < {last}; ++{name}) {{")
        self._block(statement.body)
        self._line("}")

    def bind(self, statement: tirx.Bind) -> None:
        """Emit a value with a name."""
        name = self.name_of(statement.var, str(statement.var.name))
        self._line(f"const {ctype(dtype(statement.var))} {name} = {self.position(statement.value)};")

    def attribute(self, statement: tirx.AttrStmt) -> None:
        """Emit what an annotation is about."""
        self._statement(statement.body)


_STATEMENTS: Mapping[type, Callable[[Function, Any], None]] = {
    tirx.SeqStmt: Function.sequence,
    tirx.BufferStore: Function.store,
    tirx.For: Function.loop,
    tirx.IfThenElse: Function.condition,
    tirx.AllocBuffer: Function.allocate,
    tirx.DeclBuffer: Function.declare,
    tirx.Bind: Function.bind,
    tirx.Evaluate: Function.evaluate,
    tirx.AttrStmt: Function.attribute,
}
