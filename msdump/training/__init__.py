"""Training steps: the backward graph and the update of a model as ONNX operators."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
