"""What a target declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True)
class Target:
    """Something that a converted model is lowered to.

    Attributes:
        name: What users type; the file's name with hyphens.
        summary: One line.
        produces: What the user gets, one line.
        needs: What has to be installed beside softq, `nothing` if nothing.
        passes: Makes the passes that turn a converted model into what the target takes, in their order.
    """

    name: str
    summary: str
    produces: str
    needs: str
    passes: Callable[[], Sequence[ir.passes.InPlacePass]]
