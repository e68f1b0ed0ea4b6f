"""Operators on channels in blocks of one processor's vectors, which onnxruntime writes at its highest level."""

from __future__ import annotations

from collections.abc import Mapping

from softq.compiler.frontend.onnx_node import Converter

CONVERTERS: Mapping[str, Converter] = {}

REFUSED: Mapping[str, str] = {
    "com.microsoft.nchwc::*": (
        "keeps channels in blocks as wide as the vectors of the processor that onnxruntime saved the model on "
        "(ORT_ENABLE_ALL): save it at ORT_ENABLE_EXTENDED"
    )
}
