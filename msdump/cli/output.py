"""The option ``--json``: standard output holds one JSON document and nothing else, whatever a command does.

A command that has the option declares its document, and hands the object that it shows to ``put`` in place
of printing:

    DOCUMENT = Document(Shape(Dump, "path size=files.bytes note?", name="ShowDocument"))

    @click.command(name="show")
    @output.option
    def command(...):
        if output.wanted():
            output.put(DOCUMENT, dump)

The document is printed when the command has ended, with its messages on errors in standard error. One
that was stopped before it had a document prints ``{"error": ...}``. Exit codes are as without the option.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from msdump.cli import messages, sections, streams

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FLAG: Final = "--json"
_WANTED: Final = "msdump.json.wanted"
_DOCUMENT: Final = "msdump.json.document"
_HELP: Final = frozenset({"-h", "--help"})  # --help prints text, even with --json


def option(command: _Command) -> _Command:
    """Give a command the option ``--json``."""
    return sections.output(
        _FLAG,
        "is_json",
        is_flag=True,
        expose_value=False,
        help="Print one JSON document (schema: docs/schema).",
    )(command)


def wanted() -> bool:
    """Return whether the running command has ``--json``: it puts a document instead of printing."""
    is_wanted: bool = click.get_current_context().meta.get(_WANTED, False)
    return is_wanted


class Shape:
    """The fields of the JSON object that stands for an instance of a class."""

    def __init__(
        self, kind: type[Any], fields: str, *, name: str = "", **computed: Callable[[Any], object]
    ) -> None:
        """Declare the fields of the object; types and descriptions come from the attributes.

        Args:
            kind: The class.
            fields: The fields in their order: ``name`` shows the attribute of that name,
                ``name=some.other.attribute`` another one. A path through a list gives a list, one through
                None gives null. A ``?`` at the end makes null of an empty text, NaN and a number below 0.
            name: Name of the object in the schema, "": that of the class.
            computed: Functions that give the fields of their names.
        """
        self.kind, self.name, self.computed = kind, name or kind.__name__, computed
        self.paths: dict[str, tuple[str, bool]] = {}
        for field in fields.split():
            title, _, path = field.rstrip("?").partition("=")
            self.paths[title] = path or title, field.endswith("?")


class Document:
    """A document of ``--json``."""

    def __init__(self, shape: Shape, *inner: Shape) -> None:
        """Declare a document: the shape of the object that is put, and the shapes of the objects inside."""
        self.shape = shape
        self.shapes = {each.kind: each for each in (*inner, shape)}


def put(document: Document, shown: object) -> None:
    """Set the object that is printed as a document at the end; a later one takes its place."""
    click.get_current_context().meta[_DOCUMENT] = document, shown


def show(document: Document, shown: object, lines: Iterable[str]) -> None:
    """Set the object that is printed as a document, or print lines where no document is wanted."""
    if wanted():
        put(document, shown)
    else:
        for line in lines:
            print(line)


@contextlib.contextmanager
def one_document(ctx: click.Context, arguments: Sequence[str]) -> Iterator[None]:
    """Print one document after a command with ``--json``; text that the command prints goes to stderr."""
    if _FLAG not in arguments or _HELP & {*arguments}:
        yield
        return
    ctx.meta[_WANTED] = True
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
            streams.unescaped(stdout).write(_text(ctx))


def _text(ctx: click.Context) -> str:
    """Return the document of the command, or that of its error where it has none."""
    # Here, not above: pydantic takes long to import, and most calls of the program print a text.
    from msdump.cli import documents

    error = "\n".join(messages.blamed()) or None
    put_before = ctx.meta.get(_DOCUMENT)
    if put_before is None:
        return documents.error_text(error or "nothing was done")
    document, shown = put_before
    return documents.text(document, shown, error)
