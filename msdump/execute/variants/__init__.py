"""Other ways to run a whole network: in float64, and as onnxruntime optimises it."""
