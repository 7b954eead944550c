"""Names with fields: one text that is both written and parsed.

A template holds its fields in braces. A part in brackets stands in the name where all its fields
have values:

    >>> from types import SimpleNamespace
    >>> shot = Template("{scene}_{number}[.{lens}].png", {"scene": TEXT, "number": NUMBER, "lens": TEXT})
    >>> shot.format(SimpleNamespace(scene="sea", number=7, lens=None))
    'sea_7.png'
    >>> shot.parse("sea_7.wide.png")
    {'scene': 'sea', 'number': 7, 'lens': 'wide'}
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a template."""

    pattern: str  # regular expression of its text, without named groups
    read: Callable[[str], Any] | None = None  # makes the value from the text, None: the text is the value
    # makes the text from the value, None: as ``format`` does with ``spec``
    write: Callable[[Any], str] | None = None
    spec: str = ""


NUMBER: Final = Field("0|[1-9][0-9]*", int)
"""A whole number without leading zeros."""

TEXT: Final = Field(r"[^./]+")
"""Any text without dots and slashes."""

PART: Final = Field(r"[^/]+")
"""Any text without slashes: one component of a path."""


def padded(digits: int) -> Field:
    """Return a whole number with leading zeros up to a number of digits: ``0042`` for four."""
    return Field(rf"[0-9]{{{digits}}}|[1-9][0-9]{{{digits},}}", int, spec=f"0{digits}")


class Template:
    """A text with fields."""

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        """Compile a text with fields in braces, also of other templates, and optional parts in brackets."""
        self.fields = tuple(_FIELD.findall(text))  # names of the fields, in the order of the text
        self._optional = tuple(name for part in _OPTIONAL.findall(text) for name in _FIELD.findall(part))
        self._readers = tuple((name, read) for name in self.fields if (read := fields[name].read))
        self._text, self._fields = text, fields
        self._parts = tuple(_part(part, fields) for part in _OPTIONAL.split(text) if part)

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        # compiled when a name is first parsed: programs that only write need none of them
        return re.compile(_pattern(self._text, self._fields), re.DOTALL)

    def format(self, values: object) -> str:
        """Return the name."""
        return "".join([part.format(values) for part in self._parts])

    def parse(self, name: str) -> dict[str, Any] | None:
        """Return the fields that stand in a name, None where the template does not fit it."""
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        fields: dict[str, Any] = match.groupdict()
        for field in self._optional:
            if fields[field] is None:
                del fields[field]
        for field, read in self._readers:
            if field in fields:
                fields[field] = read(fields[field])
        return fields


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a template that is written as a whole or left out."""

    text: str  # format string: the object with the values is argument 0, fields of ``writers`` are keywords
    optional: tuple[str, ...]  # the part is left out if one of these fields has no value
    # functions that write fields which ``str.format`` cannot
    writers: tuple[tuple[str, Callable[[Any], str]], ...]

    def format(self, values: object) -> str:
        for name in self.optional:
            if getattr(values, name) in _ABSENT:
                return ""
        if not self.writers:
            return self.text.format(values)
        written = {name: write(getattr(values, name)) for name, write in self.writers}
        return self.text.format(values, **written)


_ABSENT: Final = (None, ())
_OPTIONAL: Final = re.compile(r"(\[[^\]]*\])")
_FIELD: Final = re.compile(r"\{(\w+)\}")
_TOKEN: Final = re.compile(r"\{(?P<field>\w+)\}|(?P<bracket>[\[\]])")
_BRACKETS: Final = {"[": "(?:", "]": ")?"}


def _part(text: str, fields: Mapping[str, Field]) -> _Part:
    names = tuple(_FIELD.findall(text))
    return _Part(
        _FIELD.sub(lambda field: _replacement(field[1], fields[field[1]]), text.strip("[]")),
        names if text.startswith("[") else (),
        tuple((name, write) for name in names if (write := fields[name].write)),
    )


def _replacement(name: str, field: Field) -> str:
    return f"{{{name}}}" if field.write else f"{{0.{name}:{field.spec}}}"


def _pattern(text: str, fields: Mapping[str, Field]) -> str:
    pattern, end = "", 0
    for token in _TOKEN.finditer(text):
        field = token["field"]
        special = f"(?P<{field}>{fields[field].pattern})" if field else _BRACKETS[token["bracket"]]
        pattern += re.escape(text[end : token.start()]) + special
        end = token.end()
    return pattern + re.escape(text[end:])
