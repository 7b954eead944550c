"""``msdump compare``: two dumps of a network, tensor by tensor, and the first operator where they part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from msdump.cli import messages, sections, verdicts
from msdump.cli import options as command_options
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, INTERRUPTED, REFUSED, leave
from msdump.cli.verdicts import COMPARED, SHAPES, ComparedDumps, ComparisonView
from msdump.errors import DumpReadError, InputError, plural
from msdump.executors import ExecutorChoice
from msdump.judge import SCORES, answer, errors, reports
from msdump.judge.compare import (
    ComparedFolder,
    DumpComparison,
    compare_statistics,
    contradictions,
    findings_table,
    measure_files,
    missing_operators,
)
from msdump.judge.pair import Executions, FolderPair, FolderPairs, is_measured_alone, pair_folders
from msdump.judge.verdict import Finding, Limits, OperatorPlace, Report, TensorVerdict, Verdict
from msdump.plan import Context
from msdump.read import Folder, FolderKind, is_tree, open_dump, read_folder
from msdump.store import STATISTICS as TABLE

if TYPE_CHECKING:
    from msdump.judge.compare import Rerunning

_OF_FILES: Final = {TensorVerdict.DIFFERS: Verdict.OWN}  # other verdicts on files have equal values in both

_NAMED: Final = 3  # names of a tree without a counterpart that a line shows

DOCUMENT: Final = Document(Shape(ComparedDumps, COMPARED, name="CompareDocument"), *SHAPES)


class _JudgedDumps(NamedTuple):
    """The verdicts on two dumps, and the sources that the summary names."""

    report: Report
    alone: Sequence[str]  # directories without a counterpart
    sources: answer.Compared
    is_interrupted: bool = False


def _print_verdicts(judged: _JudgedDumps, folder: str, view: ComparisonView) -> None:
    """Print the verdicts, write the table into a folder, and exit with 1 where something differs."""
    report = judged.report
    if not documents.wanted():
        for line in answer.summary_lines(report, judged.sources):
            print(line)
        shown = verdicts.print_listing(report, view)
        for line in answer.lines_below(report, shown):
            print(line)
    # Warnings come after the table: a long table would scroll them away.
    for path in judged.alone:
        messages.say(f"warning: {path} has no counterpart")
    messages.say_each("warning", report.networks + report.unreadable)
    unpaired: dict[str, list[str]] = {}
    for each in report.alone:
        unpaired.setdefault(each.note, []).append(each.place.name)
    for why, found in unpaired.items():
        more = f" and {len(found) - _NAMED} more, listed in the table" if len(found) > _NAMED else ""
        messages.say(f"not paired: {', '.join(found[:_NAMED])}{more}: {why}")
    text = "".join(reports.csv_lines(findings_table(report), "\r\n"))
    path = reports.write(folder, reports.stamped("compare", ".csv"), [text])
    if documents.wanted():
        documents.put(DOCUMENT, ComparedDumps(report, judged.alone, path))
    else:
        print(f"written   {path}")
    if judged.is_interrupted:
        leave(INTERRUPTED)
    if not report.agrees:
        leave(FAILED)


_rerun: Final = sections.Section("Re-execution")
rerun_options: Final = command_options.applied(
    _rerun(
        "--model",
        type=click.Path(dir_okay=False),
        metavar="FILE.onnx",
        help="Model that GOLDEN ran. The operators of MINE run again by this model, for own errors.",
    ),
    _rerun(
        "--arithmetic",
        default="float32",
        metavar="VARIANT",
        help="Variant that GOLDEN was computed in, such as Ascend:force_fp16. Needs --model.",
    ),
)
"""The options of re-execution."""

graph_option: Final = sections.selection(
    "--graph",
    type=click.Path(),
    metavar="FILE",
    help="Model (.onnx, .mindir) or graph file of GE (.json), for dumps with different operator names.",
)
"""The option that pairs operators by the values of a graph."""


def rerun(comparison: DumpComparison, model: str, arithmetic: str) -> Rerunning | None:
    """Run the operators of the examined side again, and hand the results to the comparison."""
    # Imported late: loading the packages that run operators takes longer than comparing a few files.
    from msdump.cli import explain
    from msdump.judge.compare import Rerunning
    from msdump.judge.diff import Engine, models
    from msdump.judge.rerun import Arithmetic

    variant = models.parse(arithmetic)
    if variant.engine is not Engine.DEVICE:
        raise InputError(f"--arithmetic {arithmetic!r}: the variant must be CPU, GPU or Ascend")
    if is_tree(comparison.golden):
        from msdump.graph import loader
        from msdump.judge.torch import rerun_on_tree

        count = rerun_on_tree(comparison, loader.load(model, context=variant.context), variant)
        messages.say(f"{plural(count, 'operator')} ran again in {variant.text} on the tree's tensors")
        return None
    try:  # the context in which the dump was made, as far as it or the environment shows
        context = explain.context_of(open_dump(comparison.dumped), {})
    except DumpReadError:  # a directory of other tools' files
        context = Context()
    rerunning = Rerunning(model, Arithmetic.of(variant.context), context)
    comparison.explain = rerunning.explain
    for folders in comparison.runs():
        count = sum(len(folder.matched.executions) for folder in folders)
        with messages.bar("operators again", count) as advance:
            rerunning.run(folders, advance)
    for folder in [each for each in comparison.folders if missing_operators(each)]:
        comparison.find_again(folder, rerunning.found_again(folder))
    again = sum(bool(rerun.own) for run in rerunning.runs for rerun in run.reruns)
    mine = f" (MINE ran in {rerunning.mine})" if rerunning.mine not in {None, rerunning.golden} else ""
    messages.say(
        f"{plural(again, 'operator')} ran again in {rerunning.golden}, differing ones also in float64{mine}"
    )
    if left_out := rerunning.left_out():
        operator, note = left_out[0]
        messages.say(
            f"warning: {plural(len(left_out), 'operator')} did not run again, such as {operator.name}: {note}"
        )
    return rerunning


@click.command(name="compare", cls=sections.Command)
@click.argument("dumped", type=click.Path(), metavar="MINE", help="Dump to examine.")
@click.argument("golden", type=click.Path(), help="Reference dump, baseline, or directory of tensors.")
@graph_option
@command_options.execution
@command_options.golden_execution
@rerun_options
@verdicts.limits
@verdicts.statistic_limits
@sections.limits(
    "--strict", "is_strict", is_flag=True, help="Judge by all tensors, not by the network's outputs alone."
)
@command_options.result_directory("Directory of the table.")
@verdicts.view
@documents.option
@command_options.executor
@messages.verbose
def command(
    *,
    dumped: str,
    golden: str,
    output: str,
    execution: int | None,
    golden_execution: int | None,
    model: str | None,
    arithmetic: str,
    graph: str | None,
    executor: ExecutorChoice,
    limits: Limits,
    view: ComparisonView,
    is_strict: bool,
) -> None:
    """Compare two dumps and name the operators at fault.

    MINE and GOLDEN are dumps, parts of dumps, or directories of golden tensors
    (name.output.time.npy); GOLDEN may be a tree of msprobe. Both may also be
    .npy files. A dump without tensors is compared by the statistics in
    statistic.csv.

    All scores are written to compare_{time}.csv in execution order. docs/reference/verdicts.md
    explains verdicts and limits.

    Examples:
        msdump compare dump golden
        msdump compare dump golden --model model.onnx
        msdump compare dump golden --by own --top 10

    Exit codes:
        0  The network's outputs agree, and no operator is at fault. Without a graph of the
           network, or with --strict: all compared tensors agree.
        1  Tensors differ, a tensor could not be compared, or a file could not be read.
        2  Nothing was compared: no tensor has a counterpart, or an option is wrong.
    """
    if os.path.isfile(dumped) and os.path.isfile(golden):
        _print_scores(dumped, golden, limits)
        return
    executions = execution, golden_execution
    if is_measured_alone(dumped, golden):
        if model:
            messages.say("warning: --model is not used: a side has statistics alone")
        judged = _compare_statistics(dumped, golden, executions, limits)
    else:
        # One pair of directories for each iteration, rank and graph that both dumps have.
        pairs = pair_folders(dumped, golden, executions)
        comparison = DumpComparison(
            dumped, golden, limits, graph, *pairs.executions, executor, is_strict=is_strict
        )
        judged = _compare_tensors(comparison, pairs, model or "", arithmetic)
    _print_verdicts(judged, output, view)


def _compare_statistics(dumped: str, golden: str, executions: Executions, limits: Limits) -> _JudgedDumps:
    """Compare two dumps by their rows of statistics; exit with 2 if no row has a counterpart."""
    report, alone = compare_statistics(dumped, golden, limits, executions, _warn_of_executions)
    if not (report.compared or report.unreadable):
        _refuse(report, f"no row of {dumped} has a counterpart in {golden}")
    return _JudgedDumps(report, alone, answer.Compared(dump=dumped))


def _compare_tensors(
    comparison: DumpComparison, pairs: FolderPairs, model: str, arithmetic: str
) -> _JudgedDumps:
    """Compare two dumps by their tensors, also by operators that run again if there is a model.

    Exits with 2 if no tensor has a counterpart.
    """
    rerunning, is_interrupted = None, False
    try:
        with messages.bar("operators", 0) as bar:
            comparison.measure(_matched(comparison, pairs.pairs, bar), bar)
        if model:
            rerunning = rerun(comparison, model, arithmetic)
    except KeyboardInterrupt:
        is_interrupted = True
        messages.say("interrupted: partial results follow")
    report = comparison.report()
    if is_interrupted and not report.compared:
        leave(INTERRUPTED)
    if not (report.compared or report.unreadable):
        _refuse(report, _why_unpaired(comparison, pairs.pairs))
    alone = [path for path in pairs.alone if path not in comparison.joined]
    variant = "" if rerunning is None else str(rerunning.mine or "")
    sources = answer.Compared(model, variant, dump=comparison.dumped, has_rerun=bool(model))
    return _JudgedDumps(report, alone, sources, is_interrupted)


def _refuse(report: Report, why: str) -> NoReturn:
    """Print why nothing was compared, and exit with 2."""
    messages.say(f"error: nothing was compared: {next(iter(report.networks), why)}")
    leave(REFUSED)


def _warn_of_executions(path: str, side: Folder) -> None:
    """Warn that a directory holds several executions, and which is read; once for each dump and number."""
    if side.executions > 1:
        messages.say_once(
            f"warning: {path.rpartition('/rank_')[0] or path} holds {side.executions} executions in one"
            f" directory; {side.execution} (of 0-{side.executions - 1}) is taken"
            " (--execution, --golden-execution)"
        )


def _why_unpaired(comparison: DumpComparison, pairs: Sequence[FolderPair]) -> str:
    """Return why no tensor of the first directories has a counterpart, with the next step."""
    mine, other = pairs[0].dumped, pairs[0].golden
    if comparison.graph:
        return f"no tensor of {mine} and {other} belongs to the same value of {comparison.graph}"
    if is_tree(other):
        return f"no tensor of {other} has the shape of a value of its module in {mine}"
    is_golden = read_folder(other).kind is FolderKind.GOLDEN
    remedy = "" if is_golden else " if the two sides were compiled differently"
    return f"no operator name is in both {mine} and {other}; add --graph model.onnx{remedy}"


def _matched(
    comparison: DumpComparison, pairs: Sequence[FolderPair], bar: messages.Bar
) -> Iterator[ComparedFolder]:
    """Yield the directories of each pair with their operators matched, and warn of oddities."""
    operators = 0
    for number, pair in enumerate(pairs, start=1):
        folder = comparison.add(pair)
        for side in (folder.dumped, folder.golden):
            _warn_of_executions(side.path, side)
            if not os.path.isfile(f"{side.path}/{TABLE}"):
                continue
            if found := list(contradictions(side.path, side.execution)):
                more = f", and so for {len(found) - 1} more" if len(found) > 1 else ""
                messages.say(
                    f"warning: {side.path}/{TABLE} contradicts the tensor files in its directory, and the"
                    f" files are compared: {found[0]}{more}"
                )
        if pair.label and not comparison.is_paired(folder):
            messages.say(f"warning: no tensor of {pair.dumped} has a counterpart in {pair.golden}")
        operators += len(folder.matched.executions)
        bar.expect(operators * len(pairs) // number)  # an estimate: pairs ahead have the mean of these
        yield folder


def _print_scores(dumped: str, golden: str, limits: Limits) -> None:
    """Print the scores of two files and the verdict; exit with 1 where they differ."""
    result = measure_files(dumped, golden, limits)
    if documents.wanted():
        # Two files are shown as one operator without inputs, named by the file: the document has one form.
        report = Report()
        place = OperatorPlace(dumped, order=1)
        report.add(
            Finding(place, _OF_FILES.get(result.verdict) or Verdict(result.verdict), (result,), result.note)
        )
        documents.put(DOCUMENT, ComparedDumps(report))
        leave(FAILED if result.is_bad else 0)
    if result.error is not None:  # None if nothing was compared
        for name, score in zip(SCORES, errors.scores(result.error), strict=True):
            print(f"{name}: {score}")
    print(f"Verdict: {result.verdict}{f' ({result.note})' if result.note else ''}")
    if result.is_bad:
        leave(FAILED)
