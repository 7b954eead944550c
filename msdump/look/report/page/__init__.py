"""The page of a report: one file of HTML, with style sheet, program and data in it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
