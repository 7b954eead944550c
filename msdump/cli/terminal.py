"""What a terminal can show: characters of its encoding, and nothing that would steer it."""

from __future__ import annotations

import sys


def visible(text: str) -> str:
    r"""Return a text in which what would steer a terminal, or turn its direction of writing, is spelled out.

    >>> visible("a\x1b[31m\u202eb")
    'a\\x1b[31m\\u202eb'
    """
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )


def can_print(text: str) -> bool:
    """Tell whether the encoding of standard output has the characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
