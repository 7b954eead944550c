"""Texts of a dump as a page shows them: nothing in a name can change how the page is read."""

from __future__ import annotations

import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)

_NUMBERS: Final = frozenset({int, float, bool, type(None)})


def visible(text: str) -> str:
    r"""Return a text whose control characters, marks of direction and broken bytes stand as escapes.

    >>> visible("fc\u202e1\x00")
    'fc\\u202e1\\u0000'
    """
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def tree(value: object) -> object:
    """Return a value of lists, dictionaries and texts with its texts visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {tree(key): tree(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        # the columns of numbers are long, and there is nothing in them
        is_plain = all(type(each) in _NUMBERS for each in value)
        return [*value] if is_plain else [tree(each) for each in value]
    return value
