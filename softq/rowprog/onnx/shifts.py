"""Shifts. ONNX shifts unsigned numbers only, and runtimes do so in 32 and 64 bits."""

from __future__ import annotations

import onnx_ir as ir

from softq.errors import RefusalError
from softq.rowprog.onnx.carriers import Carrier
from softq.rowprog.onnx.walker import INT64, Emitted, Walker
from softq.rowprog.program import Node, number_of


def unsigned_shift(w: Walker, value: ir.Value, by: ir.Value, kind: Carrier, direction: str) -> ir.Value:
    """Shift a value that is not negative."""
    shifted = w.add("BitShift", w.cast(value, kind.unsigned), w.cast(by, kind.unsigned), direction=direction)
    return w.cast(shifted, kind.value)


def floor_shift(w: Walker, value: ir.Value, by: ir.Value, kind: Carrier, least: float) -> ir.Value:
    """Return the floor of value / 2^by, where no value is below `least`."""
    if least >= 0:
        return unsigned_shift(w, value, by, kind, "RIGHT")
    # The floor of a negative a / 2^s is -1 - ((-1 - a) >> s).
    minus, negative = w.like(-1, kind), w.add("Less", value, w.like(0, kind))
    shifted = unsigned_shift(w, w.add("Where", negative, w.add("Sub", minus, value), value), by, kind, "RIGHT")
    return w.add("Where", negative, w.add("Sub", minus, shifted), shifted)


def power_of_two(w: Walker, exponent: ir.Value, greatest: float) -> ir.Value:
    """Return 2^exponent as int64.

    Raises:
        RefusalError: the exponent may be so great that int64 does not hold the power.
    """
    if greatest > 62:
        raise RefusalError(
            f"a shift to the left by up to {greatest} cannot be computed in ONNX, where int64 is the widest"
        )
    return unsigned_shift(w, w.constant(1, INT64), exponent, Carrier.INT64, "LEFT")


def shl(w: Walker, node: Node) -> Emitted:
    """Write a * 2^b as a product."""
    kind = w.common(node, 0)
    by = node.args[1]
    if by.op == "const" and int(number_of(by)) < kind.bits - 1:
        return w.add("Mul", w.arg(node, 0, kind), w.like(2 ** int(number_of(by)), kind)), kind
    power = power_of_two(w, w.arg(node, 1), w.proof.interval(by).high)
    product = w.add("Mul", w.arg(node, 0, Carrier.INT64), power)
    return product if kind is Carrier.INT64 else w.cast(product, kind.value), kind


def shr(w: Walker, node: Node) -> Emitted:
    """Write the floor of a / 2^b."""
    kind = w.common(node, 0)
    a, by, carried = w.arg(node, 0, kind), w.arg(node, 1), w.compute(node.args[1])[1]
    if w.proof.interval(node.args[1]).high >= kind.bits:
        # Allowed in the type, but not in a narrower carrier, where nothing is left before that.
        by = w.add("Min", by, w.like(kind.bits - 1, carried))
    return floor_shift(w, a, by, kind, w.proof.interval(node.args[0]).low), kind
