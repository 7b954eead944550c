"""The comparison of two dumps: directories are measured one by one, then all operators are judged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msdump.record import IO
from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind
from msdump.tools.compare.pairing import (
    dump_folder,
    graph_matching,
    numbering,
    remnants,
)
from msdump.tools.compare.pairing import identities as identity
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.pairing.dump_folders import FolderPair
from msdump.tools.compare.pairing.several import inner_graphs
from msdump.tools.compare.verdict import absences, doubts, matching, measuring, origins, surroundings
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.compare.verdict.measuring import MeasuredExecution
from msdump.tools.compare.verdict.surroundings import FolderSurroundings, SurroundedDump
from msdump.tools.judge import reach
from msdump.tools.judge.evidence import OperatorEvidence, TensorEvidence
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.judging import Judge
from msdump.tools.judge.limits import Limits
from msdump.tools.judge.verdicts import Verdict
from msdump.tools.mapping.executors import ExecutorChoice


@dataclass(slots=True)
class DumpComparison:
    """A comparison of two dumps, directory by directory, and what is known so far.

    Attributes:
        dumped: Path of the dump that is examined.
        golden: Path of the dump that it is compared with.
        limits: What counts as agreement.
        graph: A model or a graph file that tells which tensors belong together, None: by names.
        execution: Number of the execution that is examined, None: the last whole one.
        golden_execution: Number of the execution that it is compared with, None: the last whole one.
        executor: Who measures the tensors.
        folders: The directories that were measured.
        joined: Directories of branches and loops that were compared with the one of the graph around them.
        explain: Adds to the evidence what is not in the files, such as what the operator gives when it runs
            again.
    """

    dumped: str
    golden: str
    limits: Limits
    graph: str | None = None
    execution: int | None = None
    golden_execution: int | None = None
    executor: ExecutorChoice = ExecutorChoice()  # noqa: RUF009 - frozen
    folders: list[ComparedFolder] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    explain: Callable[[OperatorEvidence], OperatorEvidence] = lambda evidence: evidence
    _measured: dict[str, list[tuple[TensorEvidence, ...]]] = field(default_factory=dict)
    _mine: SurroundedDump = field(init=False)
    _theirs: SurroundedDump = field(init=False)

    def __post_init__(self) -> None:
        """Open both dumps."""
        self._mine, self._theirs = SurroundedDump(self.dumped), SurroundedDump(self.golden)

    def add(self, pair: FolderPair) -> ComparedFolder:
        """Match the operators of two directories, which ``measure`` compares.

        Raises:
            ToolError: A directory or the graph file cannot be used.
            DumpReadError: A directory cannot be read, or lacks the execution.
        """
        own = self._read(self._mine, pair.dumped, self.execution)
        other = self._read(self._theirs, pair.golden, self.golden_execution)
        if pair.is_united:
            return self._add_united(pair, own, other)
        dumped, mine = self._with_inner(self._mine, own, pair.dumped_inner, beside=other[0])
        golden, theirs = self._with_inner(self._theirs, other, pair.golden_inner, beside=own[0])
        if self.graph:
            identities = identity.read(self.graph, dumped.kind, golden.kind)
        else:
            mine, theirs = surroundings.with_graphs((dumped, mine), (golden, theirs))
            is_told = mine.is_inferred and theirs.is_inferred and _is_part(dumped, golden)
            graphs = (dumped, mine.graph), (golden, theirs.graph)
            identities = identity.Identities() if is_told else graph_matching.identities(*graphs)
        return self._matched(pair.label, (dumped, mine), (golden, theirs), identities)

    def _matched(
        self, label: str, own: _Side, other: _Side, identities: identity.Identities
    ) -> ComparedFolder:
        (dumped, mine), (golden, theirs) = own, other
        dumped = dump_folder.with_forms(dumped, mine.graph)
        golden = dump_folder.with_forms(golden, theirs.graph)
        matched = matching.match(dumped, golden, identities)
        folder = ComparedFolder(label, dumped, golden, matched, mine, theirs)
        self.folders.append(folder)
        return folder

    def _add_united(self, pair: FolderPair, own: _Side, other: _Side) -> ComparedFolder:
        """Match the operators of all graphs of a network with those of the other side's."""
        mine = [own, *(self._read(self._mine, path, self.execution) for path in pair.dumped_inner)]
        theirs = [
            other,
            *(self._read(self._theirs, path, self.golden_execution) for path in pair.golden_inner),
        ]
        self.joined |= {*pair.dumped_inner, *pair.golden_inner}
        (dumped, graph), (golden, golden_graph) = _apart(mine), _apart(theirs)
        identities = graph_matching.identities((dumped, graph), (golden, golden_graph))
        return self._matched(pair.label, _united(mine), _united(theirs), identities)

    @staticmethod
    def _read(dump: SurroundedDump, path: str, execution: int | None) -> _Side:
        folder = dump_folder.read(path, execution=execution)
        return folder, _numbered(dump.of(path), folder)

    def _with_inner(
        self, dump: SurroundedDump, side: _Side, paths: Iterable[str], *, beside: Folder
    ) -> _Side:
        """Return a directory with those of its branches and loops, where the other side's holds its own.

        Args:
            dump: The dump that it is of.
            side: The directory.
            paths: Those of further graphs of the same iteration.
            beside: The other side's directory.
        """
        folder, known = side
        if known.graph is None or folder.executions > 1 or not inner_graphs.are_inside(beside, folder):
            return side
        bodies = {path: self._read(dump, path, None) for path in paths}
        graphs = {path: around.graph for path, (_, around) in bodies.items() if around.graph is not None}
        inner = inner_graphs.run_by(known.graph, graphs)
        if not inner:
            return side
        self.joined |= inner.keys()
        whole = inner_graphs.joined(folder, [bodies[path][0] for path in inner])
        return whole, known.with_graph(inner_graphs.inlined(known.graph, inner.values()))

    def measure(
        self, folders: Iterable[ComparedFolder], progress: Callable[[int], object] = lambda _: None
    ) -> None:
        """Compare the tensors of directories; what was compared is kept, also where an error ends it.

        Args:
            folders: What ``add`` returned; the next one is asked for while others are measured.
            progress: Called with the bytes of each operator that was compared.
        """
        labels: deque[str] = deque()

        def executions() -> Iterator[MeasuredExecution]:
            for folder in folders:
                self._measured[folder.label] = []
                # the listing of a directory is large, and of no use to the workers that get it
                sides = replace(folder.dumped, operators={}), replace(folder.golden, operators={})
                for each in folder.matched.executions:
                    labels.append(folder.label)
                    yield MeasuredExecution(*sides, each, folder.weights(each), folder.held(each))

        for tensors in measuring.tensors(executions(), executor=self.executor, progress=progress):
            self._measured[labels.popleft()].append(tensors)

    def find_again(self, folder: ComparedFolder, found: Mapping[str, str]) -> None:
        """Take in which golden operators the examined side has that nothing paired.

        Args:
            folder: A directory of the comparison.
            found: Names of the examined side's operators by those of golden ones.
        """
        self.folders[self.folders.index(folder)] = replace(folder, found_again=found)

    def is_paired(self, folder: ComparedFolder) -> bool:
        """Tell whether a tensor of a directory has a counterpart."""
        return any(each.counterparts for each in folder.matched.executions)

    def report(self) -> Report:
        """Return the verdicts on all operators that were measured."""
        report = Report()
        for folder in self.folders:
            if not self.graph:  # a compiled graph lacks the operators that it fused
                report.missing += map(folder.missing_place, absences.missing(folder))
                report.unasked += map(folder.missing_place, absences.unasked(folder))
            report.unreadable += folder.matched.unreadable
            report.uneven += absences.uneven(folder)
        for run in self.runs():
            for finding in _Run(self, run, report).findings():
                report.add(finding)
        for folder in self.folders:
            for finding in absences.findings(folder):
                report.add(finding)
        folders = {folder.label: folder for folder in self.folders}
        origins.settle(report, folders)
        report.findings[:] = [doubts.settled(each, folders[each.place.label]) for each in report.findings]
        return report

    def evidence(self, folder: ComparedFolder) -> Iterator[OperatorEvidence]:
        """Yield what is known of the operators of two directories that were measured, in order."""
        # an evaluation reads the weights that the training step of the same dump wrote
        is_trained = any(each.is_training for each in self.folders)
        is_inner = folder.mine.graph is not None and bool(folder.mine.graph.caller)
        is_evaluation = is_trained and not folder.is_training and not is_inner
        measured = zip(folder.matched.executions, self._measured.get(folder.label, ()), strict=False)
        for number, (execution, tensors) in enumerate(measured):
            known = folder.evidence(number, execution, tensors)
            yield self.explain(
                replace(known, is_state=known.is_state or is_trained, is_evaluation=is_evaluation)
            )

    def runs(self) -> Iterator[list[ComparedFolder]]:
        """Yield the directories of each run; those of branches and loops belong to that of their graph."""
        runs: dict[tuple[object, ...], list[ComparedFolder]] = {}
        for folder in self.folders:
            runs.setdefault(folder.run, []).append(folder)
        yield from runs.values()


