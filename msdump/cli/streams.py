"""The standard streams of a program: no text on them steers a terminal, and each may be closed or full."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

from msdump.errors import visible

CLOSED: Final = 141
"""Exit code that a shell reports for a program that a closed pipe has ended: 128 and SIGPIPE."""

FULL: Final = 1
"""Exit code of a program whose output cannot be written."""

_PIPED_WIDTH: Final = 160  # columns; rich takes 80 where there is no terminal, which folds every name


class ShownStream:
    """A stream that people read: characters that steer a terminal are spelled out.

    A failed write ends the program: without a message if the reader of its output, such as ``| head``, has
    closed the pipe. Other faults of standard error are ignored: messages are dropped.
    """

    def __init__(self, stream: TextIO | ShownStream, form: Callable[[str], str] = visible) -> None:
        """Wrap a stream; ``form`` is applied to each text before it is written."""
        self.raw: TextIO = stream.raw if isinstance(stream, ShownStream) else stream
        self._form = form

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute from the wrapped stream."""
        return getattr(self.raw, name)

    def write(self, text: str) -> int:
        """Write a text."""
        self._call(self.raw.write, self._form(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write the buffer."""
        self._call(self.raw.flush)

    def _call(self, call: Callable[..., object], *arguments: str) -> None:
        try:
            call(*arguments)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.raw.fileno())  # the rest of the buffer is discarded
            os.close(nowhere)
            if error.errno == errno.EPIPE:
                raise SystemExit(CLOSED) from None
            if self.raw is not sys.__stderr__:
                reason = error.strerror or error
                print(f"msdump: error: standard output cannot be written: {reason}", file=sys.stderr)
                raise SystemExit(FULL) from None


@contextmanager
def standard() -> Iterator[None]:
    """Show texts on standard output and error; the null device stands in for streams that are closed."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - else a dump file would be stderr
        os.set_inheritable(fd, True)
    before = sys.stdin, sys.stdout, sys.stderr
    with os.fdopen(fd, "r+", encoding="utf-8") as null:
        sys.stdin = before[0] or null
        sys.stdout, sys.stderr = (cast("TextIO", ShownStream(each or null)) for each in before[1:])
        try:
            yield
        finally:
            try:
                sys.stdout.flush()  # else the interpreter reports a closed pipe at exit
            finally:
                sys.stdin, sys.stdout, sys.stderr = before


def unescaped(stream: TextIO) -> TextIO:
    """Return the stream without escaping: for texts escaped before, and for output that programs read."""
    return cast("TextIO", ShownStream(stream.raw, str)) if isinstance(stream, ShownStream) else stream


def data() -> TextIO:
    """Return standard output for data: unescaped in a file or pipe, escaped on a terminal."""
    return sys.stdout if sys.stdout.isatty() else unescaped(sys.stdout)


def console(stream: TextIO, **how: Any) -> Any:
    """Return rich's console on a stream; it escapes texts and does not interpret markup in them."""
    from rich.console import Console

    class TextConsole(Console):
        def render_str(self, text: str, **how: Any) -> Any:
            return super().render_str(visible(text), **how)

    return TextConsole(file=unescaped(stream), markup=False, emoji=False, **how)


def print_table(table: Any) -> None:
    """Print a table of rich, on a terminal in its width."""
    console(sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH).print(table)


def can_print(text: str) -> bool:
    """Tell whether the encoding of standard output has the characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
