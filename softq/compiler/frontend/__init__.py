"""ONNX into Relax."""
