"""Two networks in lockstep, operator by operator, without files: which operator makes them differ."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
