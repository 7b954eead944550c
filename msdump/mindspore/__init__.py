"""MindSpore's names for scripts that run a .mindir file: ``import msdump.mindspore as ms``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
