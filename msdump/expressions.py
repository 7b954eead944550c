"""Regular expressions of users, matched in bounded time."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Final

_ADVANCE: Final = 2.0  # seconds of processor time
_PER_NAME: Final = 0.001  # more of them for each name, so that large graphs and many of them may take theirs
_MOST_KEPT: Final = 256


class Expression:
    """A regular expression that gives up where it takes much longer than names need."""

    def __init__(self, text: str, *, searches: bool) -> None:
        """Compile the expression.

        Args:
            text: The expression as Python's ``regex`` package reads it.
            searches: It matches anywhere in a name, not only the whole name.
        """
        import regex

        compiled = regex.compile(text, regex.ASCII)
        self._match = compiled.search if searches else compiled.fullmatch
        self._left = _ADVANCE

    def matches(self, name: str) -> bool:
        """Tell whether a name matches.

        Raises:
            TimeoutError: This name, or those up to it, took too long.
        """
        started = time.process_time()
        try:
            found = self._match(name, timeout=self._left)
        except TimeoutError:
            self._left = _ADVANCE
            raise
        spent = time.process_time() - started
        self._left = max(_PER_NAME, min(_ADVANCE, self._left - spent + _PER_NAME))
        return found is not None


@lru_cache(maxsize=_MOST_KEPT)
def expression(text: str, *, searches: bool) -> Expression:
    """Return the expression of a text, the same one where it was asked for before."""
    return Expression(text, searches=searches)
