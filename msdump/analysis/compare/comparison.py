"""The comparison of two dumps: directories are measured, operators judged, and listed in a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump.analysis import DumpedOperand, Fact, list_facts, scores
from msdump.analysis.align import (
    FolderPair,
    GraphSide,
    Identities,
    align,
    are_inside,
    as_files,
    graphs_run_by,
    inline_graphs,
    join_folders,
    lost_operators,
    match_identities,
    merge_apart,
    read_identities,
    unite_graphs,
)
from msdump.analysis.compare.executions import (
    MeasuredExecution,
    OperatorExecution,
    Place,
    match_executions,
    measure_executions,
    read_place,
)
from msdump.analysis.compare.folders import (
    ComparedFolder,
    absence_findings,
    is_expected,
    missing_operators,
    unasked_operators,
    uneven_operators,
)
from msdump.analysis.compare.surroundings import LEFTOVER, FolderSurroundings, SurroundedDump, with_graphs
from msdump.analysis.judge import (
    AGREEING,
    BAD,
    Finding,
    Judge,
    Limits,
    OperatorEvidence,
    OperatorPlace,
    Report,
    TensorEvidence,
    TensorResult,
    TensorVerdict,
    Verdict,
    accuse,
    joined,
    with_reach,
)
from msdump.device import INSERTED_PREFIX
from msdump.executors import ExecutorChoice
from msdump.graph import written_inputs
from msdump.read import Folder, SourceKind, read_folder, with_forms
from msdump.record import IO

_Output = tuple[Finding, int, Folder, Place]
"""An output of an operator: its number, and where its elements are."""


def _find_writer(read: tuple[Folder, Place], outputs: Iterable[_Output]) -> tuple[Finding, int] | None:
    """Return the operator that wrote an input, and the number of its output.

    Dumps do not tell which output an input reads. So it is looked for by its elements.

    Args:
        read: The place of the input, or of its counterpart, and the directory.
        outputs: The outputs that were written before on the same side, the newest first.

    Returns:
        None where no output has just these elements, or where all elements are alike: those of many tensors
        are all zeros or ones.
    """
    operand = read_place(*read)
    elements = operand.array.reshape(-1)
    if elements.size <= 1 or not np.any(elements != elements[0]):
        return None
    for finding, slot, folder, place in outputs:
        output = read_place(folder, place)
        if _form(output) == _form(operand) and np.array_equal(output.array, operand.array):
            return finding, slot
    return None


# Compared before the elements, most of which then need not be read.
def _form(operand: DumpedOperand) -> tuple[tuple[int, ...], str, str]:
    return operand.shape, operand.dtype, operand.format


def origin_lines(report: Report, folders: Mapping[str, ComparedFolder]) -> Iterator[str]:
    """Yield lines on the origin of the inputs that differ of the first operator that differs.

    Where a graph tells what the operator reads, its verdict says so already.

    Args:
        report: The verdicts.
        folders: The directories by their labels.
    """
    first = report.first
    if first is None or (first.is_accused and not first.tensors) or _has_graph(first, folders):
        return
    search = _Search(report, folders, first)
    for tensor in first.wrong(IO.INPUT):
        if tensor.verdict is TensorVerdict.DIFFERS:
            yield search.origin(tensor.slot)[1]
    if search.uncompared and not any(each.verdict in AGREEING | BAD for each in first.of(IO.INPUT)):
        yield f"{search.uncompared[-1]}, which ran before it, was not compared"


def accuse_origin(report: Report, folders: Mapping[str, ComparedFolder]) -> None:
    """Accuse the operator where a difference begins that the first one with a difference reads.

    That is the first one itself, where no operator wrote its input so; or one that golden lacks, which did.

    Args:
        report: The verdicts; that on the accused operator is replaced.
        folders: The directories by their labels.
    """
    first = report.first
    if first is None or first.is_accused or not first.wrong(IO.INPUT) or _has_graph(first, folders):
        return
    if first.own:  # it ran again, and so did those before it
        return
    search = _Search(report, folders, first)
    for tensor in first.wrong(IO.INPUT):
        if tensor.verdict is not TensorVerdict.DIFFERS:
            continue
        settled = search.stranger(tensor.slot) if search.uncompared else search.settled(tensor.slot)
        if settled is not None:
            replaced = next(each for each in report.findings if each.place == settled.place)
            report.findings[report.findings.index(replaced)] = settled
            return


def _has_graph(finding: Finding, folders: Mapping[str, ComparedFolder]) -> bool:
    return folders[finding.place.label].mine.operator(finding.place.name) is not None


class _Search:
    """Looks for the operator that wrote an input."""

    def __init__(self, report: Report, folders: Mapping[str, ComparedFolder], first: Finding) -> None:
        self._folders, self._first = folders, first
        self.earlier = report.before(first)
        # What was not compared may be where a difference began, so no output can be ruled out.
        self.uncompared = [each.place.name for each in self.earlier if not each.is_compared]

    def origin(self, slot: int) -> tuple[Verdict, str]:
        """Return what is wrong where an input came from nowhere or changed on the way, and that in words."""
        folder, execution = self._matched(self._first)
        outputs = (output for each in reversed(self.earlier) for output in self._outputs(each))
        wrote = _find_writer((folder.golden, execution.counterparts[IO.INPUT, slot]), outputs)
        if wrote is None:
            unless = (
                f", unless {self.uncompared[-1]} wrote it, which was not compared" if self.uncompared else ""
            )
            return Verdict.WEIGHT, f"what feeds input {slot} differs and lies outside the dump{unless}"
        place = f"output {wrote[1]} of {wrote[0].place.name}"
        return Verdict.OWN, f"golden's input {slot} is {place}, where both agree: it changed in between"

    def settled(self, slot: int) -> Finding | None:
        """Return the first operator accused, as an input of it came from nowhere or changed on the way."""
        verdict, note = self.origin(slot)
        if verdict is Verdict.WEIGHT and not self.earlier and not slot:
            return None  # the first input of the first operator is what the network was fed with
        return replace(self._first, verdict=verdict, note=note)

    def stranger(self, slot: int) -> Finding | None:
        """Return the operator without a counterpart that wrote an input, accused; None where none did."""
        read = self._own_place(self._first, IO.INPUT, slot)
        strangers = {
            finding.place.name: finding
            for finding in self.earlier
            if finding.verdict is Verdict.UNCHECKED and not finding.place.name.startswith(INSERTED_PREFIX)
        }
        outputs = (
            (finding, tensor.slot, *place)
            for finding in reversed(strangers.values())
            for tensor in finding.outputs
            if (place := self._own_place(finding, IO.OUTPUT, tensor.slot)) is not None
        )
        wrote = None if read is None else _find_writer(read, outputs)
        if wrote is None:
            return None
        note = f"golden has none such, and its output is input {slot} of {self._first.place.name}"
        return replace(wrote[0], verdict=Verdict.REPLACED, note=note)

    def _own_place(self, finding: Finding, io: IO, slot: int) -> tuple[Folder, Place] | None:
        """Return the place of a tensor of the examined side."""
        folder, execution = self._matched(finding)
        for file in execution.files:
            if file.io is None or (file.io, file.slot) == (io, slot):
                return folder.dumped, (file, io, slot)
        return None

    def _outputs(self, finding: Finding) -> Iterator[_Output]:
        """Yield the outputs of an operator that agree, by the places of their counterparts."""
        if finding.verdict is Verdict.MISSING:
            return
        folder, execution = self._matched(finding)
        for tensor in finding.outputs:
            place = execution.counterparts.get((tensor.io, tensor.slot))
            if tensor.verdict in AGREEING and place is not None:
                yield finding, tensor.slot, folder.golden, place

    def _matched(self, finding: Finding) -> tuple[ComparedFolder, OperatorExecution]:
        folder = self._folders[finding.place.label]
        return folder, folder.matched.executions[finding.place.order - 1]


_TORN = "the file of a graph breaks off, and names alone do not tell"
_NUMBER = "-op"


def without_doubt(finding: Finding, folder: ComparedFolder) -> Finding:
    """Return a verdict, or ``unchecked`` in its place where it accuses an operator that may be innocent.

    It accuses rightly where the operator is the only one of its scope and type on both sides, what it reads
    was compared and agrees, and what differs are elements of the same type. Where another file stands for
    the one that breaks off, it is enough that something differs: the model alone may mistake the operator.

    vendor: MindSpore 2.10 numbers operators of one scope and type otherwise in files than in graphs, gives
    files of views the shape of the view's input, cuts elements, and leaves outputs that nothing reads as the
    memory was. Its graph file tells all that; names without it do not.

    Args:
        finding: The verdict.
        folder: Its directory.
    """
    if not finding.is_accused or folder.is_ours or _is_sure(finding, folder):
        return finding
    return replace(finding, verdict=Verdict.UNCHECKED, note=joined(_TORN, finding.note))


def _is_sure(finding: Finding, folder: ComparedFolder) -> bool:
    sides = folder.mine, folder.theirs
    if any(each.is_graph_torn for each in sides):
        return _is_sure_by_name(finding, folder)
    is_untold = bool(finding.tensors) and not any(each.is_bad for each in finding.tensors)
    return not (is_untold and any(each.is_graph_restored for each in sides))


def _is_sure_by_name(finding: Finding, folder: ComparedFolder) -> bool:
    place = finding.place
    if place.op_type in LEFTOVER or written_inputs(place.op_type) or finding.replaces:
        return False
    stem = place.name.rpartition(_NUMBER)[0]
    for side in (folder.dumped, folder.golden):
        if sum(each.rpartition(_NUMBER)[0] == stem for each in side.operators) != 1:
            return False
    read = [each.verdict for each in finding.tensors if each.io is IO.INPUT]
    allowed = AGREEING | ({TensorVerdict.DIFFERS} if finding.verdict is Verdict.WEIGHT else set())
    return bool(read) and {*read} <= allowed and all(map(_is_of_one_type, finding.tensors))


def _is_of_one_type(tensor: TensorResult) -> bool:
    evidence = tensor.evidence
    return tensor.verdict is not TensorVerdict.SHAPE and evidence.dtype == evidence.golden_dtype


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
        is_strict: Whether inner tensors count beside the outputs of the network.
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
    is_strict: bool = False
    _measured: dict[str, list[tuple[TensorEvidence, ...]]] = field(default_factory=dict)
    _facts: dict[tuple[int, int], tuple[Fact, ...]] = field(default_factory=dict)
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
            identities = read_identities(self.graph, dumped.kind, golden.kind)
        else:
            mine, theirs = with_graphs((dumped, mine), (golden, theirs))
            is_told = mine.is_inferred and theirs.is_inferred
            if is_told and (lost_operators(dumped, golden) or lost_operators(golden, dumped)):
                identities = Identities()  # one of the two is the other one, of which files are gone
            else:
                identities = match_identities((dumped, mine.graph), (golden, theirs.graph))
        return self._matched(pair.label, identities, (dumped, mine), (golden, theirs))

    def _matched(self, label: str, identities: Identities, own: _Side, other: _Side) -> ComparedFolder:
        (dumped, mine), (golden, theirs) = own, other
        dumped, golden = with_forms(dumped, mine.graph), with_forms(golden, theirs.graph)
        matched = match_executions(dumped, golden, identities)
        folder = ComparedFolder(label, dumped, golden, matched, mine, theirs)
        self.folders.append(folder)
        return folder

    def _add_united(self, pair: FolderPair, own: _Side, other: _Side) -> ComparedFolder:
        """Match the operators of all graphs of a network with those of the other side's."""
        matched, shown = [], []
        for dump, side, paths, execution in (
            (self._mine, own, pair.dumped_inner, self.execution),
            (self._theirs, other, pair.golden_inner, self.golden_execution),
        ):
            self.joined |= {*paths}
            inner = [self._read(dump, path, execution) for path in paths]
            whole = join_folders(side[0], [folder for folder, _ in inner])
            graphs = [known.graph for _, known in (side, *inner) if known.graph is not None]
            is_known = len(graphs) == len(inner) + 1
            matched.append((whole, merge_apart(graphs) if is_known else None))
            # executions are listed with branches and loops in their places
            shown.append((whole, side[1].with_graph(unite_graphs(graphs) if is_known else None)))
        return self._matched(pair.label, match_identities(*matched), *shown)

    @staticmethod
    def _read(dump: SurroundedDump, path: str, execution: int | None) -> _Side:
        folder, known = read_folder(path, execution=execution), dump.of(path)
        return folder, known.with_graph(as_files(known.graph, folder))

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
        if known.graph is None or folder.executions > 1 or not are_inside(beside, folder):
            return side
        bodies = {path: self._read(dump, path, None) for path in paths}
        graphs = {path: around.graph for path, (_, around) in bodies.items() if around.graph is not None}
        inner = graphs_run_by(known.graph, graphs)
        if not inner:
            return side
        self.joined |= inner.keys()
        whole = join_folders(folder, [bodies[path][0] for path in inner])
        return whole, known.with_graph(inline_graphs(known.graph, inner.values()))

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
                    weights, held, apart = folder.roundings(each)
                    yield MeasuredExecution(*sides, each, weights, held, apart)

        for tensors in measure_executions(executions(), executor=self.executor, progress=progress):
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
        report = Report(is_strict=self.is_strict)
        for folder in self.folders:
            if not self.graph:  # a compiled graph lacks the operators that it fused
                missing = missing_operators(folder)
                report.missing += map(folder.missing_place, missing)
                report.unreturned += map(folder.missing_place, filter(folder.is_golden_output, missing))
                report.unasked += map(folder.missing_place, unasked_operators(folder))
            report.unreadable += folder.matched.unreadable
            report.uneven += uneven_operators(folder)
            report.add_networks(folder.dumped.path, folder.golden.path, folder.networks)
        for run in self.runs():
            for finding in _Run(self, run, report).findings():
                report.add(finding)
        for folder in self.folders:
            for finding in absence_findings(folder):
                report.add(finding)
        folders = {folder.label: folder for folder in self.folders}
        accuse_origin(report, folders)
        report.findings[:] = [without_doubt(each, folders[each.place.label]) for each in report.findings]
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

    def facts(self, folder: ComparedFolder) -> tuple[Fact, ...]:
        """Return what the graphs of two directories say differs; iterations share graphs."""
        mine, golden = folder.mine.graph, folder.theirs.graph
        if mine is None or golden is None:
            return ()
        key = id(mine), id(golden)
        if key not in self._facts:
            sides = GraphSide(mine), GraphSide(golden)
            self._facts[key] = list_facts(*sides, align(*sides))
        return self._facts[key]

    def runs(self) -> Iterator[list[ComparedFolder]]:
        """Yield the directories of each run; those of branches and loops belong to that of their graph."""
        runs: dict[tuple[object, ...], list[ComparedFolder]] = {}
        for folder in self.folders:
            runs.setdefault(folder.run, []).append(folder)
        yield from runs.values()


