"""Operator-by-operator execution on onnxruntime."""
