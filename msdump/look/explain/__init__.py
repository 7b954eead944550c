"""Explanations why inputs and outputs of an operator have their files in a dump, or none."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
