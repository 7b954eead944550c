"""What goes to standard error: warnings of the library, errors, nothing twice."""

from __future__ import annotations

import logging
import sys
from typing import Final

import click

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_VERBOSITY: Final = "msdump.verbosity"


class _Lines(logging.Handler):
    """Prints log records as lines of the program, each message once."""

    def emit(self, record: logging.LogRecord) -> None:
        say_once(f"{record.levelname.lower()}: {record.getMessage()}")


_lines: Final = _Lines()
_said: Final[set[str]] = set()


def start() -> None:
    """Show the library's warnings from now on, more with -v and -vv."""
    _said.clear()
    log = logging.getLogger("msdump")
    log.addHandler(_lines)  # a handler that is there is not added again
    log.setLevel(_LEVELS[min(verbosity(), len(_LEVELS) - 1)])


def verbosity() -> int:
    """Return how often -v was given."""
    count: int = click.get_current_context().meta.get(_VERBOSITY, 0)
    return count


def _take_verbosity(ctx: click.Context, _option: click.Parameter, count: int) -> None:
    ctx.meta[_VERBOSITY] = count
    start()


verbose: Final = click.option(
    "-v",
    "--verbose",
    count=True,
    expose_value=False,
    is_eager=True,
    callback=_take_verbosity,
    help="Show tracebacks and longer lists; -vv: also what the library does.",
)
"""The option -v of every command."""


def show(text: str) -> None:
    """Print to standard error, below a progress bar if there is one."""
    sys.stdout.flush()
    print(text, file=sys.stderr)


def say(message: str) -> None:
    """Print a message in the program's name."""
    show(f"msdump: {message}")


def say_once(message: str) -> None:
    """Print a message unless it was printed before."""
    if message not in _said:
        _said.add(message)
        say(message)
