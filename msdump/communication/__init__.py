"""Ranks: which one this is, groups of them, and the collectives by which they exchange tensors."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
