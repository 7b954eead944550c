"""``msdump compare``: two dumps of a network, tensor by tensor, and the first operator where they part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from msdump.cli import messages
from msdump.cli import options as command_options
from msdump.cli.compare import again, options, outcome, statistics
from msdump.cli.compare.listing import ComparisonView
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED, INTERRUPTED, REFUSED
from msdump.tools.compare.pairing import dump_folder, dump_folders
from msdump.tools.compare.pairing.dump_folder import FolderKind
from msdump.tools.compare.pairing.dump_folders import FolderPair, FolderPairs
from msdump.tools.compare.verdict import measuring, origins
from msdump.tools.compare.verdict.comparison import DumpComparison
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.judge.limits import Limits
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.scores import algorithms


@click.command(name="compare")
@click.argument("dumped", type=click.Path(), metavar="MINE")
@click.argument("golden", type=click.Path())
@click.option(
    "--graph",
    type=click.Path(),
    metavar="FILE",
    help="The model (.onnx), or a graph file of GE (.json): for dumps whose operators have other names.",
)
@click.option(
    "-out", "--output", default=".", show_default=True, type=click.Path(), help="Directory of the table."
)
@options.statistic_limits
@options.limits
@options.view
@command_options.execution
@command_options.golden_execution
@command_options.executor
@again.options
@documents.option
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
    patches: tuple[str, ...],
    graph: str | None,
    executor: ExecutorChoice,
    limits: Limits,
    view: ComparisonView,
) -> None:
    """Compare the dump MINE with the dump GOLDEN, and name the first operator that differs.

    Either is a dump, a part of it, or a directory of golden tensors (name.output.time.npy);
    or both are .npy files. A dump without tensors is compared by its statistic.csv, with that
    of the other or with its tensors, which are measured; --statistic sets the limits. Two
    tensors agree if their cosine similarity is at least --cosine and their relative Euclidean
    distance at most --distance; without it, at most what the coarsest element type allows that
    they were computed in (float32 0.00012, float16 0.0039, bfloat16 0.016; integers and truth
    values must be the same). All numbers of all tensors, inputs too, go to compare_{time}.csv,
    in the order of execution. Exit codes: 0 everything that has a counterpart agrees, 1
    something differs or cannot be compared, 2 nothing has a counterpart, 130 interrupted.
    """
    if patches and not model:
        raise click.UsageError("--patch runs the network on: give its --model")
    if os.path.isfile(dumped) and os.path.isfile(golden):
        _print_scores(dumped, golden, limits)
        return
    if dump_folders.is_measured_alone(dumped, golden):
        statistics.run(dumped, golden, output, limits, (execution, golden_execution), view=view)
        return
    # One pair of directories for each iteration, rank and graph that both dumps have.
    pairs = dump_folders.pair(dumped, golden, (execution, golden_execution))
    comparison = DumpComparison(dumped, golden, limits, graph, *pairs.executions, executor)
    is_interrupted = False
    try:
        _compare(comparison, pairs.pairs)
        if model:
            rerunning = again.rerun(comparison, model, arithmetic)
            if patches:
                again.cure(rerunning, patches)
    except KeyboardInterrupt:
        is_interrupted = True
        messages.say("interrupted: this is what is known so far")
    _tell(comparison, pairs, output, view, is_interrupted=is_interrupted)


def _tell(
    comparison: DumpComparison, pairs: FolderPairs, output: str, view: ComparisonView, *, is_interrupted: bool
) -> None:
    """Tell what was compared, and exit with its code."""
    report = comparison.report()
    if is_interrupted and not report.compared:
        click.get_current_context().exit(INTERRUPTED)
    if not (report.compared or report.unreadable):
        messages.say(f"error: nothing was compared: {_why_nothing(pairs.pairs[0], comparison.graph)}")
        click.get_current_context().exit(REFUSED)
    folders = {folder.label: folder for folder in comparison.folders}
    outcome.tell(
        report,
        output,
        lambda: origins.lines(report, folders),
        [path for path in pairs.alone if path not in comparison.joined],
        view=view,
        code=INTERRUPTED if is_interrupted else None,
    )


def _compare(comparison: DumpComparison, pairs: Sequence[FolderPair]) -> None:
    with messages.bar("operators", 0) as bar:
        comparison.measure(_matched(comparison, pairs, bar), bar)


def _matched(
    comparison: DumpComparison, pairs: Sequence[FolderPair], bar: messages.Bar
) -> Iterator[ComparedFolder]:
    """Yield the directories of each pair with their operators matched, and tell what is odd about them."""
    operators = 0
    for number, pair in enumerate(pairs, start=1):
        folder = comparison.add(pair)
        for side in (folder.dumped, folder.golden):
            messages.tell_execution(side.path, side.execution, side.executions)
            statistics.tell_contradictions(side.path, side.execution)
        if pair.label and not comparison.is_paired(folder):
            messages.say(f"warning: no tensor of {pair.dumped} has a counterpart in {pair.golden}")
        operators += len(folder.matched.executions)
        bar.expect(operators * len(pairs) // number)  # as many in each of those that are not matched yet
        yield folder


def _print_scores(dumped: str, golden: str, limits: Limits) -> None:
    """Print the scores of two files and the verdict; exit with 1 where they differ."""
    result = measuring.files(dumped, golden, limits)
    if documents.wanted():
        from msdump.cli.documents.compare import document_of_files

        documents.put(document_of_files(dumped, result))
        click.get_current_context().exit(FAILED if result.is_bad else 0)
    scores = result.evidence.scores  # none where nothing was compared
    for name, score in zip(algorithms.ALL[: len(scores)], scores, strict=True):
        print(f"{name}: {score}")
    print(f"Verdict: {result.verdict}{f' ({result.note})' if result.note else ''}")
    if result.is_bad:
        click.get_current_context().exit(FAILED)


def _why_nothing(pair: FolderPair, graph: str | None) -> str:
    if graph:
        return f"no tensor of {pair.dumped} and {pair.golden} belongs to the same value of {graph}"
    if dump_folder.read(pair.golden).kind is FolderKind.GOLDEN:
        return f"no operator of {pair.dumped} is called as one of {pair.golden}; give --graph model.onnx"
    return (
        f"no operator has the same name in {pair.dumped} and {pair.golden};"
        " give --graph model.onnx where they were compiled in different ways"
    )
