"""Regular expressions of users, matched in bounded time.

>>> expression("Default/.+", searches=False).matches("Default/conv1-Conv2d/Conv2D-op0")
True
>>> expression("Conv", searches=False).matches("Default/conv1-Conv2d/Conv2D-op0")
False
>>> expression("Conv", searches=True).matches("Default/conv1-Conv2d/Conv2D-op0")
True
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Final

_ADVANCE: Final = 2.0  # seconds of processor time for the first name
_PER_NAME: Final = 0.001  # seconds more for each name, so that a large graph has time in proportion
_MOST_KEPT: Final = 256


class Expression:
    """A regular expression that gives up on a name for which it backtracks too long."""

    def __init__(self, text: str, *, searches: bool) -> None:
        """Compile the expression.

        Args:
            text: The expression as Python's ``regex`` package reads it.
            searches: It matches anywhere in a name, not only the whole name.
        """
        import regex  # unlike re it takes a time limit, and stops in the middle of a match

        # std::regex knows classes such as \d and \w for ASCII only
        compiled = regex.compile(text, regex.ASCII)
        self._match = compiled.search if searches else compiled.fullmatch
        self._left = _ADVANCE

    def matches(self, name: str) -> bool:
        """Tell whether a name matches.

        Raises:
            TimeoutError: This name, or those up to it, took too long.
        """
        # processor time: a busy machine, or a suspended one, must not make a good expression fail
        started = time.process_time()
        try:
            match = self._match(name, timeout=self._left)
        except TimeoutError:
            self._left = _ADVANCE
            raise
        spent = time.process_time() - started
        # fast names save time for slow ones, up to the advance
        self._left = max(_PER_NAME, min(_ADVANCE, self._left - spent + _PER_NAME))
        return match is not None


@lru_cache(maxsize=_MOST_KEPT)
def expression(text: str, *, searches: bool) -> Expression:
    """Return the compiled expression of a text, one object for each text so that its time adds up."""
    return Expression(text, searches=searches)
