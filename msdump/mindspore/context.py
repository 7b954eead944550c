"""MindSpore's settings of the device: ``set_context``, ``set_device``."""

from __future__ import annotations

import logging
from typing import Any, Final

from msdump.frontends import mindspore, settings

GRAPH_MODE: Final = 0
"""The network runs as a compiled graph."""

PYNATIVE_MODE: Final = 1
"""The network runs line by line; a loaded .mindir is a graph in this mode, too."""

_log = logging.getLogger("msdump.frontends")


def set_context(**named_settings: Any) -> None:
    """Set the device, level and options for networks that are made later.

    Args:
        named_settings: MindSpore's settings. ``mode`` makes no difference to a .mindir file; settings that
            msdump has no counterpart for are named in one warning.

    Raises:
        InputError: A wrong value.
    """
    known = {name: value for name, value in named_settings.items() if name in settings.SETTINGS}
    others = sorted(named_settings.keys() - known.keys() - {"mode"})
    if others:
        _log.warning("set_context: no effect here: %s", ", ".join(others))
    mindspore.set_context(**known)


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Set the device for networks that are made later.

    Args:
        device_target: "CPU", "GPU" or "Ascend".
        device_id: Number of the device; None: as before.

    Raises:
        InputError: A wrong value.
    """
    number = {} if device_id is None else {"device_id": device_id}
    mindspore.set_context(device_target=device_target, **number)
