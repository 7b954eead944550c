"""acl.json: its models, its rules in CANN's order, its codes, the plan that follows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
