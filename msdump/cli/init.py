"""``msdump init``: writes a dump configuration with comments."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from msdump.cli import messages, sections
from msdump.config import templates
from msdump.store.write import make_directories, write_file

_WIDTH: Final = 11
_MODE: Final = 0o644  # no tensors: colleagues may read it, unlike a dump


@click.command(name="init", cls=sections.Command)
@sections.selection(
    "--mode", type=click.Choice(tuple(templates.MODES)), help="Mode of the dump.", show_default="sync"
)
@sections.selection(
    "--iteration", default="0", metavar="TEXT", help="Iterations to dump, such as 0|5-8, or all."
)
@sections.selection("--yes", is_flag=True, help="Take the default of each prompt.")
@sections.output(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False),
    metavar="FILE.json",
    default="data_dump.json",
    help="Path of the configuration.",
)
@sections.output("--force", is_flag=True, help="Replace an existing file.")
@messages.verbose
def command(*, target: str, mode: str | None, iteration: str, yes: bool, force: bool) -> None:
    """Write a dump configuration with comments.

    The file works with msdump, MindSpore and CANN. On a terminal the command
    prompts for the choices; each prompt has a default. A comment is a key that begins with _.

    Examples:
        msdump init
        msdump init --mode statistics --iteration 0-3 --yes -o statistics.json

    Exit codes:
        0  The file is written.
        2  The file exists, an answer is wrong, or the file could not be written.
    """
    is_asking = not yes and sys.stdin is not None and sys.stdin.isatty()
    path = Path(target).absolute()
    if not target.endswith(".json"):
        raise click.UsageError(f"{target}: the name must end in .json, as MindSpore requires")
    if path.exists() and not force and not (is_asking and click.confirm(f"{target} exists. Replace it?")):
        raise click.UsageError(f"{target} exists; --force replaces it, -o writes another file")
    if is_asking and mode is None:
        for name, each in templates.MODES.items():
            click.echo(f"{name:<{_WIDTH}}{each.title}")
        mode = click.prompt("Mode", type=click.Choice(tuple(templates.MODES)), default="sync")
    name = mode or "sync"
    answers = templates.Answers(str(Path.cwd() / "dump"), iteration=iteration)
    if is_asking:
        chosen, net_name, kernels = templates.MODES[name], answers.net_name, ""
        folder = click.prompt("Directory of the dump (absolute)", default=answers.path)
        if not chosen.is_acl:
            net_name = click.prompt("Name of the network", default="Net")
        iteration = click.prompt('Iterations, such as 0|5-8, or "all"', default=iteration)
        if chosen.selects:
            question = "Operators, types or full names with commas between them (empty: all)"
            kernels = click.prompt(question, default="", show_default=False)
        names = tuple(filter(None, map(str.strip, kernels.split(","))))
        answers = templates.Answers(folder, net_name, iteration, names)
    if templates.MODES[name].is_acl:
        try:
            make_directories(answers.path)  # CANN does not create it
        except OSError as error:
            raise click.UsageError(
                f"{answers.path}: the directory cannot be made: {error.strerror}"
            ) from error
    data = templates.render(templates.MODES[name], answers).encode()
    templates.MODES[name].check(data, target)
    write_file(path, (data,), _MODE)
    click.echo(f"{'written':<{_WIDTH}}{target}: {templates.MODES[name].title}")
    for title, text in _commands(name, target, path):
        click.echo(f"{title:<{_WIDTH}}{text}")


def _commands(mode: str, target: str, path: Path) -> list[tuple[str, str]]:
    """Return the ways to use a configuration, each with a title."""
    file, shown = shlex.quote(str(path)), shlex.quote(target)
    if mode == "acl":
        return [("script", f'acl.init("{path}"), or acl.mdl.set_dump("{path}")')]
    if mode == "torchair":
        return [("script", f'config.dump_config.dump_config_path = "{path}"')]
    context = templates.MODES[mode].context
    level = context.jit_level
    options = f" --device-target {context.device_target}" if level else ""
    variables = f" DEVICE_TARGET={context.device_target}" if level else ""
    if level is not None and mode == "o2":
        options, variables = f"{options} --jit-level {level}", f"{variables} JIT_LEVEL={level}"
    return [
        ("check", f"msdump check {shown}{options}"),
        ("run", f"msdump run MODEL.onnx --config {shown}{options}"),
        ("script", f"export MINDSPORE_DUMP_CONFIG={file}{variables}; python SCRIPT.py"),
    ]
