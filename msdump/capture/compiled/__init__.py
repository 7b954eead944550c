"""Dumps of compiled graphs (O2, GE, acl): held tensors, operators' files, the watcher, failing operators."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
