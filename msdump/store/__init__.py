"""Where files stand, how they are named, written and found again, without any notion of tensors."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
