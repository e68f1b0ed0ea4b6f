"""From a converted ONNX model to a step list, for any backend; the only importer of Relax."""
