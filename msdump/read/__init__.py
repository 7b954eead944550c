"""Dumps read back: ``Dump``, its directories of tensors, its graphs, and the files of a dump."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
