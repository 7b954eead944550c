"""The form of ``--help``: text, examples, arguments, options by section, exit codes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from click.types import OptionHelpExtra

_Command = TypeVar("_Command", bound=Callable[..., Any])

_BLOCKS: Final = re.compile(
    r"(?P<text>.*?)(?:^Examples:\n(?P<examples>.*?))?(?:^Exit codes:\n(?P<codes>.*))?\Z",
    re.DOTALL | re.MULTILINE,
)


class Option(click.Option):
    """An option with the title of its section in ``--help``."""

    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        """Declare an option as ``click.Option`` does; ``--help`` shows its default."""
        is_shown = settings.get("default") not in {None, ""} and not settings.get("is_flag")
        super().__init__(*names, **{"show_default": is_shown or None, **settings})
        self.section = section
        if isinstance(self.type, click.IntRange | click.FloatRange) and not self.count:
            self.metavar = self.metavar or "N"

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Return the texts in brackets behind an option; a default in words has no parentheses around it."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default
        return extra


@dataclass(frozen=True, slots=True)
class Section:
    """A section of ``--help``: a call declares one of its options as ``click.option`` does."""

    title: str

    def __call__(self, *names: str, **settings: Any) -> Callable[[_Command], _Command]:
        """Return the decorator that gives a command the option."""
        return click.option(*names, cls=Option, section=self.title, **settings)


inputs: Final = Section("Inputs")
training: Final = Section("Training")
device: Final = Section("Device")
selection: Final = Section("Selection")
limits: Final = Section("Limits")
search: Final = Section("Search")
output: Final = Section("Output")
speed: Final = Section("Speed")
general: Final = Section("General")


class Command(click.Command):
    """A command; the docstring of its function ends with the blocks ``Examples:`` and ``Exit codes:``."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002
        """Take the blocks out of the help text; ``python -OO`` leaves it out."""
        blocks = _BLOCKS.match(inspect.cleandoc(help or ""))
        assert blocks is not None, "every group of the pattern is optional"
        super().__init__(name, help=blocks["text"].strip(), **settings)
        self.examples = [*map(str.strip, (blocks["examples"] or "").strip().splitlines())]  # command lines
        rows = (line.split(maxsplit=1) for line in re.split(r"\n(?= *\d)", (blocks["codes"] or "").strip()))
        # exit codes and their meanings
        self.exit_codes = [(code, " ".join(text.split())) for code, text in filter(None, rows)]
        if self.exit_codes:
            self.exit_codes.append(("130", "The command was interrupted."))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the text and the examples; examples are not wrapped."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in self.examples))

    def options_by_section(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return names and texts of the options by the titles of their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and not isinstance(option, click.Argument):
                title = option.section if isinstance(option, Option) else general.title
                sections.setdefault(title, []).append(record)
        return sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section of options."""
        for title, records in self.options_by_section(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes and the last line."""
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl(self.exit_codes)
        super().format_epilog(ctx, formatter)
