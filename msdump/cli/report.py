"""``msdump report``: what is wrong with a dump, the run and all of its operators, in one page."""

from __future__ import annotations

import math
import os
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

import click

from msdump.analysis import export, reports
from msdump.analysis.compare import DumpComparison
from msdump.analysis.judge import Finding, Limits
from msdump.analysis.report import (
    DumpReport,
    KnownDirectories,
    MemoryCurve,
    ReportedOperator,
    ReportedProblem,
    ReportQuestion,
    Stamp,
    TensorState,
    collecting,
    problems,
    series,
    table,
)
from msdump.analysis.report.page import page
from msdump.cli import compare, messages, options, streams, verdicts
from msdump.cli import output as documents
from msdump.cli.messages import plural
from msdump.cli.options import execution, gathered, golden_execution
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, leave
from msdump.errors import ConfigError, DumpReadError, ToolError
from msdump.executors import ExecutorChoice
from msdump.graph import loader
from msdump.plan import DumpPlan
from msdump.read import Dump, open_dump
from msdump.return_codes import ReturnCode


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


asked: Final = gathered(
    "asked",
    ReportOptions,
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
"""The options of what is told; a command gets them as ``asked``."""


def write_page(
    report: DumpReport,
    output: str,
    *,
    is_opened: bool,
    is_told: bool = True,
    reload_seconds: float = 0.0,
) -> str:
    """Write the page of a report and return its path.

    Args:
        report: The report.
        output: The page's file, which is replaced.
        is_opened: Whether it is shown in a browser.
        is_told: Whether its path is printed.
        reload_seconds: Seconds after which the page loads itself again, 0: never.

    Raises:
        ToolError: The file cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(output))  # noqa: PTH100 - pathlib keeps ".." components
    path = reports.write(folder, name, page(report, folder, reload_seconds=reload_seconds))
    if is_told:
        print(f"written   {path}")
    if is_opened:
        _open(path)
    return path


def _open(path: str) -> None:
    try:
        is_shown = webbrowser.open_new_tab(Path(path).as_uri())
    except webbrowser.Error:
        is_shown = False
    if not is_shown:
        messages.say(f"warning: no browser could be started; open {path}")


def gather(
    dump: str, golden: str | None, asked: ReportOptions, known: KnownDirectories | None = None
) -> DumpReport:
    """Return the report that the command line asks for.

    Args:
        dump: The dump.
        golden: The dump that it is compared with, None for no comparison.
        asked: The options.
        known: What directories held before; one that has not changed since is not read again.

    Raises:
        DumpReadError: A dump cannot be opened, or the trace cannot be read.
        ToolError: The two dumps cannot be compared.
        ConfigError: The configuration or a file of rules is faulty.
    """

    def rerun(comparison: DumpComparison) -> None:
        compare.rerun(comparison, asked.model or "", asked.arithmetic)

    opened = open_dump(dump, asked.execution)
    plan = _plan(opened, asked)
    if asked.rules_file is None:
        rules = () if plan is None else plan.watch.rules
    else:
        from msdump.config import watch as rule_files  # not above: few ask for it

        rules = rule_files.read(asked.rules_file)
    compared = None
    if golden is not None:
        compared = problems.compare_dumps(
            *(dump, golden, asked.limits, (asked.execution, asked.golden_execution)),
            graph=asked.graph,
            executor=asked.executor,
            explain=None if asked.model is None else rerun,
        )
    with messages.bar("directories", len(opened.iterations)) as advance:
        question = ReportQuestion(
            None if golden is None else open_dump(golden, asked.golden_execution),
            compared,
            plan,
            rules,
            asked.histograms,
            asked.trace,
            known,
            asked.executor,
            advance,
        )
        report = collecting.collect(opened, question)
    return report if asked.has_source else collecting.redact(report)


def _plan(dump: Dump, asked: ReportOptions) -> DumpPlan | None:
    """Return the configuration as it was compiled, None where it is not known."""
    path = asked.config or next((path for rank in dump.ranks.values() if (path := rank.config_file)), None)
    if path is None:
        return None
    from msdump.cli import explain  # not above: most dumps of an Ascend keep none

    try:
        return explain.plan_of(path, explain.context_of(dump, {}), dump)
    except ConfigError as error:
        if asked.config is not None:
            raise
        # the copy in a dump of another version may have keys that are not known here
        messages.say(f"warning: the configuration in the dump is not understood: {error}")
        return None


@dataclass(frozen=True, slots=True)
class WantedExports:
    """What is written besides the page.

    Attributes:
        model_explorer: Folder of files for Model Explorer, None for none.
        annotate: A model, and the file of its copy with texts beside the nodes; None for none.
        tensorboard: Folder of a run for TensorBoard, None for none.
        tensorboard_tensors: Most tensors that it tells.
    """

    model_explorer: str | None = None
    annotate: tuple[str, str] | None = None
    tensorboard: str | None = None
    tensorboard_tensors: int = export.MOST_TENSORS

    def __bool__(self) -> bool:
        """Tell whether anything is written."""
        return any((self.model_explorer, self.annotate, self.tensorboard))


export_options: Final = gathered(
    "exports",
    WantedExports,
    click.option(
        "--model-explorer",
        type=click.Path(),
        metavar="DIR",
        help="Write the graphs, and data of their nodes by metric, for Model Explorer.",
    ),
    click.option(
        "--annotate",
        type=(click.Path(), click.Path()),
        default=None,
        metavar="MODEL.onnx OUT.onnx",
        help="Write the model with verdicts and statistics beside its nodes, for Netron.",
    ),
    click.option(
        "--tensorboard", type=click.Path(), metavar="DIR", help="Write statistics over iterations as a run."
    ),
    click.option(
        "--tensorboard-tensors",
        type=click.IntRange(min=1),
        default=export.MOST_TENSORS,
        show_default=True,
        metavar="N",
        help="Most tensors of it; those with NaN or inf come first.",
    ),
)
"""The options of what is written for other programs; a command gets them as ``exports``."""


def write_exports(report: DumpReport, wanted: WantedExports) -> list[str]:
    """Write a report for other programs; return a line on each that was written.

    Raises:
        NotAvailableError: The package tensorboard is not installed.
        GraphError: The model cannot be annotated.
        ToolError: A file cannot be written, or no node is known.
    """
    lines = []
    if wanted.model_explorer is not None:
        files = export.files(report)
        paths = [reports.write(wanted.model_explorer, name, [text]) for name, text in files]
        lines.append(f"{os.path.dirname(paths[0])}: {plural(len(paths), 'file')}")  # noqa: PTH120 - a text
    if wanted.annotate is not None:
        lines.append(_annotate(report, *wanted.annotate))
    if wanted.tensorboard is not None:
        points = [*export.scalars(report, wanted.tensorboard_tensors)]
        spread = [*export.histograms(report)]
        count = export.write(wanted.tensorboard, points, spread)
        told, known = export.chosen(report, wanted.tensorboard_tensors), export.known(report)
        left_out = f" ({len(known) - len(told):,} more tensors: --tensorboard-tensors)"
        rest = left_out if len(told) < len(known) else ""
        lines.append(f"{wanted.tensorboard}: {plural(count, 'event')} of {plural(len(told), 'tensor')}{rest}")
    return lines


def _annotate(report: DumpReport, model: str, output: str) -> str:
    folder, name = os.path.split(os.path.abspath(output))  # noqa: PTH100 - pathlib keeps ".." components
    contents, count = loader.annotated(model, export.properties(report), folder)
    if not count:
        raise ToolError(
            ReturnCode.PARAMETER, f"{model}: no node is called as one of {report.dump}; is it that model?"
        )
    path = reports.write_bytes(folder, name, (contents,))
    return f"{path}: {plural(count, 'node')} with texts"


_SECONDS: Final = 2.0  # between two looks at the dump
_RELOAD: Final = 5.0  # seconds between two looks of a browser at the page


def follow(dump: str, golden: str | None, asked: ReportOptions, *, is_opened: bool) -> Never:
    """Write the page whenever something was dumped, until the user ends it.

    A headline that changes is told. Directories that have not changed are not read again.

    Args:
        dump: The dump, which need not be there yet.
        golden: The dump that it is compared with, None for no comparison.
        asked: The options.
        is_opened: Whether the first page is shown in a browser.

    Raises:
        ToolError: The page cannot be written.
    """
    known: KnownDirectories = {}
    before: dict[str, Stamp] | None = None
    headline = ""
    while True:
        now = _stamps(dump)
        if now != before and now:
            before = now
            told = _written(dump, golden, asked, known, is_opened=is_opened and not headline)
            if told and told != headline:
                headline = told
                print(f"{headline}  ({asked.output})", flush=True)
        elif not now:
            messages.say_once(f"waiting for {dump}")
        time.sleep(_SECONDS)


def _stamps(dump: str) -> dict[str, Stamp]:
    try:
        return {each.path: series.stamp(each.path) for each in open_dump(dump).all_iterations}
    except DumpReadError:  # nothing is there yet, or it has just been taken away
        return {}


def _written(
    dump: str, golden: str | None, asked: ReportOptions, known: KnownDirectories, *, is_opened: bool
) -> str:
    """Write the page and return its headline; "" where the dump changed too much while it was read."""
    try:
        report = gather(dump, golden, asked, known)
    except (DumpReadError, ToolError) as error:  # golden has no counterpart yet, a directory is gone
        messages.say_once(f"warning: {error}")
        return ""
    write_page(report, asked.output, is_opened=is_opened, is_told=False, reload_seconds=_RELOAD)
    return report.headline


@dataclass(frozen=True, slots=True)
class TensorOverTime:
    """The statistics of a tensor over the iterations.

    Attributes:
        tensor: Which input or output, "output:0".
        dtype: Element type, "" where it is not known.
        shape: Its shape, "2x3"; empty of a scalar.
        holds: By iteration: NaN and infinities in it, "" for none; null where it was not dumped.
        statistics: By category and iteration; null where a statistic was not computed.
    """

    tensor: str
    dtype: str
    shape: str
    holds: list[str | None]
    statistics: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class OperatorOverTime:
    """An operator of the dump, or of a graph of which nothing was dumped.

    Attributes:
        operator: The operator.
        microseconds: Mean time of a run; None where it was not measured.
        verdict: The gravest of its verdicts; None without a comparison.
        distances: Distance of its outputs from golden's by iteration; None without a comparison.
        tensors: Its tensors, outputs first.
    """

    operator: ReportedOperator
    microseconds: float | None
    verdict: Finding | None
    distances: list[float | None] | None
    tensors: list[TensorOverTime]


def _operators(report: DumpReport) -> list[OperatorOverTime]:
    """All operators in the order of execution."""
    tensors: list[list[TensorOverTime]] = [[] for _ in report.operators]
    for row, tensor in enumerate(report.series.tensors):
        tensors[tensor.operator].append(_over_time(report, row))
    worst = {number: verdict.worst for number, verdict in report.verdicts.items()}
    distances = None if report.distances is None else report.distances.tolist()
    return [
        OperatorOverTime(
            each,
            report.times.get(number),
            worst.get(number),
            None
            if distances is None
            else [None if math.isnan(value) else value for value in distances[number]],
            tensors[number],
        )
        for number, each in enumerate(report.operators)
    ]


def _over_time(report: DumpReport, row: int) -> TensorOverTime:
    series, tensor = report.series, report.series.tensors[row]
    states = [TensorState(state) for state in series.states[row].tolist()]
    return TensorOverTime(
        f"{tensor.io}:{tensor.slot}",
        tensor.dtype,
        tensor.shape,
        [table.holds(state) if state else None for state in states],
        {
            category: [
                _cell(category, value, state)
                for value, state in zip(values[row].tolist(), states, strict=True)
            ]
            for category, values in series.numbers.items()
        },
    )


def _cell(category: str, value: float, state: TensorState) -> float | None:
    """Return a statistic; NaN is one where the tensor holds NaN, else it was not computed."""
    is_one = TensorState.NAN in state and not category.endswith("count")
    return None if math.isnan(value) and not is_one else value


DOCUMENT: Final = Document(
    Shape(
        DumpReport,
        "headline outputs? advice? dump golden? problems facts left_out iterations=series.iterations"
        " operators curves histograms memory faults alone",
        name="ReportDocument",
        operators=_operators,
    ),
    Shape(
        ReportedProblem,
        "kind operator=name op_type? index=operator? rank iterations text is_accused own_error victims files"
        " source",
    ),
    Shape(
        OperatorOverTime,
        "operator=operator.name op_type=operator.op_type rank=operator.rank network=operator.place"
        " order=operator.order source=operator.source_line? reads=operator.reads"
        " parameters=operator.parameters is_dumped=operator.is_dumped microseconds verdict distances tensors",
    ),
    Shape(TensorOverTime, "tensor dtype? shape holds statistics"),
    Shape(MemoryCurve, "rank network=place weights in_use unknown"),
    *verdicts.SHAPES,
)


@click.command(name="report")
@click.argument("dump", type=click.Path())
@click.argument("golden", type=click.Path(), required=False)
@verdicts.statistic_limits
@verdicts.limits
@options.executor
@asked
@export_options
@click.option(
    "--csv", "is_csv", is_flag=True, help="Print the same as csv, a row for a tensor and iteration."
)
@click.option(
    "--watch", "is_followed", is_flag=True, help="Follow a run that goes on: write the page again and again."
)
@click.option("--open", "is_opened", is_flag=True, help="Show the page in a browser.")
@documents.option
@messages.verbose
def command(
    *,
    dump: str,
    golden: str | None,
    asked: ReportOptions,
    exports: WantedExports,
    is_csv: bool,
    is_opened: bool,
    is_followed: bool,
) -> None:
    """Write one page on the dump DUMP: what is wrong, the run, all operators and their statistics.

    The page needs no network and no server. With GOLDEN the two dumps are compared, and the operators
    at fault are told first. --json and --csv print the same; the page is written beside them only with
    --output. --watch follows a run that goes on, until Ctrl-C. Exit codes: 0 the report is made,
    whatever it tells, 1 it is made, but a file or directory cannot be read, 2 something given is
    wrong, 130 interrupted.
    """
    if is_csv and documents.wanted():
        raise click.UsageError("--csv and --json exclude each other")
    if is_followed:
        if is_csv or documents.wanted():
            raise click.UsageError("--watch writes a page; --csv and --json print one report")
        if exports:
            raise click.UsageError("--watch writes a page; files for other programs are of one report")
        follow(dump, golden, asked, is_opened=is_opened)
    report = gather(dump, golden, asked)
    if documents.wanted():
        documents.put(DOCUMENT, report)
    elif is_csv:
        streams.data().writelines(table.lines(report))
    else:
        print(report.headline)
    messages.say_each("warning", report.faults)
    for path in report.alone:
        messages.say_once(f"warning: {path} has no counterpart")
    source = click.get_current_context().get_parameter_source("output")
    is_page_asked = source is click.core.ParameterSource.COMMANDLINE
    for line in write_exports(report, exports):
        messages.say(f"written {line}") if is_csv or documents.wanted() else print(f"written   {line}")
    if is_page_asked or not (is_csv or documents.wanted() or (exports and not is_opened)):
        write_page(report, asked.output, is_opened=is_opened, is_told=not is_csv)
    leave(FAILED if report.faults else 0)
