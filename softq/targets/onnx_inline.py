"""Any ONNX runtime or compiler that refuses model-local functions: plain operators only.

Produces the .onnx file that `softq convert --inline` writes: the functions of the domain `softq` opened in place.
Functions that the model brought itself stay.
"""

from __future__ import annotations

from softq.passes.inline_functions import InlineFunctions
from softq.targets._contract import Target

TARGET = Target(
    name="onnx-inline",
    summary="Any ONNX runtime or compiler, without functions: plain standard operators.",
    produces="the .onnx file that convert --inline writes",
    needs="nothing",
    passes=lambda: (InlineFunctions(),),
)
