"""Messages on standard error: warnings of the library, and errors; no warning appears twice."""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

import click

from msdump.cli import sections, streams
from msdump.errors import DAMAGED, cut

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_VERBOSITY: Final = "msdump.verbosity"


class _Lines(logging.Handler):
    """Prints log records: each message once, of each call site the first 20; further ones are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, int]] = Counter()  # by file and line of the call that logs

    def emit(self, record: logging.LogRecord) -> None:
        is_damage = record.levelno == DAMAGED
        message = f"{'warning' if is_damage else record.levelname.lower()}: {record.getMessage()}"
        if is_damage:
            _damages.append(message)
        if message in _said:
            return
        self.counts[record.pathname, record.lineno] += 1
        if self.counts[record.pathname, record.lineno] <= _MOST_FAULTS or _log.level < logging.WARNING:
            say_once(message)
        _said.add(message)

    def finish(self) -> None:
        """Print how many messages of each kind were not printed."""
        counts, self.counts = self.counts, Counter()
        for count in counts.values():
            if count > _MOST_FAULTS and _log.level >= logging.WARNING:
                say(f"warning: {count - _MOST_FAULTS:,} more of these (-v shows all)")


_MOST_FAULTS: Final = 20  # of one kind; -v shows all
_LONGEST_LINE: Final = 4000  # characters; a path has up to 4,096 bytes
_ERROR: Final = re.compile(r"(rank \d+: )?(error: |internal error: |interrupted)")

_speaker = ""

_lines: Final = _Lines()
_log: Final = logging.getLogger("msdump")
_said: Final[set[str]] = set()
_blamed: Final[list[str]] = []
_damages: Final[list[str]] = []


def start() -> None:
    """Show the library's warnings from now on, more with -v and -vv."""
    speak_as("")
    _said.clear()  # several commands may run in one process: each prints all its messages
    _log.addHandler(_lines)  # has no effect if the handler was added before
    _log.setLevel(_LEVELS[min(verbosity(), len(_LEVELS) - 1)])


def finish() -> None:
    """Say how many warnings of the command were not printed."""
    _lines.finish()


def verbosity() -> int:
    """Return how often -v was given."""
    count: int = click.get_current_context().meta.get(_VERBOSITY, 0)
    return count


def _take_verbosity(ctx: click.Context, _option: click.Parameter, count: int) -> None:
    ctx.meta[_VERBOSITY] = count
    start()


def _option(*names: str, more: str) -> Callable[[_Command], _Command]:
    return sections.general(
        *names,
        count=True,
        expose_value=False,
        is_eager=True,  # before all other options: their callbacks may print warnings
        callback=_take_verbosity,
        help=f"Print tracebacks and longer lists; {more}: debug messages, too.",
    )


verbose: Final = _option("-v", "--verbose", more="-vv")
"""The option -v of the commands."""

verbose_in_full: Final = _option("--verbose", more="twice")
"""The same without -v, for commands where that means something else."""


class Bar:
    """A progress bar on a terminal; elsewhere it shows nothing."""

    def __init__(self, update: Callable[..., None] = lambda **_: None) -> None:
        """Take the function that updates the terminal."""
        self._update = update

    def __call__(self, _size: int = 0) -> None:
        """Advance by one; sizes of steps are ignored."""
        self._update(advance=1)

    def expect(self, total: int) -> None:
        """Set the number of steps, where it is not known from the start."""
        self._update(total=total)


@contextmanager
def bar(noun: str, total: int) -> Iterator[Bar]:
    """Show a progress bar on a terminal, and yield the function that advances it by one."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Bar()
        return
    from rich.progress import Progress

    # rich follows escapes that a user's program prints below the bar
    below = streams.standard if isinstance(sys.stderr, streams.ShownStream) else nullcontext
    with Progress(console=streams.console(sys.stderr), transient=True) as progress, below():
        yield Bar(partial(progress.update, progress.add_task(noun, total=total or None)))


def show(text: str) -> None:
    """Print to standard error, below a progress bar if there is one."""
    sys.stdout.flush()  # both may go to one file or terminal, where the order of lines matters
    print(text, file=sys.stderr)


def speak_as(speaker: str) -> None:
    """Set the prefix of all later messages: the name of one of several ranks; "" for none."""
    global _speaker  # noqa: PLW0603 - the process has one
    _speaker = f"{speaker}: " if speaker else ""


def say(message: str) -> None:
    """Print a message in the program's name."""
    lines = (cut(line, _LONGEST_LINE) for line in message.split("\n"))
    message = "\n".join(lines)
    blame(message)
    show(f"msdump: {_speaker}{message}")


def blame(message: str) -> None:
    """Keep a message about an error for the document of ``--json``."""
    if _ERROR.match(message):
        _blamed.append(f"{_speaker}{message}".removeprefix("error: "))


def blamed() -> tuple[str, ...]:
    """Return the messages about errors so far."""
    return tuple(_blamed)


def forget() -> None:
    """Forget the errors and the damages of a command that ran before in this process."""
    _blamed.clear()
    _damages.clear()


def has_damages() -> bool:
    """Return whether the command has met input that could not be read whole."""
    return bool(_damages)


def say_each(kind: str, faults: Sequence[str]) -> None:
    """Print why input could not be read whole, without -v the first faults alone; the exit code is 1 then."""
    _damages.extend(faults)
    most = len(faults) if verbosity() else _MOST_FAULTS
    for fault in faults[:most]:
        say_once(f"{kind}: {fault}")
    if len(faults) > most:
        say(f"{kind}: {len(faults) - most:,} more of these (-v shows all)")


def say_once(message: str) -> None:
    """Print a message unless it was printed before."""
    if message not in _said:
        _said.add(message)
        say(message)