_Side = tuple[Folder, FolderSurroundings]
"""A directory of tensors with its graph, its execution and the dump that it lies in."""


class _Run:
    """The judging of one run of the network."""

    def __init__(self, comparison: DumpComparison, folders: list[ComparedFolder], report: Report) -> None:
        self._comparison = comparison
        self._folders = {folder.label: folder for folder in folders}
        rank = folders[0].mine.rank
        before = any(each.place.rank == rank and each.wrong(IO.OUTPUT) for each in report.findings)
        self._report = report
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
            fed = (each.source(tensor.slot) for tensor in finding.inputs if tensor.is_bad)
            names = (source.name for source in fed if source.kind is SourceKind.INPUT)
            self._report.inputs += (name for name in names if name not in self._report.inputs)
        graphs = {label: folder.mine.graph for label, folder in self._folders.items()}
        everything = [finding for group in judged.values() for finding in group]
        outputs = [*_network_outputs(self._folders.values(), everything)]
        self._report.outputs += outputs
        for label, folder in self._folders.items():
            listed = [
                finding
                for each in evidence
                if each.operator.label == label
                for finding in judged[label, each.operator.order]
            ]
            facts = self._comparison.facts(folder)
            self._report.facts += (each for each in facts if each not in self._report.facts)
            for finding in accuse(
                listed, facts, folder.place_of, {}, outputs_differ=any(each.is_bad for each in outputs)
            ):
                yield with_reach(finding, everything, graphs.get(label))

    def _culprits(self, evidence: OperatorEvidence, finding: Finding) -> Iterator[Finding]:
        """Yield golden operators that MINE lacks and whose absence explains inputs that differ."""
        place = evidence.operator
        folder = self._folders[place.label]
        for tensor in finding.wrong(IO.INPUT):
            golden = evidence.golden_reads[tensor.slot : tensor.slot + 1]
            name = golden[0].name if golden and golden[0].kind is SourceKind.ABSENT else ""
            if (
                name
                and name not in self._missing
                and is_expected(folder, name)
                and self._began_here(folder, name)
            ):
                self._missing.add(name)
                missing = folder.missing_place(name, order=place.order, time=place.time)
                reader = place.shown_name
                yield Finding(missing, Verdict.MISSING, note=f"its output is input {tensor.slot} of {reader}")

    def _began_here(self, folder: ComparedFolder, name: str) -> bool:
        """Tell whether what a golden operator reads agrees, as far as it was compared."""
        sources = folder.inputs_of_missing(name)
        written = (self._judge.written(each.name, each.slot) for each in sources)
        return not any(each.is_bad for each in written if each is not None)


