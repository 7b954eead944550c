"""``msdump report``: the problems of a dump, the run and all of its operators, in one page."""

from __future__ import annotations

import contextlib
import os
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from msdump.cli import compare, messages, options, sections, streams, verdicts
from msdump.cli import output as documents
from msdump.cli.options import applied, execution, golden_execution
from msdump.cli.output import Document, Shape
from msdump.errors import ConfigError, ToolError, plural
from msdump.executors import ExecutorChoice
from msdump.graph import loader
from msdump.judge import reports
from msdump.judge.compare import DumpComparison
from msdump.judge.verdict import Limits
from msdump.look.report import (
    DumpReport,
    OperatorOverTime,
    ReportCollector,
    ReportedProblem,
    TensorOverTime,
    UndumpedOperators,
    collecting,
    problems,
    table,
)
from msdump.look.report.page import page
from msdump.plan import DumpPlan
from msdump.read import Dump, open_dump
from msdump.return_codes import ReturnCode


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Arguments and options of the command line that say which report is made; ``--help`` describes them."""

    dump: str
    golden: str | None
    output: str
    graph: str | None
    model: str | None
    arithmetic: str
    rules_file: str | None
    config: str | None
    histograms: tuple[str, ...]
    executor: ExecutorChoice
    has_source: bool
    execution: int | None
    golden_execution: int | None
    limits: Limits
    annotate: tuple[str, str] | None


_content: Final = sections.Section("Content")
_exports: Final = sections.Section("Other programs")
_report_options: Final = applied(
    compare.graph_option,
    execution,
    golden_execution,
    sections.selection(
        "--config",
        type=click.Path(),
        metavar="FILE.json",
        show_default="the copy in DUMP",
        help="Configuration of the dump.",
    ),
    compare.rerun_options,
    verdicts.limits,
    verdicts.statistic_limits,
    _content(
        "--rules",
        "rules_file",
        type=click.Path(),
        metavar="FILE.json",
        show_default="the rules of the configuration",
        help="Watch rules to check.",
    ),
    _content(
        "--histogram",
        "histograms",
        multiple=True,
        metavar="OPERATOR",
        help="Show histograms of the tensors of an operator; * and ? match characters. (repeatable)",
    ),
    _content(
        "--no-source",
        "has_source",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Leave out code lines and absolute paths.",
    ),
    sections.output("-o", "--output", default="report.html", type=click.Path(), help="Page to write."),
    sections.output("--open", "is_opened", is_flag=True, help="Show the page in a browser."),
    _exports(
        "--annotate",
        type=(click.Path(), click.Path()),
        default=None,
        metavar="MODEL.onnx OUT.onnx",
        help="Write the model with verdicts and statistics of the nodes, for Netron.",
    ),
)


def _gather(request: ReportRequest) -> DumpReport:
    def rerun(comparison: DumpComparison) -> None:
        compare.rerun(comparison, request.model or "", request.arithmetic)

    opened = open_dump(request.dump, request.execution)
    plan = _plan(opened, request)
    if request.rules_file is None:
        rules = () if plan is None else plan.watch.rules
    else:
        from msdump.config import watch as rule_files  # not above: few ask for it

        rules = rule_files.read(request.rules_file)
    golden, compared = None, None
    alone: tuple[str, ...] = ()
    if request.golden is not None:
        executions = request.execution, request.golden_execution
        compared, alone = problems.compare_dumps(
            request.dump,
            request.golden,
            request.limits,
            executions,
            graph=request.graph,
            executor=request.executor,
            explain=None if request.model is None else rerun,
        )
        golden = open_dump(request.golden, request.golden_execution)
    with messages.bar("directories", len(opened.iterations)) as advance:
        report = ReportCollector(
            opened, golden, compared, alone, plan, rules, request.histograms, request.executor, advance
        ).report()
    return report if request.has_source else collecting.redact(report)


def _plan(dump: Dump, request: ReportRequest) -> DumpPlan | None:
    """Return the plan of the given configuration, else of the dump's copy; None without either."""
    from msdump.cli import explain  # imported late: most dumps of an Ascend have no copy

    path = request.config or explain.kept_config(dump)
    if path is None:
        return None
    try:
        return explain.plan_of(path, explain.context_of(dump, {}), dump)
    except ConfigError as error:
        if request.config is not None:
            raise
        # the copy in a dump of another version may have keys that are not known here
        messages.say(f"warning: the configuration in the dump is not valid: {error}")
        return None


