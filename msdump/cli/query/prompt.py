"""The prompt of ``msdump query``: questions one after the other, with history and completion."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msdump.cli import messages
from msdump.cli.query import text
from msdump.errors import MsdumpError
from msdump.tools.query.columns import VIEWS
from msdump.tools.query.session import Session

_HISTORY: Final = "~/.msdump_query_history"
_MOST: Final = 1000  # questions that are remembered
_ENDS: Final = frozenset({"exit", "quit", ".exit", ".quit", ".q"})
_HELP: Final = frozenset({"help", ".help", "?", ".tables", ".schema"})
_KEYWORDS: Final = (
    *("select", "distinct", "from", "where", "group by", "having", "order by", "limit", "desc", "asc"),
    *("join", "left join", "using", "on", "and", "or", "not", "in", "like", "is null", "between", "union"),
    *("count", "sum", "avg", "min", "max", "isnan", "isinf", "list_contains", "regexp_matches"),
    *("with", "as", "describe", "summarize", "pivot", "unnest", "case", "when", "then", "else", "end"),
)


def ask(session: Session, *, is_csv: bool) -> None:
    """Answer questions until the user ends the input.

    A question ends with a semicolon or an empty line. What is wrong with one is told, and the next asked.
    """
    print("Questions end with a semicolon. Views: " + ", ".join(VIEWS) + ". help, exit; Tab completes.")
    with _editing():
        for question in _questions():
            try:
                answer = session.ask(question)
                if is_csv:
                    text.print_csv(answer)
                else:
                    text.print_table(answer)
            except MsdumpError as error:
                messages.say(f"error: {error}")
            except KeyboardInterrupt:
                messages.show("interrupted")


def _questions() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            line = input("   ...> " if lines else "msdump> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:  # a question that was begun is dropped
            print()
            lines.clear()
            continue
        word = line.strip().rstrip(";").lower()
        if not lines and word in _ENDS:
            return
        if not lines and word in _HELP:
            _help()
            continue
        lines.append(line)
        if line.rstrip().endswith(";") or not line.strip():
            question = "\n".join(lines).strip()
            lines.clear()
            if question:
                yield question


def _help() -> None:
    for view, columns in VIEWS.items():
        print(f"{view}: {', '.join(column.name for column in columns)}")


@contextlib.contextmanager
def _editing() -> Iterator[None]:
    """Let lines be edited, completed and remembered, where Python has readline."""
    try:
        import readline
    except ModuleNotFoundError:
        yield
        return
    path = Path(_HISTORY).expanduser()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_MOST)
    readline.set_completer_delims(" \t\n\"'(),;=<>")
    readline.set_completer(_Completer())
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            readline.write_history_file(path)


class _Completer:
    """Completes views, columns and words of SQL."""

    def __init__(self) -> None:
        columns = (column.name for view in VIEWS.values() for column in view)
        self._words = tuple(dict.fromkeys((*VIEWS, *columns, *_KEYWORDS)))

    def __call__(self, begun: str, number: int) -> str | None:
        """Return a word that begins so, by its number among these; None behind the last."""
        before, dot, last = begun.rpartition(".")
        words = (word for word in self._words if word.startswith(last.lower()))
        fitting = [f"{before}{dot}{word}" for word in words]
        return fitting[number] if number < len(fitting) else None
