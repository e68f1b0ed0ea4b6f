"""Operators of Relax as TIR functions of our own, where those of TVM are slow or differ from ONNX."""
