"""A thin layer over TIR: vectors of explicit types, values in local memory, and what must not be simplified away.

Expressions are built from constructors instead of Python's operators, because those fold constants and do not keep
IEEE arithmetic. Every shared value is stored once in local memory, which LLVM turns into registers: expressions that
share others grow exponentially in TVM's analyses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.rowprog.types import DType

BOOL = "bool"
F32 = "float32"
F64 = "float64"

READ, WRITE = "sq_read_", "sq_write_"
"""What the names of functions of LLVM's form begin with that read and write under a mask; type and lanes follow."""

HIDE, COUNT, ROLLED = "sq_hide", "sq_count", "sq_rolled"
"""Functions of LLVM's form, which are no instructions: the same int32, of which LLVM knows nothing, or only that it is
1 or more, and what keeps it from writing turns of a loop one after another."""

_ANY_SIZE = 1 << 62
"""Elements of a buffer whose size only the caller knows."""


def type_name(dtype: DType) -> str:
    """Return TIR's name of an element type."""
    return str(dtype.numpy)


def dtype_of(name: str) -> DType:
    """Return the element type that TIR calls so."""
    return next(dtype for dtype in DType if type_name(dtype) == name)


def bits_of(name: str) -> int:
    """Return the width of a number type by TIR's name of it."""
    return int("".join(c for c in name if c.isdigit()))


def is_signed(name: str) -> bool:
    """Say whether a number type has negative values."""
    return not name.startswith("u")


def vector(name: str, lanes: int) -> str:
    """Return TIR's name of a vector type."""
    return name if lanes == 1 else f"{name}x{lanes}"


def const(value: float, name: str, lanes: int = 1) -> Expr:
    """Return a constant, the same in all lanes."""
    return broadcast(_number(value, name), lanes)


def _number(value: float, name: str) -> Expr:
    if name == BOOL or name.startswith("f"):
        return tirx.const(int(value) if name == BOOL else float(value), name)
    # Integers wrap: what a sum is made of need not fit the type that holds the sum.
    dtype = dtype_of(name)
    whole = (int(value) - dtype.low) % (1 << dtype.bits) + dtype.low
    if whole >= 1 << 63:
        high, low = (tirx.const(part, name) for part in divmod(whole, 1 << 32))
        return script.bitwise_or(script.shift_left(high, tirx.const(32, name)), low)
    return tirx.const(whole, name)


def vector_of(values: Sequence[float], name: str) -> Expr:
    """Return a vector of constants."""
    return shuffle([_number(v, name) for v in values], range(len(values)))


def extreme(greater: bool, a: Expr, b: Expr) -> Expr:
    """Return the greater or the lesser of two numbers of f32; where one is NaN, the other."""
    return tirx.call_pure_extern(F32, f"{'greatest' if greater else 'least'}_{F32}", a, b)


def shuffle(parts: Sequence[Expr], order: Iterable[int]) -> Expr:
    """Return a vector of lanes of others, by their numbers in all of these together."""
    return tirx.Shuffle(list(parts), [tirx.const(i, "int32") for i in order])


def broadcast(x: Expr, lanes: int) -> Expr:
    """Return a scalar in all lanes."""
    return x if lanes == 1 else tirx.Broadcast(x, tirx.const(lanes, "int32"))


def cast(x: Expr, old: str, new: str, lanes: int) -> Expr:
    """Return numbers in another type; integers wrap."""
    return x if old == new else tirx.Cast(vector(new, lanes), x)


def reinterpret(x: Expr, new: str, lanes: int) -> Expr:
    """Return the same bits as another type of the same width."""
    return script.reinterpret(vector(new, lanes), x)


def intrinsic(name: str, result: str, lanes: int, *args: Expr) -> Expr:
    """Return the call of one of LLVM's intrinsics without side effects."""
    return script.call_llvm_pure_intrin(vector(result, lanes), name, *args)


def fence(x: Expr, name: str, lanes: int) -> Expr:
    """Return a float that is not combined with what it is used in, neither by TVM nor by LLVM."""
    return intrinsic("llvm.arithmetic.fence", name, lanes, x)


def opaque(x: Expr, name: str, lanes: int, at: Expr | None = None) -> Expr:
    """Return numbers of which LLVM knows nothing.

    It makes loops that copy or repeat what it knows calls of the C library's memcpy and memset. A single byte that is
    the same throughout a loop is enough for that, so that narrow numbers are tied to their position `at`.
    """
    bits = bits_of(name)
    if name == F32:
        return fence(x, F32, lanes)
    if bits >= 32:
        same = f"float{bits}"
        return reinterpret(fence(reinterpret(x, same, lanes), same, lanes), name, lanes)
    if lanes * bits % 32 == 0:
        packed = lanes * bits // 32
        return reinterpret(fence(reinterpret(x, F32, packed), F32, packed), name, lanes)
    wide = cast(cast(x, name, f"uint{bits}", lanes), f"uint{bits}", "int32", lanes)
    if at is not None:
        above = script.shift_left(tirx.Cast("int32", at), tirx.const(bits, "int32"))
        wide = script.bitwise_or(wide, broadcast(above, lanes))
    return cast(opaque(wide, "int32", lanes), "int32", name, lanes)


