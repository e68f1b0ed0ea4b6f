"""Row programs as ONNX: model-local functions of standard operators, equal to the bit with the interpreter in integers."""

from softq.rowprog.onnx.emitter import emit
from softq.rowprog.onnx.interface import DOMAIN, arguments, function_name, signature
from softq.rowprog.onnx.model import to_model

__all__ = ["DOMAIN", "arguments", "emit", "function_name", "signature", "to_model"]
