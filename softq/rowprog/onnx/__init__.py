"""Row programs as ONNX: model-local functions of standard operators, integers equal to the bit."""

from softq.rowprog.onnx.emitter import Emission, emit, emit_exposed, emit_with_bounds, to_model
from softq.rowprog.onnx.interface import DOMAIN, VALUES_DOMAIN, arguments, function_name, signature

__all__ = [
    "DOMAIN",
    "VALUES_DOMAIN",
    "Emission",
    "arguments",
    "emit",
    "emit_exposed",
    "emit_with_bounds",
    "function_name",
    "signature",
    "to_model",
]
