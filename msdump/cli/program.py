"""The ``msdump`` program: its commands, imported when they are called, and its exit codes.

0    done
1    the run failed: an operator, or a file or standard output that could not be written; or a part of the
     input could not be read, and the rest is done
2    the configuration, the model, an input or the command line is wrong; nothing ran
130  interrupted (Ctrl-C)
141  the reader of the output went away (``| head``)
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

import msdump
from msdump import env
from msdump.cli import messages, output, sections, streams
from msdump.errors import ConfigError, DumpWriteError, ExecutionError, MsdumpError, name_hint

FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130

GROUPS: Final = {
    "Dump": {
        "init": "Write a dump configuration with comments.",
        "run": "Run an ONNX model and dump it.",
        "check": "Describe the dump that a configuration makes.",
        "compile": "Write the graph that Ascend O2 makes of a model.",
        "train-graph": "Write the training step of a model as an ONNX model.",
    },
    "Look": {
        "show": "Print the tree of a dump, or one tensor in detail.",
        "explain": "Explain which files an operator has in a dump.",
        "query": "Query dumps in SQL.",
        "trend": "Print statistics of an operator over the iterations.",
        "report": "Write an HTML page about a dump.",
        "watch": "Check watch rules on the tensors of a dump.",
        "overflow": "List the operators that overflowed.",
    },
    "Judge": {
        "compare": "Compare two dumps and name the operators at fault.",
        "diff": "Run two variants of a model and name the operators at fault.",
        "extract": "Write one operator of a dump as a model.",
        "baseline": "Write the statistics of a dump as a golden baseline.",
    },
    "Files": {
        "convert": "Convert dump files to arrays or to another format.",
        "pack": "Write dumps as Parquet files for fast queries.",
    },
}
"""Commands by group, each with the first sentence of its help.

A command is ``command`` in the module of its name; in the module's name ``-`` becomes ``_``.
"""

COMMANDS: Final = {name: text for group in GROUPS.values() for name, text in group.items()}

_MULTIPLYING: Final = frozenset({"run", "compare", "diff", "extract", "report", "watch"})
"""Commands that may have numpy multiply matrices."""

_STARTED: Final = "msdump.has_started"


def mark_started(has_run: Callable[[], bool] = lambda: False) -> None:
    """From now on treat a file that cannot be written as a failure of the run (exit code 1).

    Once ``has_run`` returns that an operator has run, every error is one.
    """
    click.get_current_context().meta[_STARTED] = has_run


def leave(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


class CommandGroup(sections.Command, click.Group):
    """A group that imports a command when it is called, and turns errors into messages."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line and exit, also where the reader of the output has gone away."""
        with streams.standard():
            return super().main(*args, **{"prog_name": "msdump", **kwargs})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in _MULTIPLYING and "numpy" not in sys.modules:
            env.spare_matrix_threads()
        # Only the command that is called: importing all of them would delay each by onnxruntime and numpy.
        command: click.Command = _imported(f"msdump.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = name_hint(name, COMMANDS)
            ctx.fail(f"no command {name!r}; the commands are {', '.join(COMMANDS)}{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the completions of a word, commands without importing them."""
        items = [
            CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, then the options."""
        self.format_commands(ctx, formatter)
        sections.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """List the commands of each group without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in commands.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an exception becomes one message and an exit code."""
        messages.forget()
        with output.one_document(ctx, ctx.args):
            try:
                result = super().invoke(ctx)
            except click.exceptions.Exit as end:
                if end.exit_code or not messages.has_damages():
                    raise
                raise click.exceptions.Exit(FAILED) from None
            except (click.ClickException, click.Abort):
                raise  # click prints messages for these itself
            except KeyboardInterrupt:
                messages.say("interrupted")
                ctx.exit(INTERRUPTED)
            except Exception as error:  # noqa: BLE001 - the end of the program: nothing else will tell
                if messages.verbosity():
                    traceback.print_exc(file=sys.stderr)
                ctx.exit(_report(ctx, error))
            else:
                if messages.has_damages():  # the command ended, but parts of its input could not be read
                    ctx.exit(FAILED)
                return result
            finally:
                messages.finish()


def _imported(name: str) -> ModuleType:
    """Import a module; the garbage collector never scans its objects (``gc.freeze``), not even at exit.

    Scanning would take a fifth of the time of a short command.
    """
    if name in sys.modules:
        return sys.modules[name]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def message_of(error: BaseException) -> str:
    """Return the message of an error."""
    from msdump.errors import shortage

    match error:
        case MsdumpError():
            return f"error: {error}"
        case MemoryError():
            return f"error: out of memory: {error}; free memory or raise its limit (ulimit -v)"
        case _ if lacking := shortage(error):
            return f"error: {lacking} ({error})"
        case _:
            return f"internal error: {type(error).__name__}: {error} (-v shows the traceback)"


def _report(ctx: click.Context, error: Exception) -> int:
    match error:
        case ConfigError():  # all faults of a configuration at once, each with its place
            for problem in error.problems:
                messages.say(f"error: {problem.render(error.source)}")
        case MsdumpError():
            messages.say_once(message_of(error))
        case _:
            messages.say(message_of(error))
            return FAILED
    # Before the first operator ran nothing was computed or lost: the user corrects and calls again.
    has_run = ctx.meta.get(_STARTED)
    if has_run is None:
        return REFUSED
    return FAILED if isinstance(error, (ExecutionError, DumpWriteError)) or has_run() else REFUSED


@click.group(
    name="msdump",
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start: msdump run model.onnx; msdump COMMAND --help",
)
@click.version_option(msdump.__version__, prog_name="msdump", message="%(prog)s %(version)s")
def main() -> None:
    """Dump the tensors of ONNX models and name the operator that is wrong.

    msdump runs a model operator by operator on onnxruntime under an emulated Ascend device. The dumps have
    the file formats of MindSpore and CANN. The tools also read dumps of real devices.
    """
