"""``msdump compare``: two dumps of a network, tensor by tensor, and the first operator where they part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click

from msdump.cli import messages
from msdump.cli.compare import outcome, statistics
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED, REFUSED
from msdump.record import IO
from msdump.tools.compare.pairing import dump_folder, dump_folders
from msdump.tools.compare.pairing import identities as identity
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind
from msdump.tools.compare.pairing.dump_folders import FolderPair
from msdump.tools.compare.pairing.identities import Identities
from msdump.tools.compare.verdict import divergence, matching, origins
from msdump.tools.compare.verdict.matching import Matched, OperatorExecution
from msdump.tools.compare.verdict.origins import Output
from msdump.tools.judge.evidence import OperatorPlace
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.limits import COSINE, TYPES, Limits
from msdump.tools.judge.verdicts import AGREEING, BAD, TensorVerdict
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
@click.option(
    "--cosine",
    type=click.FloatRange(0, 1),
    default=COSINE,
    show_default=True,
    help="Least similarity.",
)
@click.option(
    "--distance",
    type=click.FloatRange(0),
    show_default="by element type",
    help="Largest relative distance.",
)
@click.option(
    "--precision",
    type=click.Choice(tuple(TYPES)),
    help="Coarsest type that either side computed in, where no tensor shows it.",
)
@click.option(
    "--execution",
    type=click.IntRange(min=0),
    help="Number of the execution of MINE, where several lie in one path (default: the last whole one).",
)
@click.option("--golden-execution", type=click.IntRange(min=0), help="The same for GOLDEN.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Processes (default: one for each core).")
@documents.option
@messages.verbose
def command(
    *,
    dumped: str,
    golden: str,
    graph: str | None,
    output: str,
    cosine: float,
    distance: float | None,
    precision: str | None,
    execution: int | None,
    golden_execution: int | None,
    jobs: int | None,
) -> None:
    """Compare the dump MINE with the dump GOLDEN, and name the first operator that differs.

    Either is a dump, a part of it, or a directory of golden tensors (name.output.time.npy);
    or both are .npy files. Dumps without tensors are compared by their statistic.csv. Two
    tensors agree if their cosine similarity is at least --cosine and their relative Euclidean
    distance at most --distance; without it, at most what the coarsest element type allows that
    they were computed in (float32 0.00012, float16 0.0039, bfloat16 0.016; integers and truth
    values must be the same). All numbers of all tensors, inputs too, go to compare_{time}.csv,
    in the order of execution. Exit codes: 0 everything that has a counterpart agrees, 1
    something differs or cannot be compared, 2 nothing has a counterpart, 130 interrupted.
    """
    limits = Limits(cosine, distance, precision or "")
    if os.path.isfile(dumped) and os.path.isfile(golden):
        _print_scores(dumped, golden, limits)
        return
    if dump_folders.hold_statistics_alone(dumped, golden):
        agrees = statistics.run(dumped, golden, output, limits, (execution, golden_execution))
        if not agrees:
            click.get_current_context().exit(REFUSED if agrees is None else FAILED)
        return
    # One pair of directories for each iteration, rank and graph that both dumps have.
    pairs = dump_folders.pair(dumped, golden)
    comparison = _Comparison(execution, golden_execution)
    for pair in pairs.pairs:
        comparison.add(pair, graph, limits, jobs or 0)
    report = comparison.report
    if not (report.compared or report.unreadable):
        messages.say(f"error: nothing was compared: {_why_nothing(pairs.pairs[0], graph)}")
        click.get_current_context().exit(REFUSED)
    outcome.tell(report, output, comparison.origins, pairs.alone)


def _print_scores(dumped: str, golden: str, limits: Limits) -> None:
    """Print the scores of two files and the verdict; exit with 1 where they differ."""
    result = divergence.files(dumped, golden, limits)
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


@dataclass(slots=True)
class _Comparison:
    """A comparison of several pairs of directories, one after the other.

    Attributes:
        execution: Number of the execution that is examined, None: the last whole one.
        golden_execution: Number of the execution that it is compared with, None: the last whole one.
        report: The verdicts so far.
        sources: Golden directory and matched executions, by the label of the pair of directories.
    """

    execution: int | None
    golden_execution: int | None
    report: Report = field(default_factory=Report)
    sources: dict[str, tuple[Folder, Matched]] = field(default_factory=dict)

    def add(self, pair: FolderPair, graph: str | None, limits: Limits, jobs: int) -> None:
        """Compare two directories, and add the verdicts to the report."""
        dumped = dump_folder.read(pair.dumped, execution=self.execution)
        golden = dump_folder.read(pair.golden, execution=self.golden_execution)
        for side in (dumped, golden):
            messages.tell_execution(side.path, side.execution, side.executions)
        identities = identity.read(graph, dumped.kind, golden.kind) if graph else Identities()
        matched = matching.match(dumped, golden, identities)
        self.sources[pair.label] = golden, matched
        if not graph:  # a compiled graph lacks the operators that it fused
            self.report.missing += (OperatorPlace(name, label=pair.label) for name in matched.missing)
        self.report.unreadable += matched.unreadable
        self.report.uneven += matched.uneven
        compared_before = self.report.compared
        with messages.bar("operators", len(matched.executions)) as advance:
            # They come in the order of the executions, whichever process is done first.
            for finding in divergence.findings(
                dumped, golden, matched.executions, limits, label=pair.label, jobs=jobs
            ):
                self.report.add(finding)
                advance()
        if pair.label and self.report.compared == compared_before:
            messages.say(f"warning: no tensor of {pair.dumped} has a counterpart in {pair.golden}")

    def origins(self) -> Iterator[str]:
        """Yield lines on the origin of the inputs that differ of the first operator that differs."""
        first = self.report.first
        if first is None:
            return
        earlier = self.report.before(first)
        # What was not compared may be where a difference began, so no output can be ruled out.
        uncompared = [each.place.name for each in earlier if not each.is_compared]
        for tensor in first.wrong(IO.INPUT):
            if tensor.verdict is TensorVerdict.DIFFERS:
                yield self._origin(first, tensor.slot, earlier, uncompared)
        if uncompared and not any(each.verdict in AGREEING | BAD for each in first.of(IO.INPUT)):
            yield f"{uncompared[-1]}, which ran before it, was not compared"

    def _origin(
        self, first: Finding, slot: int, earlier: Sequence[Finding], uncompared: Sequence[str]
    ) -> str:
        golden, execution = self._source(first)
        outputs = (output for each in reversed(earlier) for output in self._outputs(each))
        origin = origins.writer((golden, execution.counterparts[IO.INPUT, slot]), outputs)
        if origin is None:
            unless = f", unless {uncompared[-1]} wrote it, which was not compared" if uncompared else ""
            return f"what feeds input {slot} differs and lies outside the dump{unless}"
        name, output = origin
        return f"golden's input {slot} is output {output} of {name}, where both agree: it changed in between"

    def _outputs(self, finding: Finding) -> Iterator[Output]:
        """Yield the outputs of an operator that agree."""
        golden, execution = self._source(finding)
        for tensor in finding.of(IO.OUTPUT):
            if tensor.verdict in AGREEING:
                place = execution.counterparts[IO.OUTPUT, tensor.slot]
                yield Output(execution.name, tensor.slot, golden, place)

    def _source(self, finding: Finding) -> tuple[Folder, OperatorExecution]:
        golden, matched = self.sources[finding.place.label]
        return golden, matched.executions[finding.place.order - 1]


def _why_nothing(pair: FolderPair, graph: str | None) -> str:
    if graph:
        return f"no tensor of {pair.dumped} and {pair.golden} belongs to the same value of {graph}"
    if dump_folder.read(pair.golden).kind is FolderKind.GOLDEN:
        return f"no operator of {pair.dumped} is called as one of {pair.golden}; give --graph model.onnx"
    return (
        f"no operator has the same name in {pair.dumped} and {pair.golden};"
        " give --graph model.onnx where they were compiled in different ways"
    )
