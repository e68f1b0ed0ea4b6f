"""Normalizations of 8-bit codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.normalize_codes import DOMAIN, LONGEST, OPERATOR
from softq.compiler.tir.symbolic import plain
from softq.errors import RefusalError

_INT32 = np.iinfo(np.int32).max


def _normalize(node: Node) -> list[relax.Expr]:
    codes, dims, kind = node.tensor(0), node.shape(0), str(node.tensor(0).ty.dtype)
    axis, epsilon = node.attributes.get("axis", -1), node.attributes.get("epsilon", 0.0)
    lead, row = dims[:axis], [plain(size) for size in dims[axis:]]
    sizes = [size for size in row if isinstance(size, int)]
    count = math.prod(sizes)
    if kind not in ("int8", "uint8") or not sizes or len(sizes) < len(row) or count > LONGEST or not epsilon > 0:
        raise RefusalError(
            f"{node.operator} {node.name!r} takes rows of up to {LONGEST} bytes of a known length and an epsilon above "
            f"0, not {kind} {row} and {epsilon}"
        )
    reach = max(abs(int(value)) for value in (np.iinfo(kind).min, np.iinfo(kind).max))
    wide = "int32" if (count * reach) ** 2 <= _INT32 else "int64"
    n, least = tirx.IntImm("int32", count), tirx.FloatImm("float32", epsilon * count**2)

    def statistics(codes: Any) -> list[Any]:
        """Return n, S and the reciprocal of the root, as the module of the pass names them."""

        def add_up(name: str, term: Any) -> Any:
            axes = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(row)]
            return te.compute(lead, lambda *at: te.sum(term(codes[(*at, *axes)].astype("int32")), axes), name=name)

        total, squares = add_up("total", lambda x: x), add_up("squares", lambda x: x * x)

        def factor(*at: Any) -> Any:
            s, t = (x[at].astype(wide) for x in (total, squares))
            variance = (n.astype(wide) * t - s * s).astype("float32")
            return tirx.FloatImm("float32", 1.0) / te.sqrt(variance + least)

        return [total, te.compute(lead, factor, name="factor")]

    def normalize(codes: Any, total: Any, factor: Any, scale: Any, *bias: Any) -> Any:
        def element(*at: Any) -> Any:
            before, inside = at[: len(lead)], at[len(lead) :]
            whole = n * codes[at].astype("int32") - total[before]
            value = whole.astype("float32") * factor[before] * scale[inside]
            return value + bias[0][inside] if bias else value

        return te.compute(dims, element, name="normalized")

    emit = node.importer.bb.emit_te
    made = node.importer.bb.emit(emit(statistics, codes, primfunc_name_hint="row_statistics"))
    parts = [node.importer.bb.emit(relax.TupleGetItem(made, i)) for i in range(2)]
    others = [node.tensor(i) for i in (1, 2) if node.has(i)]
    return [emit(normalize, codes, *parts, *others, primfunc_name_hint="normalize_codes")]


CONVERTERS: Mapping[str, Converter] = {f"{DOMAIN}::{OPERATOR}": _normalize}
"""The operator of `compiler.normalize_codes`."""
