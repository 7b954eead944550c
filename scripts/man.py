"""Write a manual page for msdump and each of its commands, from the help texts: scripts/man.py FOLDER."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import click

import msdump
from msdump.cli import main as program
from msdump.cli.program import COMMANDS, GROUPS
from msdump.cli.sections import Command


def escaped(text: str) -> str:
    r"""Return a text as roff shows it.

    >>> escaped(".npy files -- \\x")
    '\\&.npy files \\-\\- \\ex'
    """
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def page(context: click.Context, command: Command, day: date) -> Iterator[str]:
    """Yield the lines of a command's page.

    Args:
        context: A context of the command; its path names the page.
        command: The command.
        day: The date of the page.
    """
    name = context.command_path.replace(" ", "-")
    paragraphs = (command.help or "").split("\n\n")
    sentence = " ".join(paragraphs[0].split())
    yield f'.TH "{name.upper()}" "1" "{day}" "msdump {msdump.__version__}" "User commands"'
    yield from (".SH NAME", f"{escaped(name)} \\- {escaped(sentence.rstrip('.'))}")
    yield from (".SH SYNOPSIS", f".B {escaped(context.command_path)}")
    yield escaped(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield escaped(" ".join(paragraph.split()))
    if command.examples:
        yield from (".SH EXAMPLES", ".EX", *map(escaped, command.examples), ".EE")
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Argument)]
    yield from _definitions(".SH ARGUMENTS", [*filter(None, records)])
    if isinstance(command, click.Group):
        yield from _groups("COMMANDS", {title: [*commands.items()] for title, commands in GROUPS.items()})
        pages = ", ".join(f"\\fBmsdump\\-{escaped(each)}\\fR(1)" for each in COMMANDS)
    else:
        pages = "\\fBmsdump\\fR(1)"
    yield from _groups("OPTIONS", command.options_by_section(context))
    yield from _definitions(".SH EXIT STATUS", command.exit_codes)
    yield from (".SH SEE ALSO", pages)


def _groups(title: str, groups: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[str]:
    yield f".SH {title}"
    for name, rows in groups.items():
        yield from _definitions(f".SS {name}", rows)


def _definitions(heading: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield heading
    for term, text in rows:
        yield from (".TP", f"\\fB{escaped(term)}\\fR", escaped(" ".join(text.split())))


def pages(day: date) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    context = click.Context(program, info_name="msdump", **program.context_settings)
    yield "msdump.1", "\n".join(page(context, program, day)) + "\n"
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert isinstance(command, Command), name
        inner = click.Context(command, info_name=name, parent=context)
        yield f"msdump-{name}.1", "\n".join(page(inner, command, day)) + "\n"


def write(folder: Path, day: date) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(day):
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the folder
        sys.exit("usage: python scripts/man.py FOLDER")
    write(Path(sys.argv[1]), date.today())  # noqa: DTZ011 - a day, wherever one is
