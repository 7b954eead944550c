r"""Escapes of single characters in ECMAScript regular expressions: ``\n``, ``\x41``, ``\u0041``, ``\cA``."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from msdump.config.faults import GrammarError, TextFault

_ESCAPED: Final = {"0": "\0", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEXADECIMAL: Final = {"x": 2, "u": 4}  # digits that follow
_HEXADECIMAL_DIGITS: Final = re.compile("[0-9A-Fa-f]+")


def parse_escape(text: str, start: int) -> tuple[str, int]:
    r"""Return the character that an escape stands for, and the offset behind it.

    >>> parse_escape(r"a\x42c", 1)
    ('B', 5)

    Args:
        text: The expression.
        start: Offset of the backslash. Behind it stands neither a class (``d``), nor a number other
            than 0, nor, outside a class, ``b`` or ``B``.

    Raises:
        GrammarError: The escape is incomplete.
    """
    offset = start + 1
    char = text[offset : offset + 1]
    if char == "c":  # vendor: the control character \cA is the letter itself in GCC's library
        offset += 1
        char = text[offset : offset + 1]
    is_control = offset > start + 1
    if not char:
        refuse(text, start, len(text), "the expression ends within an escape; write \\\\ for a backslash")
    digits = 0 if is_control else _HEXADECIMAL.get(char, 0)
    if digits:
        end = offset + 1 + digits
        number = text[offset + 1 : end]
        # int() alone would take signs, spaces and underscores among the digits
        if len(number) < digits or not _HEXADECIMAL_DIGITS.fullmatch(number):
            refuse(text, start, end, f"\\{char} stands before {digits} hexadecimal digits")
        return chr(int(number, 16)), end
    return (char if is_control else _ESCAPED.get(char, char)), offset + 1


def refuse(text: str, start: int, end: int, message: str) -> NoReturn:
    """Raise a GrammarError whose caret stands below ``text[start:end]``."""
    raise GrammarError(text, TextFault(start, min(end, len(text)), f"not a regular expression: {message}"))
