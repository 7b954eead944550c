"""Which operator is wrong, and why: pairs, evidence, verdicts, and programs that use them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
