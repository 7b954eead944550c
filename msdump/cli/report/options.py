"""The options of ``msdump report``: what it is compared with, what is told, where it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from msdump.cli.options import execution, gathered, golden_execution
from msdump.tools.judge.limits import Limits
from msdump.tools.mapping.executors import ExecutorChoice


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What the command line asks for.

    Attributes:
        output: The page.
        graph: A model or graph file that tells which tensors belong together.
        model: The model by which operators run again.
        arithmetic: What the golden side computed in.
        rules_file: A file of watch rules.
        config: The configuration that the dump was made with.
        histograms: Names of operators whose tensors get a histogram.
        trace: A trace with the times of operators.
        executor: Who compares.
        has_source: Whether code lines and absolute paths are told.
        execution: Number of the execution, or of the run, where several lie in one path.
        golden_execution: The same of golden.
        limits: What counts as agreement.
    """

    output: str
    graph: str | None
    model: str | None
    arithmetic: str
    rules_file: str | None
    config: str | None
    histograms: tuple[str, ...]
    trace: str | None
    executor: ExecutorChoice
    has_source: bool
    execution: int | None
    golden_execution: int | None
    limits: Limits


def asked(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of what is told; it gets them as ``asked``."""
    return gathered("asked", ReportOptions, _OPTIONS, command)


_OPTIONS: Final = (
    click.option(
        "-o", "--output", default="report.html", show_default=True, type=click.Path(), help="The page."
    ),
    click.option("--graph", type=click.Path(), metavar="FILE", help="As for msdump compare."),
    click.option(
        "--model",
        type=click.Path(dir_okay=False),
        metavar="FILE.onnx",
        help="Run the operators of DUMP again by the model: whose error is its own?",
    ),
    click.option(
        "--arithmetic",
        default="float32",
        show_default=True,
        metavar="VARIANT",
        help="What GOLDEN computed in; with --model.",
    ),
    click.option(
        "--rules",
        "rules_file",
        type=click.Path(),
        metavar="FILE.json",
        help="Watch rules to check (default: those of the configuration).",
    ),
    click.option(
        "--config",
        type=click.Path(),
        metavar="FILE.json",
        help="What the dump was made with (default: the copy in DUMP).",
    ),
    click.option(
        "--histogram",
        "histograms",
        multiple=True,
        metavar="OPERATOR",
        help="Show how the tensors of an operator are spread; * and ? stand for characters.",
    ),
    click.option(
        "--trace", type=click.Path(), metavar="FILE.json", help="A Chrome trace with the times of operators."
    ),
    click.option(
        "--no-source",
        "has_source",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Leave out code lines and absolute paths.",
    ),
    execution,
    golden_execution,
)
