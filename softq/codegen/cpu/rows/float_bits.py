"""Comparisons of floats by their bits, for processors on which comparing the floats themselves takes more."""

from __future__ import annotations

import math

import numpy as np
from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.tir import reinterpret

WORD = "uint32"


def magnitude(e: Emission, x: Expr) -> Expr:
    """Return the bits of a float but its sign, in the order of the numbers; those of NaN are above infinity's."""
    return script.shift_left(reinterpret(x, WORD, e.lanes), e.const(1, WORD))


def magnitude_of(number: float) -> int:
    """Return what `magnitude` gives of a number."""
    return _bits(abs(number)) << 1


def above(e: Emission, x: Expr, least: float) -> Expr:
    """Say whether a float is greater than a number that is not negative; NaN is not.

    The bits of such floats are those from the least one's to infinity's, counted from there.
    """
    bits, first = reinterpret(x, WORD, e.lanes), _bits(least) + 1
    return tirx.LT(tirx.Sub(bits, e.const(first, WORD)), e.const(_bits(math.inf) + 1 - first, WORD))


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))
