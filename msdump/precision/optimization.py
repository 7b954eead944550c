"""How far the runtime may change the order and form of what is computed."""

from __future__ import annotations

import enum


class Optimization(enum.StrEnum):
    """How far onnxruntime optimises operators that nobody looks at."""

    NONE = "none"
    BASIC = "basic"
    ALL = "all"
