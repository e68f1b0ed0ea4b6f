"""Heads turned by their position, as lines of ONNX text."""

from __future__ import annotations


def numbers(name: str, *values: int) -> str:
    """Return a line for a constant of integers."""
    return f"{name} = Constant <value: tensor = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()"


def turn(source: str, width: int, interleaved: bool) -> list[str]:
    """Return lines for `both`, the pairs turned; pairs are neighbours, or stand half the width apart."""
    half = width // 2
    lines: list[str] = [numbers("halves", half, half), f"a, b = Split <axis: int = 3> ({source}, halves)"]
    if interleaved:
        lines = [
            numbers("pairs", 0, 0, 0, half, 2),
            f"paired = Reshape ({source}, pairs)",
            numbers("ones", 1, 1),
            "a1, b1 = Split <axis: int = 4> (paired, ones)",
            numbers("last", 4),
            "a = Squeeze (a1, last)",
            "b = Squeeze (b1, last)",
        ]
    lines += ["ac = Mul (a, cos)", "bs = Mul (b, sin)", "c = Sub (ac, bs)"]
    lines += ["as = Mul (a, sin)", "bc = Mul (b, cos)", "d = Add (as, bc)"]
    if not interleaved:
        return [*lines, "both = Concat <axis: int = 3> (c, d)"]
    lines += ["c1 = Unsqueeze (c, last)", "d1 = Unsqueeze (d, last)", "cd = Concat <axis: int = 4> (c1, d1)"]
    return [*lines, numbers("flat", 0, 0, 0, width), "both = Reshape (cd, flat)"]
