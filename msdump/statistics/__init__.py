"""Statistics of tensors: their table, and passes over elements that measure them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
