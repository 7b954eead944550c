"""Operators in float64, in definitions of their own: what onnxruntime's kernels are judged by."""
