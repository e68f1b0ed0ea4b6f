"""Row programs as ONNX: model-local functions of standard operators, integers equal to the bit."""

from softq.rowprog.onnx.emitter import emit
from softq.rowprog.onnx.interface import DOMAIN, arguments, function_name, signature
from softq.rowprog.onnx.model import to_model

__all__ = ["DOMAIN", "arguments", "emit", "function_name", "signature", "to_model"]
