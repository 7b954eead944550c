"""Numerical regression tests of models: a function that compares, and its fixture for pytest."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
