"""ECMAScript regular expressions, MindSpore's kind, as Python ones.

Both agree in what operator names need. Translated are the POSIX classes
(``[[:alpha:]]``), and the characters of a class that Python reserves.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from msdump.config.faults import Fault, GrammarError, did_you_mean

POSIX_CLASSES: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "d": r"\d",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "s": r"\s",
    "space": r"\s",
    "upper": "A-Z",
    "w": r"\w",
    "xdigit": "0-9a-fA-F",
}
_TOKEN: Final = re.compile(r"(?P<open>\[\^?)(?P<set>\]?(?:\\.|\[:\w*:\]|[^\]\\])*+)\]|\\.|.", re.DOTALL)
_ITEM: Final = re.compile(r"\[:(?P<posix>\w*):\]|\\.|.", re.DOTALL)
_RESERVED: Final = frozenset("[&~|")  # in a class: one character here, set operators in Python's future

_WRONG: Final = "not a regular expression"

_Piece: TypeAlias = tuple[str, int]
"""A translated token and the offset that it comes from."""


def translate(expression: str) -> str:
    """Return the Python expression that matches the same names.

    Raises:
        GrammarError: It does not compile; the fault stands where the compiler stopped.
    """
    pieces = _pieces(expression)
    translated = "".join(text for text, _ in pieces)
    try:
        re.compile(translated)
    except re.error as error:
        at = _origin(pieces, error.pos or 0)
        raise GrammarError(expression, Fault(at, at + 1, f"{_WRONG}: {error.msg}")) from None
    except (OverflowError, RecursionError) as error:
        raise GrammarError(expression, Fault(0, len(expression), f"{_WRONG}: {error}")) from None
    return translated


def _pieces(expression: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    for token in _TOKEN.finditer(expression):
        if token[0] == "[":
            fault = Fault(token.start(), token.end(), f"{_WRONG}: unterminated character set")
            raise GrammarError(expression, fault)
        if token["open"] is None:
            pieces.append((token[0], token.start()))
            continue
        pieces.append((token["open"], token.start()))
        pieces += _class_pieces(expression, token["set"], token.start("set"))
        pieces.append(("]", token.end() - 1))
    return pieces


def _class_pieces(expression: str, body: str, offset: int) -> list[_Piece]:
    """Return the tokens of what stands between the brackets of a class."""
    pieces: list[_Piece] = []
    previous = "-"  # a leading "-" is a character, as one behind a range's "-" is
    for item in _ITEM.finditer(body):
        text, start = item[0], offset + item.start()
        if item["posix"] is not None:
            text = _posix(expression, item["posix"], start)
        elif text in _RESERVED or (text == "-" == previous):
            text = f"\\{text}"
        pieces.append((text, start))
        previous = text
    return pieces


def _posix(expression: str, name: str, start: int) -> str:
    if name in POSIX_CLASSES:
        return POSIX_CLASSES[name]
    message = f"no character class [:{name}:]{did_you_mean(name, POSIX_CLASSES)}"
    raise GrammarError(expression, Fault(start, start + len(name) + 4, message))


def _origin(pieces: list[_Piece], offset: int) -> int:
    """Return the offset in the original of an offset in the translation."""
    length = 0
    for text, start in pieces:
        if length <= offset < length + len(text):
            return start
        length += len(text)
    return pieces[-1][1] + 1 if pieces else 0
