"""Open the functions that softq put in, for consumers that refuse functions."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from softq.errors import RefusalError, root_cause
from softq.graph.inlining import InlineCalls
from softq.passes import PassEntry
from softq.passes.replace import FUNCTION_DOMAIN
from softq.rowprog.onnx import VALUES_DOMAIN


class InlineFunctions(ir.passes.InPlacePass):
    """Opens each call of a function that softq put in, in place; functions that the model brought itself stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open the calls; `modified` says whether there were any."""
        domains = (FUNCTION_DOMAIN, VALUES_DOMAIN)
        modified = inline_calls(model, lambda function: function.domain in domains)
        for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
            for domain in domains:
                modified |= imports.pop(domain, None) is not None
        return ir.passes.PassResult(model, modified)


def inline_calls(model: ir.Model, which: Callable[[ir.Function], bool]) -> bool:
    """Open the calls of the chosen functions; return whether there were any.

    Raises:
        RefusalError: functions call each other in a circle, or one imports another operator set than the model.
    """
    try:
        return InlineCalls(which)(model).modified
    except (ir.passes.InvariantError, ir.passes.PassError, ValueError) as error:
        raise RefusalError(f"functions of the model cannot be opened: {root_cause(error)}") from error


PASS = PassEntry("inline-functions", InlineFunctions, "Open the functions that softq put in")
