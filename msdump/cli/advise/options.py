"""The options of ``msdump diff`` that ask for advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from msdump.cli.options import applied

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DECORATORS: Final = (
    click.option(
        "--advise",
        "bound",
        type=click.FloatRange(0, min_open=True),
        metavar="BOUND",
        help="Find the operators to keep so that the outputs' relative error stays below BOUND.",
    ),
    click.option(
        "--to",
        type=click.Choice(("float32", "bfloat16")),
        help="With --advise: the type in which they are kept (default: float32).",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FOLDER",
        help="With --advise: where files for ATC, MindSpore and others go; with --bisect: the part.",
    ),
)


def advice(command: _Command) -> _Command:
    """Give a command the options of advice."""
    return applied(_DECORATORS, command)
