"""A report on a dump: problems, the run, all operators with their statistics over the iterations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
