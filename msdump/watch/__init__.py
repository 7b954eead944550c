"""Watch rules: conditions on tensors, which rules select by operator and role, checked step after step."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