def _network_outputs(
    folders: Iterable[ComparedFolder], findings: Iterable[Finding]
) -> Iterator[TensorResult]:
    """Yield the network's outputs, each by the operator that writes it; of a loop's passes the last one.

    What golden's configuration leaves out is not among them.

    Args:
        folders: The directories of one run.
        findings: The verdicts on its operators, in the order of execution.
    """
    last = {(each.place.label, each.place.shown_name): each for each in findings}
    for folder in folders:
        for source in folder.returned:
            finding = last.get((folder.label, source.name))
            if finding is None:
                continue
            for each in finding.outputs:
                if each.io is IO.OUTPUT and each.slot == source.slot and folder.is_asked(finding, each):
                    name = f"{source.name}{f' output {source.slot}' if source.slot else ''}"
                    yield replace(each, evidence=replace(each.evidence, name=each.evidence.name or name))


_TITLES: Final = (
    *("Directory", "Order", "Operator", "Type", "Pass", "Tensor", "Shape", "DataType", "GoldenDataType"),
    "Verdict",
    *scores.ALL,
    *("Distance", "Limit", "Note"),
    *("OperatorVerdict", "OperatorNote", "ScaledError", "Ulps", "Masked", "OwnError"),
    *("FullName", "Scope", "Source", "Iteration", "Rank", "Execution"),
)


