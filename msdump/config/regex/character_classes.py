r"""Classes of characters in ECMAScript regular expressions: ``[a-z]``, ``[^[:digit:]\w]``, ``[[.x.]]``."""

from __future__ import annotations

import enum
from typing import Final

from msdump.config.faults import did_you_mean
from msdump.config.regex.escapes import parse_escape, refuse

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
"""What ``[:name:]`` holds."""

_NAMES: Final = {
    "\0": "NUL SOH STX ETX EOT ENQ ACK alert backspace tab newline vertical-tab form-feed carriage-return"
    " SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC IS4 IS3 IS2 IS1",
    " ": "space exclamation-mark quotation-mark number-sign dollar-sign percent-sign ampersand apostrophe"
    " left-parenthesis right-parenthesis asterisk plus-sign comma hyphen period slash"
    " zero one two three four five six seven eight nine"
    " colon semicolon less-than-sign equals-sign greater-than-sign question-mark commercial-at",
    "[": "left-square-bracket backslash right-square-bracket circumflex underscore grave-accent",
    "{": "left-curly-bracket vertical-line right-curly-bracket tilde DEL",
}
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
COLLATING: Final = {letter: letter for letter in _LETTERS} | {
    name: chr(ord(first) + number)
    for first, names in _NAMES.items()
    for number, name in enumerate(names.split())
}
"""What ``[.name.]`` stands for: POSIX's names of characters."""

_EMPTY: Final = {False: "(?!)", True: r"[\s\S]"}  # [] matches nothing, [^] everything; Python has neither
_BRACKETS: Final = {":": "character class", ".": "collating element", "=": "equivalence class"}


def is_quoted_class(char: str) -> bool:
    r"""Tell whether a backslash makes a character a class, as in ``\d``."""
    return char != "" and char in "dDsSwW"


def parse_class(text: str, start: int) -> tuple[str, int]:
    r"""Return Python's text of a class, and the offset behind it.

    Every single character is written as an escape of eight digits, so that none has a meaning in Python.

    >>> parse_class("[[:digit:]a]b", 0)
    ('[0-9\\U00000061]', 12)

    Args:
        text: The expression.
        start: Offset of the opening bracket.

    Raises:
        GrammarError: The class is not closed, a range in it runs backwards or has no ends, or
            nobody knows a name in it.
    """
    return _Class(text, start).parse()


class _Token(enum.Enum):
    """Kinds of the pieces between the brackets of a class."""

    CHARACTER = enum.auto()
    SYMBOL = enum.auto()  # [.x.]: a character, but never the end of a range
    CLASS = enum.auto()
    DASH = enum.auto()
    END = enum.auto()


class _Class:
    """Reads one class from left to right.

    A character is kept back until what follows it is known, since a dash behind it makes it begin a range.
    """

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._offset = start + 1
        self._members: list[str] = []
        self._last = ""  # a character that may begin a range
        self._follows_class = False

    def parse(self) -> tuple[str, int]:
        is_negated = self._takes("^")
        token, value = self._token()
        if token is _Token.DASH:  # a dash at the start is a character
            token = _Token.CHARACTER
        while token is not _Token.END:
            if token is _Token.DASH:
                token, value = self._dash()
                continue
            if token is _Token.CLASS:
                self._push("", follows_class=True)
                self._members.append(value)
            else:
                self._push(value)
            token, value = self._token()
        self._push("")
        members = "".join(self._members)
        return (f"[{'^' * is_negated}{members}]" if members else _EMPTY[is_negated]), self._offset

    def _push(self, char: str, *, follows_class: bool = False) -> None:
        """Keep a character back that may begin a range; the one kept before it becomes a member."""
        self._members.append(_escaped(self._last))
        self._last, self._follows_class = char, follows_class

    def _dash(self) -> tuple[_Token, str]:
        """Read what follows a dash; return the token behind that."""
        start = self._offset - 1
        token, value = self._token()
        if token is _Token.END:
            self._push("-")
            return token, value
        if self._follows_class:
            refuse(self._text, start, self._offset, "a range begins with one character; write \\- for a dash")
        if not self._last:
            self._push("-")
            return token, value
        if token not in {_Token.CHARACTER, _Token.DASH}:
            refuse(self._text, start, self._offset, "a range ends with one character; write \\- for a dash")
        if self._last > value:
            message = f"the range {self._last}-{value} runs backwards; write {value}-{self._last}"
            refuse(self._text, start - 1, self._offset, message)
        self._members.append(f"{_escaped(self._last)}-{_escaped(value)}")
        self._last = ""
        return self._token()

    def _token(self) -> tuple[_Token, str]:
        start = self._offset
        if start == len(self._text):
            refuse(self._text, self._start, self._start + 1, "the class of characters is not closed")
        char = self._text[start]
        kind = self._text[start + 1 : start + 2]
        if char == "[" and kind in _BRACKETS:
            return self._named(kind)
        if char == "\\":
            return self._escape()
        self._offset += 1
        return {"]": _Token.END, "-": _Token.DASH}.get(char, _Token.CHARACTER), char

    def _takes(self, text: str) -> bool:
        is_next = self._text.startswith(text, self._offset)
        self._offset += len(text) * is_next
        return is_next

    def _escape(self) -> tuple[_Token, str]:
        char = self._text[self._offset + 1 : self._offset + 2]
        if is_quoted_class(char):
            self._offset += 2
            return _Token.CLASS, f"\\{char}"
        if char == "B" or (char.isdecimal() and char != "0"):
            refuse(
                self._text,
                self._offset,
                self._offset + 2,
                f"\\{char} has no meaning in a class of characters",
            )
        char, self._offset = parse_escape(self._text, self._offset)
        return _Token.CHARACTER, char

    def _named(self, kind: str) -> tuple[_Token, str]:
        """Read ``[:name:]``, ``[.name.]`` or ``[=name=]``."""
        start = self._offset
        end = self._text.find(f"{kind}]", start + 2)
        if end < 0:
            message = f"the {_BRACKETS[kind]} [{kind} is not closed; write \\[ for the character"
            refuse(self._text, start, start + 2, message)
        self._offset = end + 2
        name = self._text[start + 2 : end]
        table = POSIX_CLASSES if kind == ":" else COLLATING
        key = name.lower() if kind == ":" else name  # vendor: [[:DIGIT:]] is [[:digit:]] to GCC's library
        if key not in table:
            message = f"no {_BRACKETS[kind]} [{kind}{name}{kind}]{did_you_mean(name, table)}"
            refuse(self._text, start, self._offset, message)
        if kind == ".":
            return _Token.SYMBOL, table[key]
        if kind == "=":  # vendor: a letter is equivalent to itself in the other case
            cases = {table[key].lower(), table[key].upper()}
            return _Token.CLASS, "".join(_escaped(char) for char in cases)
        return _Token.CLASS, table[key]


def _escaped(char: str) -> str:
    """Return a character as Python's escape, "" for none."""
    return f"\\U{ord(char):08x}" if char else ""
