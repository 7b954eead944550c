"""Verdicts: evidence on tensors and operators, limits of agreement, findings, the report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