_Side = tuple[Folder, FolderSurroundings]
"""A directory, and what its dump tells around it."""


def _apart(sides: Sequence[_Side]) -> tuple[Folder, OperatorGraph | None]:
    """Return the directories of all graphs of a network as one, and their operators as one graph."""
    (first, _), *others = sides
    whole = inner_graphs.joined(first, [folder for folder, _ in others])
    graphs = [around.graph for _, around in sides if around.graph is not None]
    return whole, inner_graphs.apart(graphs) if len(graphs) == len(sides) else None


def _united(sides: Sequence[_Side]) -> _Side:
    """Return the directories of all graphs of a network as one, branches and loops in their places."""
    (first, known), *others = sides
    whole = inner_graphs.joined(first, [folder for folder, _ in others])
    graphs = [around.graph for _, around in sides if around.graph is not None]
    return whole, known.with_graph(inner_graphs.united(graphs) if len(graphs) == len(sides) else None)


def _numbered(known: FolderSurroundings, folder: Folder) -> FolderSurroundings:
    graph = numbering.as_files(known.graph, folder)
    return known if graph is known.graph else known.with_graph(graph)


def _is_part(dumped: Folder, golden: Folder) -> bool:
    """Tell whether one of two directories is the other one, of which files are gone."""
    return bool(remnants.gone(dumped, golden) or remnants.gone(golden, dumped))


