"""Products with weights of 4 bits, which stay packed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.ops.linear import PackedMatMulOp
from softq.compiler.tir.symbolic import expression, product
from softq.errors import RefusalError

_MIDDLE = 8
"""The zero point of unsigned codes of 4 bits where none is given."""


def _matmul(node: Node) -> list[relax.Expr]:
    # Inputs: A [..., K], B [N, blocks, block / 2], scales, zero points, order of the columns, bias.
    x, bits = node.tensor(0), node.attributes.get("bits", 4)
    columns, inner, block = (int(node.attributes[name]) for name in ("N", "K", "block_size"))
    blocks = -(-inner // block)
    codes, scales = node.array(1), node.array(2)
    zeros = node.array(3) if node.has(3) else np.full((columns, blocks), _MIDDLE, np.float32)
    if not node.importer.supports(PackedMatMulOp, "float32"):
        raise RefusalError(f"{node.operator} {node.name!r} has no kernel for this target; quantize with QDQ instead")
    if bits != 4 or node.has(4) or codes is None or scales is None or zeros is None:
        raise RefusalError(
            f"{node.operator} {node.name!r} has {bits} bits, reordered columns or weights that are no constants; "
            "what has a kernel are constants of 4 bits in their order"
        )
    codes = codes.reshape(columns, -1)
    if zeros.dtype == np.uint8:
        packed = zeros.reshape(columns, -1)
        zeros = np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, -1)[:, :blocks]
    beside = [constant(array.astype(np.float32).reshape(columns, blocks)) for array in (scales, zeros)]
    lead = node.shape(0)[:-1]
    dtype = str(x.ty.dtype)
    wide = x if dtype == "float32" else node.emit(relax.op.astype(x, "float32"))
    wide = reshape(node, wide, [product(lead), inner])
    shape = relax.TensorType([expression(product(lead)), columns], "float32")
    y = node.call(f"packed_matmul_{block}", PackedMatMulOp(block), [wide, constant(codes), *beside], shape)
    y = reshape(node, y, [*lead, columns])
    if dtype != "float32":
        y = node.emit(relax.op.astype(y, dtype))
    return [node.emit(relax.op.add(y, node.tensor(5))) if node.has(5) else y]


CONVERTERS: Mapping[str, Converter] = {"com.microsoft::MatMulNBits": _matmul}
