"""What a statistic is: its names, its column, and how host and device get it; nothing here is measured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
