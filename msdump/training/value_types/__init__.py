"""Types of values: what ONNX infers of one operator, and what it does not reach."""
