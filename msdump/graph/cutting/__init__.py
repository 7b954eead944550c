"""Parts of a model as models of their own, and models with some operators of another model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
