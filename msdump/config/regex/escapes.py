"""Characters that an ECMAScript regular expression writes with a backslash."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from msdump.config.faults import GrammarError, TextFault

_ESCAPED: Final = {"0": "\0", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEXADECIMAL: Final = {"x": 2, "u": 4}
_DIGIT: Final = re.compile("[0-9A-Fa-f]+")


def parse_escape(text: str, start: int) -> tuple[str, int]:
    """Return the character that an escape stands for, and the offset behind it.

    Args:
        text: The expression.
        start: Offset of the backslash. Behind it stands neither a class (``d``), nor a number other
            than 0, nor, outside a class, ``b`` or ``B``.

    Raises:
        GrammarError: The escape is incomplete.
    """
    at = start + 1
    char = text[at : at + 1]
    if char == "c":  # vendor: the control character \cA is the letter itself in GCC's library
        at += 1
        char = text[at : at + 1]
    if not char:
        refuse(text, start, len(text), "the expression ends within an escape; write \\\\ for a backslash")
    digits = _HEXADECIMAL.get(char, 0) if at == start + 1 else 0
    if digits:
        number = text[at + 1 : at + 1 + digits]
        if len(number) < digits or not _DIGIT.fullmatch(number):
            message = f"\\{char} stands before {digits} hexadecimal digits"
            refuse(text, start, at + 1 + digits, message)
        return chr(int(number, 16)), at + 1 + digits
    return (_ESCAPED.get(char, char) if at == start + 1 else char), at + 1


def refuse(text: str, start: int, end: int, message: str) -> NoReturn:
    """Refuse a part of a regular expression."""
    raise GrammarError(text, TextFault(start, min(end, len(text)), f"not a regular expression: {message}"))
