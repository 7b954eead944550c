"""Configuration files: JSON with the line and column of every key and value, and a report of all faults.

The values come from the standard library, which gives no offsets: a second scan of the text, which is known
to be valid JSON by then, notes the offset of each.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeAlias

from msdump import env, reading
from msdump.errors import ConfigSyntaxError, ConfigValueError, Problem

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+')
_LARGEST: Final = 64 << 20  # bytes of a file
_NO_JSON_NUMBER: Final = re.compile("NaN|-?Infinity|-?[0-9]{4301}")  # Python converts 4,300 digits at most
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half of a pair that lacks the other half
_BEFORE, _AFTER = 60, 40  # characters of a line that an excerpt keeps around a fault

_HINTS: Final = (
    (re.compile(r"'"), "write texts in double quotes"),
    (re.compile(r"//|/\*|#"), "JSON has no comments"),
    (re.compile(r"True|False|None"), "write true, false and null in lower case"),
    (re.compile(r",\s*[}\]]"), "remove the comma before the closing bracket"),
)


@dataclass(slots=True)
class Mark:
    """Offsets of a value, of its key (in a list: of the value again), and the marks of its items."""

    start: int
    key: int
    children: dict[str | int, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed JSON file."""

    source: str  # its path, for messages
    data: bytes
    text: str  # its text, without a byte order mark
    value: Any  # the value of the whole
    mark: Mark  # where that value and all below it stand
    # paths of keys that stand more than once in their object; the last one counts
    duplicates: tuple[Path, ...]
    has_lines: bool = True  # whether messages name lines and columns; a program's mapping has none

    def position(self, path: Path, *, of_key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of a value or its key; of the enclosing value if it is missing."""
        if not self.has_lines:
            return 0, 0
        mark = self.mark
        for step in path:
            if step not in mark.children:
                break
            mark = mark.children[step]
        return _position(self.text, mark.key if of_key else mark.start)


def read(path: str, giver: str) -> bytes:
    """Return the bytes of a configuration file, the name of which ends in ``.json``.

    A ConfigSyntaxError names the fault and, as remedy, the variable or option that gave the path.
    """
    remedy = f"{giver} must be the path of a readable .json file"
    data = file_bytes(path, remedy)
    # as MindSpore does, the name is looked at last: a missing file is the more telling fault
    if not path.endswith(".json"):
        refuse(path, f"the name does not end in .json; {remedy}")
    return data


def file_bytes(path: str, remedy: str) -> bytes:
    """Return the bytes of a file; ConfigSyntaxError, which ends with the remedy, if there are none."""
    try:
        return reading.read_bytes(path, _LARGEST)
    except IsADirectoryError:
        refuse(path, f"is a directory; {remedy}")
    except FileNotFoundError:
        refuse(path, f"no such file; {remedy}")
    except OSError as error:
        refuse(path, f"cannot be read ({error.strerror}); {remedy}")


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
        message = error.msg[:1].lower() + error.msg[1:]
        offset = error.pos
        # some versions of Python place a trailing comma at the bracket behind it
        if text[offset : offset + 1] in {"}", "]"} and text[:offset].rstrip().endswith(","):
            offset = text.rindex(",", 0, offset)
        hints = [hint for pattern, hint in _HINTS if pattern.match(text, offset)]
        _refuse_at(text, source, error.pos, (f"{message} ({hints[0]})" if hints else message))
    except RecursionError:
        refuse(source, "not readable: brackets are nested too deeply")
    except ValueError:
        token = next(token for token in _TOKEN.finditer(text) if _NO_JSON_NUMBER.match(token[0]))
        _refuse_at(text, source, token.start(), f"{token[0][:20]} is not a JSON number")
    return Document(source, data, text, value, *_scan(text, source), has_lines)


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
        refuse(source, f"not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}")
    if not text.strip():
        refuse(source, "the file is empty; it must hold one JSON object")
    return text


def refuse(source: str, message: str) -> NoReturn:
    """Raise a ConfigSyntaxError that names a file."""
    raise ConfigSyntaxError(source, (Problem("", message),)) from None


def _refuse_at(text: str, source: str, offset: int, message: str) -> NoReturn:
    line, column = _position(text, offset)
    shown = text.split("\n")[line - 1].rstrip("\r")
    excerpt = caret(shown, column - 1, column)
    problem = Problem("", f"invalid JSON at column {column}: {message}", line, column, excerpt)
    raise ConfigSyntaxError(source, (problem,)) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _scan(text: str, source: str) -> tuple[Mark, tuple[Path, ...]]:
    """Return the mark of a valid document and the paths of its repeated keys; refuse half a character."""
    top = Mark(0, 0)
    stack: list[tuple[Mark, Path, bool]] = [(top, (), False)]  # open containers; True: an object
    duplicates: list[Path] = []
    key: tuple[str, int] | None = None
    for token in _TOKEN.finditer(text):
        piece, start = token[0], token.start()
        # the bytes were UTF-8, so that only an escape can write half of a pair, which no file takes
        if "\\u" in piece and _SURROGATE.search(json.loads(piece)):
            _refuse_at(text, source, start, "this text contains half of a surrogate pair")
        owner, owner_path, is_object = stack[-1]
        if piece in {"}", "]"}:
            stack.pop()
        elif is_object and key is None:
            key = (json.loads(piece), start)
        else:
            slot, key_start = key or (len(owner.children), start)
            key, path = None, (*owner_path, slot)
            if slot in owner.children:
                duplicates.append(path[1:])
            mark = owner.children[slot] = Mark(start, key_start)
            if piece in {"{", "["}:
                stack.append((mark, path, piece == "{"))
    return top.children[0], tuple(duplicates)


_log = logging.getLogger("msdump.config")
_LONGEST_VALUE: Final = 80  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class TextFault:
    """One fault of a text that follows a grammar, in its characters from start to end."""

    start: int
    end: int
    message: str


class GrammarError(ValueError):
    """A text that does not follow its grammar.

    Attributes:
        faults: Every fault found in it, in the order of the text.
    """

    def __init__(self, text: str, *faults: TextFault) -> None:
        """Take the text and its faults; their messages, joined, are the error's own."""
        self.text = text
        self.faults = faults
        super().__init__("; ".join(fault.message for fault in faults))


class FaultReport:
    """Collects the faults and doubts of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []

    def error(self, path: Path, message: str) -> None:
        """Add a fault of the value at a path."""
        self._errors.append(self._problem(path, message))

    def warn(self, path: Path, message: str, *, of_key: bool = False) -> None:
        """Add a doubt about the value, or the key, at a path."""
        self._warnings.append(self._problem(path, message, of_key=of_key))

    def warn_of_keys(
        self,
        path: Path,
        block: Mapping[str, Any],
        known: Iterable[str],
        owners: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Warn of each unknown key of an object, except comments, the keys that begin with ``_``.

        ``owners`` gives the name of the object by the keys of other objects.
        """
        names = tuple(known)
        for key in block:
            if key not in names and not key.startswith("_"):
                is_elsewhere = key in owners
                hint = f" (it belongs in $.{owners[key]})" if is_elsewhere else did_you_mean(key, names)
                self.warn((*path, key), f"is unknown and ignored{hint}", of_key=True)

    def warn_of_duplicates(self) -> None:
        """Add a doubt about each key that stands more than once in its object."""
        for path in self._document.duplicates:
            self.warn(path, "is given more than once in its object; the last value is used", of_key=True)

    def warn_of_variable(self, name: str, message: str) -> None:
        """Add a doubt about the value of an environment variable."""
        self._warnings.append(Problem("", f"{name} {message}"))

    def error_in_text(self, path: Path, error: GrammarError, variable: str = "") -> None:
        """Add the faults of the text at a path, or of an environment variable, each with a caret."""
        for each in error.faults:
            message = f"{variable} = {show(error.text)}: {each.message}".lstrip()
            problem = Problem("", message) if variable else self._problem(path, message)
            self._errors.append(replace(problem, excerpt=caret(error.text, each.start, each.end)))

    def place(self, path: Path) -> str:
        """Return file, line and path of a value, for messages."""
        line, _ = self._document.position(path)
        return f"{self._document.source}:{line}: {json_path(path)}"

    def close(self) -> None:
        """Log every warning, then raise every fault at once as a ConfigValueError."""
        source = self._document.source
        # warnings come first and in the file's order, whatever the order of the checks: read top to bottom
        for problem in sorted(self._warnings, key=lambda problem: (problem.line, problem.column)):
            _log.warning("%s", problem.render(source))
        if self._errors:
            raise ConfigValueError(source, tuple(self._errors))

    def _problem(self, path: Path, message: str, *, of_key: bool = False) -> Problem:
        return Problem(json_path(path), message, *self._document.position(path, of_key=of_key))


def json_path(path: Path) -> str:
    """Return a path as JSONPath.

    >>> json_path(("common_dump_settings", "kernels", 0))
    '$.common_dump_settings.kernels[0]'
    >>> json_path(("no-name",))
    '$["no-name"]'
    """
    text = "$"
    for step in path:
        if isinstance(step, str) and step.isidentifier():
            text += f".{step}"
        else:
            text += f"[{json.dumps(step)}]"
    return text


def show(value: Any) -> str:
    """Return a value for a message: texts in single quotes, the rest as JSON, long ones cut."""
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]} ..."


def choice(names: Iterable[str], last: str = "or") -> str:
    """Return names as a list in a sentence.

    >>> choice(["max", "min", "avg"])
    'max, min or avg'
    """
    *others, final = names
    return f"{', '.join(others)} {last} {final}" if others else final


def did_you_mean(value: Any, candidates: Iterable[Any]) -> str:
    """Return a hint at the candidate closest to a value, "" if none is close.

    >>> did_you_mean("tensr", ("tensor", "statistic"))
    " (did you mean 'tensor'?)"
    """
    # comparing takes the square of the length: a long text is no misspelt key
    if not isinstance(value, (str, int, float)) or len(text := str(value).lower()) > _LONGEST_VALUE:
        return ""
    by_text = {str(candidate).lower(): candidate for candidate in candidates}
    close = get_close_matches(text, by_text, n=1)
    return f" (did you mean {show(by_text[close[0]])}?)" if close else ""


def clamped_number(digits: str, most: int) -> int:
    """Return the number that decimal digits write, at most ``most``."""
    number = env.number(digits, most)
    return most if number is None else number