def findings_table(report: Report) -> Iterator[Sequence[object]]:
    """Yield the titles of the csv file, and a row for each tensor, in the order of execution.

    At the end stand golden operators that the examined side has no files of, a row for each.
    """
    yield _TITLES
    for finding in report.findings:
        yield from _rows(finding)
    yield from map(_absent, report.absent)


def _rows(finding: Finding) -> Iterator[Sequence[object]]:
    place = finding.place
    number = "" if place.pass_number is None else place.pass_number
    for tensor in finding.tensors:
        evidence = tensor.evidence
        yield (
            *(place.label, place.order, place.name, place.op_type, number),
            *(f"{tensor.io}:{tensor.slot}", shape_text(tensor), evidence.dtype, evidence.golden_dtype),
            tensor.verdict,
            *(evidence.scores or ("",) * len(scores.ALL)),
            "" if evidence.error is None else f"{evidence.error.distance:.6g}",
            "" if tensor.limit is None else f"{tensor.limit:.6g}",
            tensor_reason(finding, tensor),
            *(finding.verdict, finding.note, *_numbers(finding, tensor)),
            *_where(place),
        )


def _where(place: OperatorPlace) -> tuple[object, ...]:
    numbers = (place.iteration, place.rank, place.execution)
    return (
        *(place.full_name, place.scope, place.source),
        *("" if each is None else each for each in numbers),
    )


def _absent(finding: Finding) -> Sequence[object]:
    place, verdict = finding.place, finding.verdict
    numbers = ("",) * (len(scores.ALL) + 2)
    own = (place.label, "", place.name, place.op_type, "", "", "", "", "", verdict, *numbers, "")
    return (*own, verdict, finding.note, "", "", "", "", *_where(place))


def _numbers(finding: Finding, tensor: TensorResult) -> tuple[object, ...]:
    error = tensor.evidence.error
    own = (each for each in finding.own if tensor.io is IO.OUTPUT and each.slot == tensor.slot)
    return (
        *(("", "", "") if error is None else (f"{error.scaled:.6g}", f"{error.ulps:.6g}", error.masked)),
        next((f"{each.error.distance:.6g}" for each in own), ""),
    )


def shape_text(tensor: TensorResult) -> str:
    """Return a shape in a word, ``8x3x224x224``."""
    return "x".join(map(str, tensor.evidence.shape))


def tensor_reason(finding: Finding, tensor: TensorResult | None) -> str:
    """Return the text of a tensor's last column: the reason of its verdict, where numbers do not give it."""
    place = f"in the place of {finding.replaces}" if finding.replaces else ""
    return joined(place, tensor.note if tensor is not None else "")
