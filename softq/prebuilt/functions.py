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

    With calibration data and without, with a mask and without, with `--qdq` (but where data fit different numbers for
    the heads of a site) and without; for rows up to what `convert` proves by default. To be fast are those of the
    default method without `--qdq`, where the products take far more time, and those with a scan, whose elements are
    computed one by one.

    Args:
        methods: Names of the methods; by default all that serve a model trained with the exact softmax.
        widths: Bits of a code, where a method has codes, beside its default.
    """
    chosen = [METHODS.get(name) for name in METHODS.entries() if methods is None or name in methods]
    found: dict[str, AheadFunction] = {}
    for method in chosen:
        for options, usual in usual_options(method, widths) if method.drop_in else ():
            plain, masked = (method.program(options, masked=there) for there in (False, True))
            scans = any(node.op == "scan" for node in plain.nodes())
            fast = scans or (usual and method.name == DEFAULT_METHOD)
            for program in (plain, masked):
                made = AheadFunction(program, masked, DEFAULT_MAX_LENGTH, fast, scans)
                found.setdefault(function_name(program), made)
    return list(found.values())


def usual_options(method: Method, widths: Collection[int] = WIDTHS) -> Iterator[tuple[Options, bool]]:
    """Yield a method's default options, and those of each width that it has, with calibration data and without.

    Then the same with the settings for weights in bytes, as `convert --qdq` has them. Beside each stands whether it is
    one of the first.
    """
    for more in dict.fromkeys(((), method.byte_weights)):
        for bits in (None, *widths) if "bits" in method.options.specs() else (None,):
            try:
                given = method.configure({**({} if bits is None else {"bits": bits}), **dict(more)})
            except UsageError:  # not of this width
                continue
            for calibrated in (False, True):
                yield method.resolve(given, calibrated), not more
