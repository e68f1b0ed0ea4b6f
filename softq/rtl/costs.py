"""What a core of a method takes, from its estimate alone: nothing is written and no vectors are made."""

from __future__ import annotations

from softq.codegen.verilog.core import write_core
from softq.errors import ProofError, RefusalError, UsageError
from softq.methods import FITTED_SCOPES, METHODS
from softq.rowprog import DType
from softq.rowprog.tabulate import tabulate_or_keep
from softq.rtl.arguments import with_constants
from softq.rtl.making import plan_core
from softq.rtl.wanted import Wanted
from softq.targets import Amount, Amounts, Use
from softq.vectors.making import configured


def cost_of_core(use: Use, wanted: Wanted) -> Amounts:
    """Return what a core takes: tables, flip-flops, blocks of memory, multipliers, and the clocks of its longest row.

    Numbers that would be fitted have their defaults: they change entries of tables, and what these take by little.

    Raises:
        RefusalError: no core computes the method, or it is not known for which rows or which unit of the scores.
    """
    method = METHODS.get(use.method)
    if not method.integer_scores:
        raise RefusalError(f"scores of method {method.name} are floats; a core takes integers of 8 bits")
    options: dict[str, object] = {name: value for name, value in use.options.items() if value not in FITTED_SCOPES}
    if "step" in method.options.specs() and "step" not in options:
        if wanted.step is None:
            raise RefusalError("the real value of one unit of the scores is not known; step=X of the target says it")
        options["step"] = wanted.step
    length = max((n for n in (use.row_length, wanted.length) if n is not None), default=None)
    if length is None:
        raise RefusalError("length of its rows is not known in the model; length=N of the target gives the longest")
    try:
        chosen, params, _ = configured(method, options, {})
        program = method.program(chosen, scores=wanted.scores or DType.I8, masked=use.masked)
        program = tabulate_or_keep(with_constants(program, params))[0]
        core = write_core(plan_core([program], wanted.outputs, wanted.settings(length), wanted.registers), "core")
    except (UsageError, ProofError) as error:
        raise RefusalError(str(error)) from error
    found = core.resources
    return {
        "LUT4": Amount(found.lut4, "tables"),
        "LUT4_in_all": Amount(found.lut4_in_all, "tables"),
        "FF": Amount(found.ff, "flip-flops"),
        "BRAM": Amount(found.bram, "blocks"),
        "MULT18": Amount(found.mult18, "multipliers"),
        "clocks": Amount(core.latency(length), "of a row"),
        "interval": Amount(core.interval(length), "clocks from row to row"),
    }
