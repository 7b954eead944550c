"""Operators as the graph engine (GE) defines them, in terms of ONNX's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
