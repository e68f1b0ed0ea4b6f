"""TVM's simplification of statements, without its rules for differences of floats.

To TVM `(x + y) - y` is x and `x - x` is 0, of floats too. They are not: the first rounds, which is why programs add a
large number and subtract it again, and the second is NaN where x is NaN or infinite.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

_NAME = "softq_difference"


def simplify() -> tvm.ir.transform.Pass:
    """Return the pass."""
    return tvm.ir.transform.Sequential([_hide_differences, tirx.transform.StmtSimplify(), _show_differences])


@tvm.ir.transform.module_pass(opt_level=0)
def _hide_differences(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    return _mapped(module, tirx.Sub, _hidden)


@tvm.ir.transform.module_pass(opt_level=0)
def _show_differences(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    return _mapped(module, tvm.ir.Call, _shown)


def _mapped(module: tvm.IRModule, kind: Any, change: Any) -> tvm.IRModule:
    return tvm.IRModule({v: f.with_body(structural_map(f.body, (kind, change))) for v, f in module.functions.items()})


def _hidden(x: tirx.Sub) -> Any:
    name = str(x.ty.dtype)
    return tirx.call_pure_extern(name, _NAME, x.a, x.b) if "float" in name else x


def _shown(x: tvm.ir.Call) -> Any:
    if x.op.same_as(tvm.ir.Op.get("tirx.call_pure_extern")) and str(getattr(x.args[0], "value", "")) == _NAME:
        return tirx.Sub(x.args[1], x.args[2])
    return x
