"""Integer operators: shifts, division and normalization without calls of the compiler's library."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.tir import BOOL, F64, Local, bits_of, broadcast, cast, hidden, intrinsic, is_signed
from softq.rowprog.program import Node, number_of

_WORD = "int32"


def shift(e: Emission, node: Node) -> Expr:
    """Return `shl` or `shr`; the amount is proved below the width of the program's type, hence of the carrier's."""
    scaled = _scaled_product(e, node)
    if scaled is not None:
        return scaled
    name = e.common(node)
    operation = script.shift_left if node.op == "shl" else script.shift_right
    amount = e.operand(node, 1, name)
    width = bits_of(name)
    if width < node.dtype.bits:
        # The carrier may be narrower than the type: all shifts from its width on give what the last one gives.
        _, most = e.interval(node.args[1])
        if most >= width:
            return _far_shift(e, node, name)
    return e.convert(operation(e.operand(node, 0, name), amount), name, e.type_of(node))


def product(e: Emission, node: Node, name: str) -> Expr | None:
    """Return a product in 64 bits of numbers of 32, an instruction of processors of 32 bits; None if it is none.

    TVM would widen the numbers of which a factor is a sum, and compilers multiply 64 bits then, as they do where they
    know that one factor is not negative.
    """
    if name != "int64" or not _are_words(e, node):
        return None
    if not e.processor.machine.in_c:
        factors = [e.operand(node, at, _WORD) for at in (0, 1)]
        if e.bits or any(e.interval(arg)[0] < 0 for arg in node.args):
            factors = [hidden(x) for x in factors]
        return tirx.Mul(*(cast(x, _WORD, name, 1) for x in factors))
    return tirx.call_pure_extern("int64", "product_int32", *(e.operand(node, at, _WORD) for at in (0, 1)))


def _are_words(e: Emission, node: Node) -> bool:
    """Say whether both operands are of 32 bits where each integer has as many as it needs."""
    return e.fits_words and all(e.type_of(arg) == _WORD for arg in node.args)


def _scaled_product(e: Emission, node: Node) -> Expr | None:
    """Return a product that is divided by a power of two, half up, (a * b + 2^(s - 1)) >> s; None if it is none."""
    total, by = node.args
    if node.op != "shr" or total.op != "add" or by.op != "const" or e.type_of(node) != _WORD:
        return None
    (found, half), right = total.args, int(number_of(by))
    is_half = half.op == "const" and 0 < right <= bits_of(_WORD) and number_of(half) == 1 << (right - 1)
    if not is_half or not e.processor.machine.in_c or found.op != "mul" or not _are_words(e, found):
        return None
    return tirx.call_pure_extern(_WORD, f"scaled_{right}", *(e.operand(found, at, _WORD) for at in (0, 1)))


def _far_shift(e: Emission, node: Node, name: str) -> Expr:
    amount, last = e.operand(node, 1, name), e.const(bits_of(name) - 1, name)
    near = tirx.Select(tirx.LT(amount, last), amount, last)
    x = e.operand(node, 0, name)
    if node.op == "shr" and not is_signed(name):
        # One more bit: shifting an unsigned number by its width would leave its top bit.
        shifted = script.shift_right(script.shift_right(x, near), tirx.Cast(e.vector(name), tirx.LT(last, amount)))
    else:
        shifted = script.shift_right(x, near) if node.op == "shr" else script.shift_left(x, near)
    return e.convert(shifted, name, e.type_of(node))


def divide(e: Emission, node: Node) -> Expr:
    """Return the quotient of integers, the dividend not negative and the divisor positive."""
    name = e.common(node)
    a, b = e.operand(node, 0, name), e.operand(node, 1, name)
    result = e.type_of(node)
    if bits_of(name) <= 32 and e.fits_words:
        # A function of the compiler's library, where there is no instruction, is shorter than one for floats.
        return e.convert(script.truncdiv(a, b), name, result)
    if bits_of(name) <= 32 and (e.lanes > 1 or e.processor.is_32_bit):
        # Exact: two integers of 32 bits have quotients that lie 2^-32 from the next integer, and f64 has 53 bits. It
        # has vectors, and processors without division of integers would call the compiler's library.
        quotient = tirx.Div(cast(a, name, F64, e.lanes), cast(b, name, F64, e.lanes))
        whole = "int32" if is_signed(name) or bits_of(name) < 32 else "uint32"
        return cast(cast(quotient, F64, whole, e.lanes), whole, result, e.lanes)
    if e.processor.is_32_bit:
        return e.convert(long_division(a, b, name, e.lanes), name, result)
    return e.convert(script.truncdiv(a, b), name, result)


def long_division(a: Expr, b: Expr, name: str, lanes: int) -> Expr:
    """Return the quotient bit by bit, of a dividend >= 0 and a divisor > 0."""
    unsigned, bits = f"uint{bits_of(name)}", bits_of(name)
    dividend = Local.of(cast(a, name, unsigned, lanes), unsigned, lanes)
    divisor = Local.of(cast(b, name, unsigned, lanes), unsigned, lanes)
    one, zero = (broadcast(tirx.const(v, unsigned), lanes) for v in (1, 0))
    rest, quotient = Local.of(zero, unsigned, lanes), Local.of(zero, unsigned, lanes)
    with script.serial(tirx.const(bits, "int32")):
        top = script.shift_right(dividend.get(), broadcast(tirx.const(bits - 1, unsigned), lanes))
        # A rest of 2^(bits - 1) and more, shifted, has lost its top bit and is above any divisor.
        carry = Local.of(
            script.shift_right(rest.get(), broadcast(tirx.const(bits - 1, unsigned), lanes)), unsigned, lanes
        )
        rest.set(script.bitwise_or(script.shift_left(rest.get(), one), top))
        dividend.set(script.shift_left(dividend.get(), one))
        fits = tirx.Or(tirx.LE(divisor.get(), rest.get()), tirx.NE(carry.get(), zero))
        digit = Local.of(tirx.Select(fits, one, zero), unsigned, lanes)
        rest.set(tirx.Sub(rest.get(), tirx.Mul(divisor.get(), digit.get())))
        quotient.set(script.bitwise_or(script.shift_left(quotient.get(), one), digit.get()))
    return cast(quotient.get(), unsigned, name, lanes)


def normalize(e: Emission, node: Node) -> Expr:
    """Return the mantissa or the shift of a positive u32 scalar: leading zeros by bisection, without a library."""
    name = "uint32"
    if e.processor.machine.in_c:
        # A function of the text, which asks the compiler where the processor has an instruction.
        x, of = e.operand(node, 0, name), node.args[0]
        if of not in e.zeros:
            e.zeros[of] = Local.of(intrinsic("llvm.ctlz", "int32", 1, e.share(x, name)), "int32", 1)
        zeros = e.zeros[of].get()
        return zeros if node.attrs["part"] == "shift" else script.shift_left(x, cast(zeros, "int32", name, 1))
    if e.processor.has_mve:
        x = e.share(e.operand(node, 0, name), name)
        zeros = cast(intrinsic("llvm.ctlz", name, 1, x, tirx.const(False, BOOL)), name, "int32", 1)
        return zeros if node.attrs["part"] == "shift" else script.shift_left(x, cast(zeros, "int32", name, 1))
    x = Local.of(e.operand(node, 0, name), name, 1)
    count = Local.of(tirx.const(0, "int32"), "int32", 1)
    for step in (16, 8, 4, 2, 1):
        empty = Local.of(tirx.LT(x.get(), tirx.const(1 << (32 - step), name)), "bool", 1)
        count.set(tirx.Add(count.get(), tirx.Select(empty.get(), tirx.const(step, "int32"), tirx.const(0, "int32"))))
        x.set(tirx.Select(empty.get(), script.shift_left(x.get(), tirx.const(step, name)), x.get()))
    return count.get() if node.attrs["part"] == "shift" else x.get()
