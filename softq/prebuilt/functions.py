"""Which functions a library that is built ahead of all models has operators for."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from softq.codegen.cpu.operator_levels import AheadFunction
from softq.errors import UsageError
from softq.methods import DEFAULT_METHOD, METHODS, Method, Options
from softq.plans import DEFAULT_MAX_LENGTH
from softq.rowprog.onnx import function_name

WIDTHS = range(2, 9)
"""Bits of a code, where a method has codes."""


def functions(methods: Collection[str] | None = None, widths: Collection[int] = WIDTHS) -> list[AheadFunction]:
    """Return the functions that `convert` writes for drop-in methods whose options are the defaults, but for the width.

    With calibration data and without, with a mask and without; for rows up to what `convert` proves by default. Those
    of the default method are fast, the others small.

    Args:
        methods: Names of the methods; by default all that serve a model trained with the exact softmax.
        widths: Bits of a code, where a method has codes.
    """
    chosen = [METHODS.get(name) for name in METHODS.entries() if methods is None or name in methods]
    found: dict[str, AheadFunction] = {}
    for method in chosen:
        small = method.name != DEFAULT_METHOD
        for options in usual_options(method, widths) if method.drop_in else ():
            plain, masked = (method.program(options, masked=there) for there in (False, True))
            for program in (plain, masked):
                kernel = masked if small else program
                found.setdefault(function_name(program), AheadFunction(program, kernel, DEFAULT_MAX_LENGTH, small))
    return list(found.values())


def usual_options(method: Method, widths: Collection[int] = WIDTHS) -> Iterator[Options]:
    """Yield a method's default options for each width that it has, without calibration data and with them."""
    for bits in widths if "bits" in method.options.specs() else (None,):
        try:
            given = method.configure({} if bits is None else {"bits": bits})
        except UsageError:  # not of this width
            continue
        for calibrated in (False, True):
            yield method.resolve(given, calibrated)
