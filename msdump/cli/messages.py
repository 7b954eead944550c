"""Messages on standard error: warnings of the library, and errors; no warning appears twice."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_VERBOSITY: Final = "msdump.verbosity"


class _Lines(logging.Handler):
    """Prints log records as lines of the program, each message once."""

    def emit(self, record: logging.LogRecord) -> None:
        say_once(f"{record.levelname.lower()}: {record.getMessage()}")


_ERROR: Final = re.compile(r"(rank \d+: )?(error: |internal error: |interrupted)")

_speaker = ""

_lines: Final = _Lines()
_said: Final[set[str]] = set()
_blamed: Final[list[str]] = []


def start() -> None:
    """Show the library's warnings from now on, more with -v and -vv."""
    speak_as("")
    _said.clear()  # several commands may run in one process, each says its own
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


def _option(*names: str, more: str) -> Callable[[_Command], _Command]:
    return click.option(
        *names,
        count=True,
        expose_value=False,
        is_eager=True,  # before all other options, whose callbacks may already have something to say
        callback=_take_verbosity,
        help=f"Show tracebacks and longer lists; {more}: also what the library does.",
    )


verbose: Final = _option("-v", "--verbose", more="-vv")
"""The option -v of the commands."""

verbose_in_full: Final = _option("--verbose", more="twice")
"""The same without -v, for commands where that means something else."""


def tell_execution(path: str, execution: int, executions: int) -> None:
    """Warn which of several executions in a directory is taken, once for each dump and number.

    Args:
        path: Directory of an iteration.
        execution: Number of the execution that is taken.
        executions: Number of executions in the directory.
    """
    if executions > 1:
        say_once(
            f"warning: {path.rpartition('/rank_')[0] or path} holds {executions} executions in one directory;"
            f" {execution} (of 0-{executions - 1}) is taken (--execution, --golden-execution)"
        )


class Bar:
    """A progress bar; one that is not shown takes the same calls."""

    def __call__(self, size: int = 0) -> None:
        """Advance by one.

        Args:
            size: Bytes that were read for it.
        """

    def expect(self, total: int) -> None:
        """Set the number of steps, where it is not known from the start."""


class _ShownBar(Bar):
    def __init__(self, progress: Any, noun: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(noun, total=total or None, rate="")
        self._size = 0
        self._began = time.monotonic()

    def __call__(self, size: int = 0) -> None:
        self._size += size
        self._progress.update(self._task, advance=1, rate=self._rate())

    def expect(self, total: int) -> None:
        self._progress.update(self._task, total=total)

    def _rate(self) -> str:
        """Return the bytes a second since the beginning."""
        seconds = time.monotonic() - self._began
        return f"{self._size / seconds / 1e6:,.0f} MB/s" if self._size and seconds else ""


@contextmanager
def bar(noun: str, total: int) -> Iterator[Bar]:
    """Show a progress bar on a terminal, and yield the function that advances it by one.

    Args:
        noun: Plural of what is counted.
        total: Number of steps, 0: not known (yet).
    """
    if not sys.stderr.isatty():
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _ShownBar(progress, noun, total)


def show(text: str) -> None:
    """Print to standard error, below a progress bar if there is one."""
    sys.stdout.flush()  # both may go to one file or terminal, where the order of lines matters
    print(text, file=sys.stderr)


def speak_as(speaker: str) -> None:
    """Name who speaks in all messages from now on, one of several ranks; "" for a process alone."""
    global _speaker  # noqa: PLW0603 - the process has one
    _speaker = f"{speaker}: " if speaker else ""


def say(message: str) -> None:
    """Print a message in the program's name."""
    blame(message)
    show(f"msdump: {_speaker}{message}")


def blame(message: str) -> None:
    """Remember a message that tells of an error, for the document of ``--json``."""
    if _ERROR.match(message):
        _blamed.append(f"{_speaker}{message}".removeprefix("error: "))


def blamed() -> tuple[str, ...]:
    """Return the messages so far that told of errors."""
    return tuple(_blamed)


def forget() -> None:
    """Forget the errors of a command that ran before in this process."""
    _blamed.clear()


def say_once(message: str) -> None:
    """Print a message unless it was printed before."""
    if message not in _said:
        _said.add(message)
        say(message)
