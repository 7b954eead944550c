"""MindSpore's primitives: the body of each in terms of ONNX's operators, and the inputs of each by slot."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
