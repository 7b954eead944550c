"""MindSpore and CANN style operator dumps of ONNX networks, without their hardware.

Every name is imported when it is first used: ``import msdump`` itself loads no
heavy library.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing for its constant would take longer than the rest of this module
if TYPE_CHECKING:
    from msdump import communication, training
    from msdump.cli import LossMonitor, ProgressBar
    from msdump.frontends import (
        Model,
        acl,
        data_sink,
        dump_start,
        dump_step,
        dump_stop,
        load,
        set_context,
        set_dump,
        set_init_iter,
        torchair,
    )
    from msdump.read import open_dump
    from msdump.session import Network

__version__ = "0.1.0"

__all__ = [
    "LossMonitor",
    "Model",
    "Network",
    "ProgressBar",
    "__version__",
    "acl",
    "communication",
    "data_sink",
    "dump_start",
    "dump_step",
    "dump_stop",
    "load",
    "open_dump",
    "set_context",
    "set_dump",
    "set_init_iter",
    "torch",
    "torchair",
    "training",
]

_HOMES = {
    "data_sink": "msdump.frontends.model",
    "set_init_iter": "msdump.frontends.mindspore",
    "dump_stop": "msdump.frontends.mindspore",
    "dump_step": "msdump.frontends.mindspore",
    "dump_start": "msdump.frontends.mindspore",
    "LossMonitor": "msdump.cli.monitors",
    "Model": "msdump.frontends.model",
    "Network": "msdump.session",
    "ProgressBar": "msdump.cli.monitors",
    "load": "msdump.frontends.mindspore",
    "open_dump": "msdump.read",
    "set_context": "msdump.frontends.mindspore",
    "set_dump": "msdump.frontends.mindspore",
}


_DOORS = {
    "acl": "msdump.frontends.acl",
    "communication": "msdump.communication",
    "torch": "msdump.judge.torch",
    "torchair": "msdump.frontends.torchair",
    "training": "msdump.training",
}


if not TYPE_CHECKING:  # type checkers report unknown names

    def __getattr__(name: str) -> object:
        """Import the module of a public name at its first use; return the object, or the module itself."""
        import importlib

        if name in _DOORS:
            return importlib.import_module(_DOORS[name])
        if name not in _HOMES:
            raise AttributeError(f"module 'msdump' has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