def hidden(x: Expr) -> Expr:
    """Return an int32 of which LLVM knows nothing; for processors whose objects are linked into projects."""
    return tirx.call_extern("int32", HIDE, x)


def hidden_count(x: Expr) -> Expr:
    """Return the turns of a loop, 1 or more, such that LLVM does not write a few of them one after another."""
    return tirx.call_extern("int32", COUNT, x)


def keep_rolled() -> None:
    """Emit, in a loop, what keeps LLVM from writing its turns one after another."""
    script.evaluate(tirx.call_extern("void", ROLLED))


def lane_numbers(start: Expr, index: str, lanes: int) -> Expr:
    """Return start, start + 1, ... of an index type."""
    return start if lanes == 1 else tirx.Ramp(start, tirx.const(1, index), tirx.const(lanes, "int32"))


def half(x: Expr, lanes: int, upper: bool) -> Expr:
    """Return one half of a vector's lanes."""
    first = lanes // 2 if upper else 0
    return shuffle([x], range(first, first + lanes // 2))


@dataclass(frozen=True)
class Local:
    """A value in local memory; booleans are kept as 0 and 1, because vectors of them cannot be stored."""

    buffer: tirx.Buffer
    name: str
    lanes: int
    first: Expr = field(default_factory=lambda: tirx.const(0, "int32"))

    @staticmethod
    def empty(name: str, lanes: int) -> Local:
        """Return new memory for a value."""
        held = "int8" if name == BOOL else name
        return Local(script.alloc_buffer((lanes,), held, scope="local"), name, lanes)

    @staticmethod
    def of(x: Expr, name: str, lanes: int) -> Local:
        """Return new memory that holds the value."""
        local = Local.empty(name, lanes)
        local.set(x)
        return local

    def at(self, number: Expr) -> Local:
        """Return the memory of one of the lanes."""
        return replace(self, lanes=1, first=number)

    def set(self, x: Expr) -> None:
        """Overwrite the value."""
        if self.name == BOOL:
            x = tirx.Select(x, const(1, "int8", self.lanes), const(0, "int8", self.lanes))
        script.buffer_store(self.buffer, x, [lane_numbers(self.first, "int32", self.lanes)])

    def get(self) -> Expr:
        """Return the value."""
        x = tirx.BufferLoad(self.buffer, [lane_numbers(self.first, "int32", self.lanes)])
        return tirx.NE(x, const(0, "int8", self.lanes)) if self.name == BOOL else x


@dataclass(frozen=True)
class Memory:
    """An array of the caller's, aligned to its elements only."""

    buffer: tirx.Buffer
    name: str
    index: str

    @staticmethod
    def behind(pointer: tirx.Var, name: str, index: str) -> Memory:
        """Return the array that a parameter points to."""
        size = tirx.const(_ANY_SIZE if index == "int64" else (1 << 31) - 1, index)
        return Memory(script.decl_buffer((size,), name, data=pointer, align=bits_of(name) // 8), name, index)

    def beginning_at(self, at: Expr) -> Memory:
        """Return the part of the array that begins with an element."""
        size = self.buffer.shape[0]
        inside = script.decl_buffer((size,), self.name, data=self.address(at), align=bits_of(self.name) // 8)
        return replace(self, buffer=inside)

    def load(self, at: Expr, lanes: int) -> Expr:
        """Return the elements from a position on; with `lanes` 1 those at positions of their own, if there are more."""
        return tirx.BufferLoad(self.buffer, [lane_numbers(at, self.index, lanes)])

    def load_some(self, at: Expr, lanes: int, counted: Expr, other: Expr) -> Expr:
        """Return the elements from a position on where they are counted, else another's; only the counted are read."""
        kind = vector(self.name, lanes)
        return script.call_llvm_intrin(kind, "llvm.masked.load", self.address(at), counted, broadcast(other, lanes))

    def store_some(self, x: Expr, at: Expr, counted: Expr) -> None:
        """Write the elements that are counted from a position on."""
        script.evaluate(script.call_llvm_intrin("void", "llvm.masked.store", x, self.address(at), counted))

    def load_first(self, at: Expr, lanes: int, counted: Expr) -> Expr:
        """Return the elements from a position on where they are counted, else 0, by a function of LLVM's form."""
        kind = vector(self.name, lanes)
        return tirx.call_extern(kind, f"{READ}{self.name}x{lanes}", self.address(at), counted)

    def store_first(self, x: Expr, at: Expr, lanes: int, counted: Expr) -> None:
        """Write the elements that are counted from a position on, by a function of LLVM's form."""
        script.evaluate(tirx.call_extern("void", f"{WRITE}{self.name}x{lanes}", x, self.address(at), counted))

    def prefetch(self, at: Expr) -> None:
        """Ask for the cache line of an element, which need not exist."""
        numbers = (tirx.const(value, "int32") for value in (0, 3, 1))  # to be read, soon, data
        script.evaluate(script.call_llvm_intrin("void", "llvm.prefetch", self.address(at), *numbers))

    def address(self, at: Expr) -> Expr:
        """Return the address of an element."""
        return script.address_of(tirx.BufferLoad(self.buffer, [at]))

    def store(self, x: Expr, at: Expr, lanes: int) -> None:
        """Write elements from a position on."""
        script.buffer_store(self.buffer, x, [lane_numbers(at, self.index, lanes)])
