"""JSON text as values, with the line and column of every key and value.

The values come from the standard library, which does not tell where they stood: a second scan of the text,
which is known to be valid JSON by then, notes the offset of each.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

from msdump import reading
from msdump.errors import ConfigSyntaxError, Problem

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+')
_LARGEST: Final = 64 << 20  # bytes of a file
_NO_JSON_NUMBER: Final = re.compile("NaN|-?Infinity|-?[0-9]{4301}")  # Python converts 4,300 digits at most
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half of a pair that lacks the other half
_BEFORE, _AFTER = 60, 40  # characters of a line that an excerpt keeps around a fault

_HINTS: Final = (
    (re.compile(r"'"), "strings stand in double quotes"),
    (re.compile(r"//|/\*|#"), "JSON has no comments"),
    (re.compile(r"True|False|None"), "JSON writes true, false and null"),
    (re.compile(r",\s*[}\]]"), "remove the comma before the closing bracket"),
)


@dataclass(slots=True)
class Mark:
    """Where a value stands in the text.

    Attributes:
        start: Offset of its first character.
        key: Offset of the first character of its key; of the value itself in a list.
        children: The marks of its items, by key or index.
    """

    start: int
    key: int
    children: dict[str | int, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed JSON file.

    Attributes:
        source: Its path, for messages.
        data: Its bytes.
        text: Its text, without a byte order mark.
        value: The value of the whole.
        mark: Where that value and all below it stand.
        duplicates: Paths of keys that stand more than once in their object; the last one counts.
        has_lines: Whether lines and columns mean something to who reads of them.
    """

    source: str
    data: bytes
    text: str
    value: Any
    mark: Mark
    duplicates: tuple[Path, ...]
    has_lines: bool = True

    def value_position(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of a value, or of what encloses it where it is missing."""
        return self._position(self._mark(path).start)

    def key_position(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of the key (the value, in a list) at a path."""
        return self._position(self._mark(path).key)

    def _position(self, offset: int) -> tuple[int, int]:
        return _position(self.text, offset) if self.has_lines else (0, 0)

    def _mark(self, path: Path) -> Mark:
        mark = self.mark
        for step in path:
            if step not in mark.children:
                break
            mark = mark.children[step]
        return mark


def read(path: str, giver: str) -> bytes:
    """Return the bytes of a configuration file.

    Args:
        path: The file, absolute or relative; its name ends in ``.json``.
        giver: The environment variable or option that holds the path, for the remedy in messages.

    Raises:
        ConfigSyntaxError: The file is missing, a directory, named otherwise, or unreadable.
    """
    remedy = f"{giver} must be the path of a readable .json file"
    try:
        data = reading.read_bytes(path, _LARGEST)
    except IsADirectoryError:
        _refuse(path, f"is a directory; {remedy}")
    except FileNotFoundError:
        _refuse(path, f"no such file; {remedy}")
    except OSError as error:
        _refuse(path, f"cannot be read ({error.strerror}); {remedy}")
    # as MindSpore does, the name is looked at last: a missing file is the more telling fault
    if not path.endswith(".json"):
        _refuse(path, f"the name does not end in .json; {remedy}")
    return data


def parse(data: bytes, source: str, *, has_lines: bool = True) -> Document:
    """Return the document that the bytes of a JSON file hold; ``has_lines`` as in ``Document``.

    A UTF-8 byte order mark is skipped. Of a key that stands twice the last one counts.

    Raises:
        ConfigSyntaxError: The bytes are not UTF-8 or not JSON; the message shows the line and a caret.
    """
    text = _decode(data, source)
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _refuse_at(text, source, error.pos, _hinted(text, error))
    except RecursionError:
        _refuse(source, "not readable: brackets are nested too deeply")
    except ValueError:
        token = next(token for token in _TOKEN.finditer(text) if _NO_JSON_NUMBER.match(token[0]))
        _refuse_at(text, source, token.start(), f"{token[0][:20]} is no JSON number")
    _check_texts(text, source)
    mark, duplicates = _scan(text)
    return Document(source, data, text, value, mark, tuple(duplicates), has_lines)


def _check_texts(text: str, source: str) -> None:
    """Refuse a text with half a character, which neither MindSpore nor any file takes."""
    if "\\u" not in text:  # the bytes were UTF-8, so that only an escape can write half of a pair
        return
    for token in _TOKEN.finditer(text):
        if token[0][0] == '"' and _SURROGATE.search(json.loads(token[0])):
            _refuse_at(text, source, token.start(), "this text holds half of a pair of surrogates")


def caret(text: str, start: int, end: int) -> str:
    """Return one line of text, indented, and ``^`` below its characters from start to end.

    Of a long line only the part around the start is kept.

    >>> print(caret("0|8-5", 2, 5))
        0|8-5
          ^^^
    """
    low, high = max(0, start - _BEFORE), start + max(_AFTER, min(end - start, _BEFORE))
    ellipsis = "..." if low else ""
    shown = "".join(char if char.isprintable() else " " for char in text[low:high])
    tail = "..." if high < len(text) else ""
    width = max(1, min(end, high) - start)
    return f"    {ellipsis}{shown}{tail}\n    {' ' * (len(ellipsis) + start - low)}{'^' * width}"


def _decode(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(source, f"not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}")
    if not text.strip():
        _refuse(source, "the file is empty; it must hold one JSON object")
    return text


def _refuse(source: str, message: str) -> NoReturn:
    raise ConfigSyntaxError(source, (Problem("", message),)) from None


def _refuse_at(text: str, source: str, offset: int, message: str) -> NoReturn:
    line, column = _position(text, offset)
    shown = text.split("\n")[line - 1].rstrip("\r")
    excerpt = caret(shown, column - 1, column)
    problem = Problem("", f"invalid JSON at column {column}: {message}", line, column, excerpt)
    raise ConfigSyntaxError(source, (problem,)) from None


def _hinted(text: str, error: json.JSONDecodeError) -> str:
    """Return the library's message, with a remedy behind it where the text shows a common mistake."""
    message = error.msg[:1].lower() + error.msg[1:]
    offset = error.pos
    # some versions of Python place a trailing comma at the bracket behind it
    if text[offset : offset + 1] in {"}", "]"} and text[:offset].rstrip().endswith(","):
        offset = text.rindex(",", 0, offset)
    hints = [hint for pattern, hint in _HINTS if pattern.match(text, offset)]
    return f"{message} ({hints[0]})" if hints else message


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


@dataclass(frozen=True, slots=True)
class _Open:
    """An object or list whose closing bracket is still to come."""

    mark: Mark
    path: Path
    is_object: bool


def _scan(text: str) -> tuple[Mark, list[Path]]:
    """Return the mark of a valid document and the paths of its repeated keys."""
    top = Mark(0, 0)
    stack = [_Open(top, (), is_object=False)]
    duplicates: list[Path] = []
    key: tuple[str, int] | None = None
    for token in _TOKEN.finditer(text):
        piece, start, owner = token[0], token.start(), stack[-1]
        if piece in {"}", "]"}:
            stack.pop()
        elif owner.is_object and key is None:
            key = (json.loads(piece), start)
        else:
            slot, key_start = key or (len(owner.mark.children), start)
            key, path = None, (*owner.path, slot)
            if slot in owner.mark.children:
                duplicates.append(path[1:])
            mark = owner.mark.children[slot] = Mark(start, key_start)
            if piece in {"{", "["}:
                stack.append(_Open(mark, path, piece == "{"))
    return top.children[0], duplicates
