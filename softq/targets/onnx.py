"""Any ONNX runtime: the methods as model-local functions of standard operators.

Produces the .onnx file that `softq convert` writes: domain `softq`, version 1, opset 18 or the model's own if that is
newer, IR version 8 or newer. Nothing beside the runtime is needed. It is for accuracy work and for runtimes without
softq; it is slower than the runtime's own softmax, because each operator makes a pass of its own over the scores.
"""

from __future__ import annotations

from softq.targets._contract import Target

TARGET = Target(
    name="onnx",
    summary="Any ONNX runtime: model-local functions (domain softq) of standard operators.",
    produces="the .onnx file that convert writes",
    needs="nothing",
    passes=lambda: (),
)
