"""A configuration that a program gives as a mapping, as the bytes of the file that it stands for."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, Final

from msdump.config.faults import json_path, show
from msdump.config.source import Path
from msdump.errors import ConfigValueError, Problem

SOURCE: Final = "config"
"""What messages name in place of a file: the argument."""

_SCALARS: Final = (str, bool, int, type(None))

_ALLOWED: Final = "texts, numbers, True, False, None, lists, dictionaries and paths"


def to_bytes(config: Mapping[str, Any]) -> bytes:
    """Return a configuration as a JSON file holds it; tuples become lists, paths texts.

    Raises:
        ConfigValueError: A value has no counterpart in JSON; its JSON path is named.
    """
    try:
        return f"{json.dumps(_plain(config, ()), indent=2)}\n".encode()
    except RecursionError:
        problem = Problem("$", "is nested too deeply, or holds itself")
    raise ConfigValueError(SOURCE, (problem,))


def _plain(value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, _SCALARS) or (isinstance(value, float) and math.isfinite(value)):
        return value
    kind = type(value).__name__
    message = f"= {show(repr(value))}: {kind} is no value of JSON; {_ALLOWED} are allowed"
    raise ConfigValueError(SOURCE, (Problem(json_path(path), message),))
