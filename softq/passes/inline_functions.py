"""Open the functions that softq put in, for consumers that refuse functions."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from softq.passes import PassEntry
from softq.passes.replace import FUNCTION_DOMAIN


class InlineFunctions(ir.passes.InPlacePass):
    """Opens each call of a function of the domain `softq` in place; functions that the model brought itself stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open the calls; `modified` says whether there were any."""
        modified = InlinePass(lambda function: function.domain == FUNCTION_DOMAIN)(model).modified
        for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
            modified |= imports.pop(FUNCTION_DOMAIN, None) is not None
        return ir.passes.PassResult(model, modified)


PASS = PassEntry("inline-functions", InlineFunctions, "open the functions that softq put in")
