"""The option ``--json``: standard output holds one JSON document and nothing else, whatever a command does.

A command that has the option asks ``wanted`` and hands its document to ``put`` in place of printing:

    @click.command(name="show")
    @output.option
    def command(...):
        if output.wanted():
            output.put(document_of(dump))

The document is printed when the command has ended, with what it said of its errors on standard error. One
that was stopped before it had a document prints ``{"error": ...}``. Exit codes are those without the option.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from msdump.cli import messages

if TYPE_CHECKING:
    from msdump.cli.documents.document import JsonDocument

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FLAG: Final = "--json"
_WANTED: Final = "msdump.json.wanted"
_DOCUMENT: Final = "msdump.json.document"
_HELP: Final = frozenset({"-h", "--help"})  # the help is a text, also beside --json


def option(command: _Command) -> _Command:
    """Give a command the option ``--json``."""
    return click.option(
        _FLAG, "is_json", is_flag=True, expose_value=False, help="Print one JSON document (docs/schema)."
    )(command)


def wanted() -> bool:
    """Tell whether the command that runs is to put a document instead of printing."""
    is_wanted: bool = click.get_current_context().meta.get(_WANTED, False)
    return is_wanted


def put(document: JsonDocument) -> None:
    """Set the document that is printed at the end; a later one takes its place."""
    click.get_current_context().meta[_DOCUMENT] = document


@contextlib.contextmanager
def one_document(ctx: click.Context, arguments: Sequence[str]) -> Iterator[None]:
    """Print one document behind a command whose arguments ask for it; what it prints goes to standard error.

    Args:
        ctx: Context of the program.
        arguments: The arguments of the command.
    """
    if _FLAG not in arguments or _HELP & {*arguments}:
        yield
        return
    ctx.meta[_WANTED] = True
    messages.forget()
    # Scripts of users print, too.
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        try:
            yield
        except click.ClickException as error:
            messages.blame(f"error: {error.format_message()}")
            raise
        except click.Abort:
            messages.blame("interrupted")
            raise
        finally:
            stdout.write(_text(ctx))


def _text(ctx: click.Context) -> str:
    """Return the document of the command, or that of its error where it has none."""
    # Here, not above: pydantic takes long to import, and most calls of the program print a text.
    from msdump.cli.documents.document import ErrorDocument, text

    error = "\n".join(messages.blamed()) or None
    document = ctx.meta.get(_DOCUMENT)
    if document is None:
        document = ErrorDocument(error=error or "nothing was done")
    elif error is not None:
        document = document.model_copy(update={"error": error})
    return text(document)
