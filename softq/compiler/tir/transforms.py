"""TVM's passes from loops with blocks to what its code generators take, for functions of pointers and scalars.

TVM's own list without MakePackedAPI and without the passes that split host from device.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx

from softq.compiler.tir.simplification import simplify


def to_plain_loops(
    opaque: Sequence[tvm.ir.transform.Pass] = (),
    simplified: Sequence[tvm.ir.transform.Pass] = (),
    *,
    shared: bool = True,
) -> list[tvm.ir.transform.Pass]:
    """Return the passes in order, with others behind the making of opaque blocks and behind the simplification.

    Args:
        opaque: The passes behind the making of opaque blocks.
        simplified: Those behind the simplification.
        shared: Whether memory of the function's own that is never in use together becomes one.
    """
    return [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        *opaque,
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        *flattened(shared),
        *simplified,
        tirx.transform.BF16StorageLegalize(),
        tirx.transform.LowerIntrin(),
        # Quotients of the same expression are lowered to bindings of one name.
        tirx.transform.ConvertSSA(),
    ]


def flattened(shared: bool = True) -> list[tvm.ir.transform.Pass]:
    """Return the passes from buffers of several axes to flat ones, in order."""
    return [
        tirx.transform.FlattenBuffer(),
        tirx.transform.BF16ComputeLegalize(),
        *[tirx.transform.StorageRewrite()] * shared,
        tirx.transform.UnrollLoop(),
        simplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
    ]