class _Run:
    """The judging of one run of the network."""

    def __init__(self, comparison: DumpComparison, folders: list[ComparedFolder], report: Report) -> None:
        self._comparison = comparison
        self._folders = {folder.label: folder for folder in folders}
        rank = folders[0].mine.rank
        before = any(each.place.rank == rank and each.wrong(IO.OUTPUT) for each in report.findings)
        self._judge = Judge(comparison.limits, is_continued=before)
        self._missing: set[str] = set()

    def findings(self) -> Iterator[Finding]:
        """Yield the verdicts as tables list them, judged in the order of execution."""
        evidence = [each for folder in self._folders.values() for each in self._comparison.evidence(folder)]
        judged: dict[tuple[str, int], list[Finding]] = {}
        for each in sorted(evidence, key=lambda each: each.operator.time):
            place = each.operator
            finding = self._judge.finding(each)
            judged[place.label, place.order] = [*self._culprits(each, finding), finding]
        graphs = {label: folder.mine.graph for label, folder in self._folders.items()}
        everything = [finding for group in judged.values() for finding in group]
        for each in evidence:
            for finding in judged[each.operator.label, each.operator.order]:
                yield reach.told(finding, everything, graphs.get(finding.place.label))

    def _culprits(self, evidence: OperatorEvidence, finding: Finding) -> Iterator[Finding]:
        """Yield the golden operators whose absence explains inputs that differ."""
        place = evidence.operator
        folder = self._folders[place.label]
        for tensor in finding.wrong(IO.INPUT):
            golden = evidence.golden_reads[tensor.slot : tensor.slot + 1]
            name = golden[0].name if golden and golden[0].kind is SourceKind.ABSENT else ""
            if (
                name
                and name not in self._missing
                and absences.is_expected(folder, name)
                and self._began_here(folder, name)
            ):
                self._missing.add(name)
                missing = folder.missing_place(name, order=place.order, time=place.time)
                reader = place.full_name or place.name
                yield Finding(missing, Verdict.MISSING, note=f"its output is input {tensor.slot} of {reader}")

    def _began_here(self, folder: ComparedFolder, name: str) -> bool:
        """Tell whether what a golden operator reads agrees, as far as it was compared."""
        sources = folder.inputs_of_missing(name)
        written = (self._judge.written(each.name, each.slot) for each in sources)
        return not any(each.is_bad for each in written if each is not None)
