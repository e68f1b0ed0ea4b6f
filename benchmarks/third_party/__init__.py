"""ONNX models that others published in packages: whether softq converts, builds and runs them, and how fast."""
