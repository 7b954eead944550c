"""ONNX models as ordered, named, typed graphs, and the files that describe them."""
