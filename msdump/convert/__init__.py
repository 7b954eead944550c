"""Dump files of compiled graphs as arrays that numpy loads, with CANN's options and names."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
