"""MindIR files of MindSpore as ONNX models: each kernel is an operator under MindSpore's name."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
