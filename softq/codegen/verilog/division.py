"""Division of integers, one bit of the quotient at each clock."""

from __future__ import annotations

from collections.abc import Callable

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.signals import Signal


def divide_in_stages(
    module: Module, name: str, dividend: Signal, divisor: Callable[[int], Signal], width: int
) -> Signal:
    """Return the quotient of two values of at least 0, `width` clocks later; one division may begin at each clock.

    The quotient is known to have `width` bits, so what is left of the dividend without as many of its lowest bits is
    less than the divisor: it is the first remainder.

    Args:
        module: Where it is written.
        name: What names begin with.
        dividend: The dividend, in the first clock.
        divisor: The divisor so many clocks later.
        width: Bits of the quotient.
    """
    rest = dividend.drop(width) if dividend.width > width else Signal("1'b0", 1, False, 0)
    bits = divisor(0).width
    coming, quotient = Signal(dividend.to_width(width), width, False), ""
    left = rest.to_width(bits)
    for stage in range(width):
        at = f"{name}_d{stage}"
        top = coming.name if coming.width == 1 else f"{at}_in[{coming.width - 1}]"
        if coming.width > 1:
            module.wire(f"{at}_in", coming.width, coming.name)
        trial = module.wire(f"{at}_trial", bits + 1, f"{{{left}, {top}}}")
        less = module.wire(f"{at}_less", bits + 2, f"{{1'b0, {trial.name}}} - {divisor(stage).to_width(bits + 2)}")
        fits = module.wire(f"{at}_fits", 1, f"~{less.name}[{bits + 1}]")
        taken = module.register(f"{at}_left", bits, f"{fits.name} ? {less.to_width(bits)} : {trial.to_width(bits)}")
        left = taken.name
        quotient = module.register(
            f"{at}_quotient", stage + 1, f"{{{quotient}, {fits.name}}}" if quotient else fits.name
        ).name
        if coming.width > 1:
            coming = module.register(f"{at}_coming", coming.width - 1, f"{at}_in[{coming.width - 2}:0]")
    return Signal(quotient, width, False)
