"""Reading and editing ONNX graphs: queries, edits, names, and bodies of operators as graphs; knows no softmax."""
