"""Libraries of custom operators for onnxruntime: what one is made of, its C source, and the folder it comes in."""
