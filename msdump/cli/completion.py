"""``msdump completion``: prints the script by which a shell completes msdump's commands, or installs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from msdump import env
from msdump.cli import messages, sections
from msdump.store.write import write_stream

_PROGRAM: Final = "msdump"
_VARIABLE: Final = "_MSDUMP_COMPLETE"
_PLACES: Final = {
    "bash": ".local/share/bash-completion/completions/msdump",
    "zsh": ".zfunc/_msdump",
    "fish": ".config/fish/completions/msdump.fish",
}
"""Where each shell looks for the script of a program, below the user's directory."""

_REMARKS: Final = {
    "bash": "the package bash-completion reads it when a new shell starts",
    "zsh": "~/.zshrc needs, before compinit: fpath+=~/.zfunc",
    "fish": "a new shell reads it",
}


@click.command(name="completion", cls=sections.Command)
@click.argument(
    "shell", type=click.Choice(tuple(_PLACES)), required=False, help="Shell; the default is $SHELL."
)
@sections.output("--install", is_flag=True, help="Write the script to the completion directory of the shell.")
@messages.verbose
def command(*, shell: str | None, install: bool) -> None:
    """Print the script that completes commands in a shell.

    The script completes commands, options, values of options, and files.

    Examples:
        msdump completion bash
        msdump completion zsh --install

    Exit codes:
        0  The script is printed or written.
        2  The shell is unknown, or the script could not be written.
    """
    name = shell or _own_shell()
    script = _script(name)
    if not install:
        click.echo(script)
        return
    path = Path.home() / _PLACES[name]
    write_stream(str(path.parent), path.name, (script.encode(),))
    click.echo(f"written    {path}")
    click.echo(f"           {_REMARKS[name]}")


def _own_shell() -> str:
    name = os.path.basename(env.read("SHELL") or "")  # noqa: PTH119 - a name, whatever stands there
    if name not in _PLACES:
        told = f"$SHELL is {name}" if name else "$SHELL is not set"
        raise click.UsageError(f"{told}: give one of {', '.join(_PLACES)}")
    return name


def _script(shell: str) -> str:
    # here, not above: the program imports this module
    from msdump.cli.program import main

    kind = get_completion_class(shell)
    assert kind is not None, shell
    # not source(), which runs the shell to ask for its version
    asked = kind(main, {}, _PROGRAM, _VARIABLE)
    return asked.source_template % asked.source_vars()
