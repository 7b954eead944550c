"""The options that several commands have in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from msdump import env
from msdump.cli import sections

if TYPE_CHECKING:
    from msdump.executors import ExecutorChoice
    from msdump.plan import DumpPlan

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Option = Callable[[Any], Any]

_BIGGEST_SIZE: Final = (1 << 63) - 1
_LONGEST_SHOWN: Final = 80  # characters of a value in a message

_EXECUTOR: Final = (
    sections.speed(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        show_default="one for each core",
        help="Number of processes.",
    ),
    sections.speed(
        "--scheduler",
        default="",
        metavar="ADDRESS",
        help="Use the workers of this Dask scheduler, tcp://HOST:PORT.",
    ),
)


def unused_variable(plan: DumpPlan) -> dict[str, str]:
    """Return a line on MS_DIAGNOSTIC_DATA_PATH if the path of a configuration replaces the value."""
    base = env.read(env.DIAGNOSTIC_DATA_PATH)
    if base is None or f"{plan.files.path}/".startswith(f"{base.rstrip('/')}/"):
        return {}
    return {
        "variable": f"{env.DIAGNOSTIC_DATA_PATH} {base} has no effect, because the configuration has a path"
        " (msdump run --path DIR replaces the path)"
    }


def applied(*options: _Option) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command options; ``--help`` lists them in their order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):  # the one that is applied last comes first in --help
            command = option(command)
        return command

    return decorate


def gathered(
    name: str, make: Callable[..., Any], options: Sequence[_Option]
) -> Callable[[_Command], Callable[..., Any]]:
    """Return a decorator that gives a command options as one argument, made of their values."""

    def decorate(command: _Command) -> Callable[..., Any]:
        wanted = inspect.signature(make).parameters

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            made = make(**{each: given.pop(each) for each in wanted if each in given})
            return command(**{name: made}, **given)

        return applied(*options)(called)

    return decorate


def context(command: _Command) -> _Command:
    """Give a command the options of the emulated device."""
    # not above: commands without these options need none of the imports of settings
    from msdump.frontends import MOST_DEVICES
    from msdump.plan import DeviceTarget, JitLevel

    decorate = applied(
        sections.device(
            "--device-target",
            metavar=f"[{'|'.join(DeviceTarget)}]",
            show_default="$DEVICE_TARGET, else CPU",
            help="Emulated device.",
        ),
        sections.device(
            "--jit-level",
            metavar=f"[{'|'.join(JitLevel)}]",
            show_default="$JIT_LEVEL, else the level that the configuration implies",
            help="Compilation level of Ascend.",
        ),
        sections.device(
            "--device-id",
            type=click.IntRange(min=0, max=MOST_DEVICES),
            show_default="$DEVICE_ID, else 0",
            help="Number of the device.",
        ),
    )
    return decorate(command)


def _choose_executor(jobs: int | None, scheduler: str) -> ExecutorChoice:
    # not above: most commands have no such option
    from msdump.executors import ExecutorChoice

    choice = ExecutorChoice(jobs or 0, scheduler)
    choice.check()
    return choice


executor: Final = gathered("executor", _choose_executor, _EXECUTOR)
"""The options for processes and Dask; a command gets them as ``executor``."""

execution: Final = sections.selection(
    "--execution",
    type=click.IntRange(min=0),
    show_default="the last one",
    help="Execution of the dump, by its number or by the time in its directory names.",
)
"""The option that chooses one of several executions in one path, as ``open_dump`` takes the number."""

golden_execution: Final = sections.selection(
    "--golden-execution", type=click.IntRange(min=0), show_default="the last one", help="Execution of GOLDEN."
)
"""The option for the golden dump."""


def _parse_dimensions(
    _ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int]:
    sizes = {}
    for text in texts:
        name, _, digits = text.rpartition("=")
        size = env.number(digits, _BIGGEST_SIZE)
        if not name or size is None:
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
            raise click.BadParameter(f"{shown!r} is not NAME=SIZE, such as N=8")
        sizes[name] = size
    return sizes


dimensions: Final = sections.inputs(
    "--dim",
    "dimensions",
    multiple=True,
    metavar="NAME=SIZE",
    callback=_parse_dimensions,
    help="Size of a dynamic dimension. (repeatable)",
)
"""The option --dim; the command gets sizes by name."""


def result_directory(text: str, **settings: Any) -> _Option:
    """Return the option for a command's directory of results, with CANN's spelling ``-out``."""
    settings = settings or {"default": "."}
    return sections.output("-o", "-out", "--output", type=click.Path(), help=text, **settings)
