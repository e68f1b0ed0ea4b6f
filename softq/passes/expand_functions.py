"""Open the functions that a model brought itself, for consumers that know softq's functions alone."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes import PassEntry
from softq.passes.fuse_attentions import calls_row_function
from softq.passes.inline_functions import inline_calls
from softq.passes.replace import FUNCTION_DOMAIN
from softq.rowprog.onnx import VALUES_DOMAIN

_KEPT = (FUNCTION_DOMAIN, VALUES_DOMAIN)


class ExpandFunctions(ir.passes.InPlacePass):
    """Opens each call of a model-local function; row functions, of the domains `softq` and `softq.values`, stay calls.

    It is the opposite of `inline-functions`. A function that nothing calls goes too.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open the calls; `modified` says whether there were any.

        Raises:
            RefusalError: functions call each other in a circle, or one imports another operator set than the model.
        """
        modified = inline_calls(model, lambda function: function.domain not in _KEPT)
        modified |= inline_calls(model, calls_row_function)
        idle = [identifier for identifier in model.functions if identifier[0] not in _KEPT]
        for identifier in idle:
            del model.functions[identifier]
        return ir.passes.PassResult(model, modified or bool(idle))


PASS = PassEntry("expand-functions", ExpandFunctions, "Open the functions that the model brought itself")
