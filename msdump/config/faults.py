"""Faults and warnings of one configuration file: worded, placed in it, collected, reported at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from msdump.config.source import Document, Path, caret
from msdump.errors import ConfigValueError, Problem

_log = logging.getLogger("msdump.config")
_LONGEST_VALUE: Final = 80  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class TextFault:
    """One fault of a text that follows a grammar.

    Attributes:
        start: Offset of the offending part, in characters.
        end: Offset behind it.
        message: What is wrong and what to write instead.
    """

    start: int
    end: int
    message: str


class GrammarError(ValueError):
    """A text that does not follow its grammar.

    Attributes:
        text: The text.
        faults: Every fault found in it, in the order of the text.
    """

    def __init__(self, text: str, *faults: TextFault) -> None:
        """Take the text and its faults; their messages, joined, are the error's own."""
        self.text = text
        self.faults = faults
        super().__init__("; ".join(fault.message for fault in faults))


class FaultReport:
    """Collects what is wrong or doubtful in one document."""

    def __init__(self, document: Document) -> None:
        """Start with nothing found."""
        self._document = document
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []

    def error(self, path: Path, message: str) -> None:
        """Add a fault of the value at a path."""
        self._errors.append(self._problem(path, message))

    def warn(self, path: Path, message: str) -> None:
        """Add a doubt about the value at a path."""
        self._warnings.append(self._problem(path, message))

    def warn_of_key(self, path: Path, message: str) -> None:
        """Add a doubt about the key at a path."""
        line, column = self._document.key_position(path)
        self._warnings.append(Problem(json_path(path), message, line, column))

    def warn_outside(self, name: str, message: str) -> None:
        """Add a doubt about the value of an environment variable."""
        self._warnings.append(Problem("", f"{name} {message}"))

    def error_outside(self, error: GrammarError, name: str) -> None:
        """Add the faults of a text that an environment variable gives."""
        self._errors += [
            Problem("", f"{name} = {show(error.text)}: {fault.message}", excerpt=_excerpt(error, fault))
            for fault in error.faults
        ]

    def error_in_text(self, path: Path, error: GrammarError) -> None:
        """Add the faults of a text at a path, each with a caret below the offending part."""
        line, column = self._document.value_position(path)
        self._errors += [
            Problem(
                json_path(path),
                f"= {show(error.text)}: {fault.message}",
                line,
                column,
                _excerpt(error, fault),
            )
            for fault in error.faults
        ]

    def place(self, path: Path) -> str:
        """Return where the value at a path stands, for messages: file, line and path."""
        line, _ = self._document.value_position(path)
        return f"{self._document.source}:{line}: {json_path(path)}"

    def close(self) -> None:
        """Log every warning, then raise every fault at once.

        Raises:
            ConfigValueError: There is at least one fault.
        """
        source = self._document.source
        # warnings come first and in the file's order, whatever the order of the checks: read top to bottom
        for problem in sorted(self._warnings, key=lambda problem: (problem.line, problem.column)):
            _log.warning("%s", problem.render(source))
        if self._errors:
            raise ConfigValueError(source, tuple(self._errors))

    def _problem(self, path: Path, message: str) -> Problem:
        line, column = self._document.value_position(path)
        return Problem(json_path(path), message, line, column)


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


def _excerpt(error: GrammarError, fault: TextFault) -> str:
    return caret(error.text, fault.start, fault.end)
