"""A configuration that a program passes as a Python mapping, encoded as a JSON file.

The rest of the package reads one kind of configuration, the bytes of a file: a mapping takes the same way,
gets the same messages (without lines) and lies beside the dump as the same JSON text.
"""

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
"""What messages name in place of a file: the argument ``config`` of ``msdump.load``."""

_SCALARS: Final = (str, bool, int, type(None))

_ALLOWED: Final = "texts, numbers, True, False, None, lists, dictionaries and paths"


def to_bytes(config: Mapping[str, Any]) -> bytes:
    r"""Return the bytes of the JSON file that a mapping stands for; tuples become lists, paths texts.

    >>> to_bytes({"common_dump_settings": {"kernels": ("Conv2D",)}})
    b'{\n  "common_dump_settings": {\n    "kernels": [\n      "Conv2D"\n    ]\n  }\n}\n'

    Raises:
        ConfigValueError: A value has no counterpart in JSON; its JSON path is named.
    """
    try:
        return f"{json.dumps(_json_value(config, ()), indent=2)}\n".encode()
    except RecursionError:
        problem = Problem("$", "is nested too deeply, or holds itself")
    # raised outside of the handler: hundreds of lines of recursion would hang on the error as its context
    raise ConfigValueError(SOURCE, (problem,))


def _json_value(value: Any, path: Path) -> Any:
    """Return a value of the mapping as json.dumps takes it; ``path`` leads to it, for the message."""
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # json.dumps would write NaN and Infinity, which are no JSON: the reader would refuse its own file
    if isinstance(value, _SCALARS) or (isinstance(value, float) and math.isfinite(value)):
        return value
    type_name = type(value).__name__
    message = f"= {show(repr(value))}: {type_name} is no value of JSON; {_ALLOWED} are allowed"
    raise ConfigValueError(SOURCE, (Problem(json_path(path), message),))
