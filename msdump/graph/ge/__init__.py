"""Operators as the graph engine (GE) defines them, in terms of ONNX's."""
