"""What a core of a method takes, from its estimate alone: nothing is written and no vectors are made."""

from __future__ import annotations

from collections.abc import Mapping

from softq.codegen.verilog.core import write_core
from softq.errors import ProofError, RefusalError, UsageError
from softq.methods import FITTED_SCOPES, METHODS
from softq.rowprog import DType
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rtl.arguments import UNKNOWN_STEP
from softq.rtl.making import plan_core
from softq.rtl.wanted import Wanted
from softq.vectors.making import configured


def cost_of_core(
    name: str, given: Mapping[str, object], row_length: int | None, masked: bool, wanted: Wanted
) -> dict[str, tuple[float, str]]:
    """Return what a core takes: tables, flip-flops, blocks of memory, multipliers, and the clocks of its longest row.

    Numbers that would be fitted have their defaults: they change entries of tables, and what these take by little.

    Args:
        name: The method.
        given: Its options by name; the others have their defaults.
        row_length: Elements of the longest row; None if the model does not say.
        masked: Whether it takes a mask.
        wanted: What cores are built for.

    Returns:
        A value and its unit by the name of the cost.

    Raises:
        RefusalError: no core computes the method, or it is not known for which rows or which unit of the scores.
    """
    method = METHODS.get(name)
    if not method.integer_scores:
        raise RefusalError(f"scores of method {method.name} are floats; a core takes integers of 8 bits")
    options = {option: value for option, value in given.items() if value not in FITTED_SCOPES}
    if "step" in method.options.specs() and "step" not in options:
        if wanted.step is None:
            raise RefusalError(UNKNOWN_STEP)
        options["step"] = wanted.step
    length = max((n for n in (row_length, wanted.length) if n is not None), default=None)
    if length is None:
        raise RefusalError("length of its rows is not known in the model; length=N of the target gives the longest")
    kind = wanted.scores or DType.I8
    try:
        chosen, _, _ = configured(method, options, {}, kind)
        program = tabulate_or_keep(method.program(chosen, scores=kind, masked=masked))[0]
        core = write_core(plan_core([program], wanted.outputs, wanted.settings(length), wanted.registers), "core")
    except (UsageError, ProofError) as error:
        raise RefusalError(str(error)) from error
    found = core.resources
    return {
        "LUT4": (found.lut4, "tables"),
        "LUT4_in_all": (found.lut4_in_all, "tables"),
        "FF": (found.ff, "flip-flops"),
        "BRAM": (found.bram, "blocks"),
        "MULT18": (found.mult18, "multipliers"),
        "clocks": (core.latency(length), "of a row"),
        "interval": (core.interval(length), "clocks from row to row"),
    }
