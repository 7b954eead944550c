"""Whose error it is: how far tensors are apart, limits, verdicts on tensors and operators, the report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
