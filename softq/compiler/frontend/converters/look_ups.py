"""Tables of 8-bit codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te

from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.look_up_codes import DOMAIN, OPERATOR
from softq.errors import RefusalError

_OPAQUE = 8
"""TVM's number of functions that are fused with nothing: an element that is read by a code is no element's own."""


def _look_up(node: Node) -> list[relax.Expr]:
    codes, table = node.tensor(0), node.tensor(1)
    of_codes, of_table = str(codes.ty.dtype), [str(table.ty.dtype), *node.shape(1)]
    if of_codes not in ("int8", "uint8") or of_table not in (["int8", 256], ["uint8", 256]):
        raise RefusalError(
            f"{node.operator} {node.name!r} takes bytes and a table of 256 bytes, not {of_codes} and {of_table}"
        )

    def compute(codes: Any, table: Any) -> Any:
        return te.compute(
            codes.shape,
            lambda *at: table[codes[at].astype("uint8").astype("int32")],
            name="look_up",
        )

    made = node.importer.bb.emit_te(
        compute, codes, table, primfunc_name_hint="look_up", primfunc_attrs={"op_pattern": _OPAQUE}
    )
    return [made]


CONVERTERS: Mapping[str, Converter] = {f"{DOMAIN}::{OPERATOR}": _look_up}
"""The operator of `compiler.look_up_codes`."""