def _annotate(report: DumpReport, model: str, output: str) -> str:
    from msdump.cli import explain  # imported late: few reports annotate a model

    folder, name = os.path.split(os.path.abspath(output))  # noqa: PTH100 - pathlib keeps ".." components
    context = explain.context_of(open_dump(report.dump), {})
    contents, count = loader.annotated(model, table.node_texts(report), folder, context)
    if not count:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{model}: no node has the name of an operator of {report.dump}; give the model of the dump",
        )
    path = reports.write_bytes(folder, name, (contents,))
    return f"{path}: {plural(count, 'node')} with texts"


def _operators(report: DumpReport) -> list[OperatorOverTime]:
    """All operators in the order of execution."""
    return [*table.operators_over_time(report)]


DOCUMENT: Final = Document(
    Shape(
        DumpReport,
        "headline outputs? advice? dump golden? problems facts left_out iterations=series.iterations"
        " operators curves histograms faults alone",
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
        " parameters=operator.parameters is_dumped=operator.is_dumped verdict=verdict.worst"
        " distances tensors",
    ),
    Shape(TensorOverTime, "tensor dtype? shape holds statistics"),
    Shape(UndumpedOperators, "what=noun reason count examples"),
    *verdicts.SHAPES,
)


@click.command(name="report", cls=sections.Command)
@click.argument("dump", type=click.Path(), help="Dump directory.")
@click.argument("golden", type=click.Path(), required=False, help="Reference dump.")
@_report_options
@sections.output(
    "--csv", "is_csv", is_flag=True, help="Print the report as CSV, one row for each tensor and iteration."
)
@documents.option
@options.executor
@messages.verbose
def command(*, is_csv: bool, is_opened: bool, **given: Any) -> None:
    """Write an HTML page about a dump.

    The page shows problems, the run, all operators and statistics. The page needs no network and
    no server. With GOLDEN the two dumps are compared, and the operators at fault come first.
    --json, --csv and files for other programs replace the page, unless --output is given.

    Examples:
        msdump report dump
        msdump report dump golden -o report.html
        msdump report dump golden --model model.onnx --open

    Exit codes:
        0  The report is written, with or without problems.
        1  The report is written, but a file or directory could not be read.
        2  A dump or an option is wrong.
    """
    request, is_data = ReportRequest(**given), is_csv or documents.wanted()
    if is_csv and documents.wanted():
        raise click.UsageError("--csv and --json exclude each other")
    report = _gather(request)
    if is_csv:
        streams.data().writelines(table.lines(report))
    else:
        documents.show(DOCUMENT, report, [report.headline])
    messages.say_each("warning", report.faults)
    for path in report.alone:
        messages.say_once(f"warning: {path} has no counterpart")
    if request.annotate is not None:
        line = _annotate(report, *request.annotate)
        messages.say(f"written {line}") if is_data else print(f"written   {line}")
    source = click.get_current_context().get_parameter_source("output")
    is_given = source is click.core.ParameterSource.COMMANDLINE
    if is_given or not (is_data or (request.annotate and not is_opened)):
        folder, name = os.path.split(os.path.abspath(request.output))  # noqa: PTH100 - pathlib keeps ".."
        path = reports.write(folder, name, page(report, folder))
        if not is_csv:
            print(f"written   {path}")
        if is_opened:
            is_shown = False
            with contextlib.suppress(webbrowser.Error):
                is_shown = webbrowser.open_new_tab(Path(path).as_uri())
            if not is_shown:
                messages.say(f"warning: no browser could be started; open {path}")
