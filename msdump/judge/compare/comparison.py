"""The comparison of two dumps: directories are measured, operators judged, and listed in a table.

Branches and loops have no files: their rows show their inputs, and how often they ran.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msdump.device import INSERTED_PREFIX
from msdump.errors import ToolError
from msdump.executors import ExecutorChoice
from msdump.judge import SCORES, Fact, FactKind, errors, list_facts
from msdump.judge.compare.executions import (
    MeasuredExecution,
    match_executions,
    measure_executions,
)
from msdump.judge.compare.folders import (
    ComparedFolder,
    absence_findings,
    missing_operators,
    unasked_operators,
)
from msdump.judge.compare.surroundings import FolderSurroundings, SurroundedDump, described
from msdump.judge.pair import (
    FolderPair,
    GraphSide,
    Identities,
    RewiredInput,
    align,
    graphs_run_by,
    join_folders,
    match_identities,
    pair_tree,
    read_identities,
    unite_graphs,
)
from msdump.judge.verdict import (
    Finding,
    Limits,
    Report,
    TensorEvidence,
    Verdict,
    coarsest_type,
    joined,
    judge,
    judge_tensor,
    masking_operators,
    scale_noise,
    with_reach,
)
from msdump.read import (
    FIXED,
    Folder,
    FolderKind,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    is_process,
    read_folder,
    read_parents,
    with_forms,
)
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import sanitize

_TORN: Final = "the file of a graph breaks off, and names alone do not tell"


@dataclass(slots=True)
class DumpComparison:
    """A comparison of two dumps, directory by directory."""

    dumped: str  # path of the dump that is examined
    golden: str  # path of the dump that it is compared with
    limits: Limits  # limits of agreement
    graph: str | None = None  # a model or a graph file that pairs the tensors, None: by names
    execution: int | None = None  # number of the execution that is examined, None: the last whole one
    # number of the execution that it is compared with, None: the last whole one
    golden_execution: int | None = None
    # workers that measure the tensors
    executor: ExecutorChoice = ExecutorChoice()  # noqa: RUF009 - frozen
    folders: list[ComparedFolder] = field(default_factory=list)  # the directories that were measured
    # directories of branches and loops that were compared with the one of the graph around them
    joined: set[str] = field(default_factory=set)
    # adds evidence that is not in the files, such as the results of an operator when it runs again
    explain: Callable[[Finding], Finding] = lambda evidence: evidence
    is_strict: bool = False  # whether inner tensors count beside the outputs of the network
    _measured: dict[str, list[tuple[TensorEvidence, ...]]] = field(default_factory=dict)
    _facts: dict[tuple[int, int], tuple[Fact, ...]] = field(default_factory=dict)
    mine: SurroundedDump = field(init=False)  # directories of the examined dump
    theirs: SurroundedDump = field(init=False)  # directories of the other dump

    def __post_init__(self) -> None:
        """Open both dumps."""
        self.mine, self.theirs = SurroundedDump(self.dumped), SurroundedDump(self.golden)

    def add(self, pair: FolderPair) -> ComparedFolder:
        """Match the operators of two directories, which ``measure`` compares.

        Raises:
            ToolError: A directory or the graph file cannot be used.
            DumpReadError: A directory cannot be read, or lacks the execution.
        """
        own = self._read(self.mine, pair.dumped, self.execution)
        other = self._read(self.theirs, pair.golden, self.golden_execution)
        if pair.is_united:
            matched, shown = [], []
            for dump, side, paths, execution in (
                (self.mine, own, pair.dumped_inner, self.execution),
                (self.theirs, other, pair.golden_inner, self.golden_execution),
            ):
                self.joined |= {*paths}
                inner = [self._read(dump, path, execution) for path in paths]
                whole = join_folders(side[0], [folder for folder, _ in inner])
                graphs = [known.graph for _, known in (side, *inner) if known.graph is not None]
                is_known = len(graphs) == len(inner) + 1
                matched.append((whole, unite_graphs(graphs, has_calls=False) if is_known else None))
                # for listing executions: branches and loops inlined at their operators
                shown.append((whole, side[1].with_graph(unite_graphs(graphs) if is_known else None)))
            return self._matched(pair.label, match_identities(*matched), *shown)
        if is_process(other[0].path):
            identities, tensors = pair_with_tree(own[0], own[1], other[0])
            return self._matched(pair.label, identities, own, (tensors, other[1]))
        dumped, mine = self._with_inner(self.mine, own, pair.dumped_inner, beside=other[0])
        golden, theirs = self._with_inner(self.theirs, other, pair.golden_inner, beside=own[0])
        if self.graph:
            identities = read_identities(self.graph, dumped.kind, golden.kind)
        else:
            identities = match_identities((dumped, mine.graph), (golden, theirs.graph))
        return self._matched(pair.label, identities, (dumped, mine), (golden, theirs))

    def _matched(self, label: str, identities: Identities, own: _Side, other: _Side) -> ComparedFolder:
        (dumped, mine), (golden, theirs) = own, other
        dumped, golden = with_forms(dumped, mine.graph), with_forms(golden, theirs.graph)
        self.list_facts(mine.graph, theirs.graph, identities)
        matched = match_executions(dumped, golden, identities)
        folder = ComparedFolder(label, dumped, golden, matched, mine, theirs)
        self.folders.append(folder)
        return folder

    @staticmethod
    def _read(dump: SurroundedDump, path: str, execution: int | None) -> _Side:
        known = dump.of(path)
        return read_folder(path, execution, known.directory), known

    def _with_inner(
        self, dump: SurroundedDump, side: _Side, paths: Iterable[str], *, beside: Folder
    ) -> _Side:
        """Return a directory joined with its branches and loops if the other side's compiled graph has them.

        ``paths`` are the directories of further graphs of the iteration, ``beside`` is the other side's
        directory.
        """
        folder, known = side
        are_inside = beside.kind.is_compiled and folder.kind is FolderKind.TENSORS
        if known.graph is None or folder.executions > 1 or not are_inside:
            return side
        bodies = {path: self._read(dump, path, None) for path in paths}
        graphs = {path: around.graph for path, (_, around) in bodies.items() if around.graph is not None}
        inner = graphs_run_by(known.graph, graphs)
        if not inner:
            return side
        self.joined |= inner.keys()
        whole = join_folders(folder, [bodies[path][0] for path in inner])
        return whole, known.with_graph(unite_graphs([known.graph, *inner.values()]))

    def measure(
        self, folders: Iterable[ComparedFolder], progress: Callable[[int], object] = lambda _: None
    ) -> None:
        """Compare the tensors of directories; an iterator of them is advanced while tensors are measured.

        After an error, earlier results remain. ``progress`` is called with the bytes of each operator.
        """
        labels: deque[str] = deque()

        def executions() -> Iterator[MeasuredExecution]:
            for folder in folders:
                self._measured[folder.label] = []
                kinds = folder.dumped.kind, folder.golden.kind
                for each in folder.matched.executions:
                    labels.append(folder.label)
                    weights, held, apart = folder.roundings(each)
                    yield MeasuredExecution(kinds, each, weights, held, apart, folder.reshaped(each))

        for tensors in measure_executions(executions(), executor=self.executor, progress=progress):
            self._measured[labels.popleft()].append(tensors)

    def add_measured(self, folder: ComparedFolder, tensors: list[tuple[TensorEvidence, ...]]) -> None:
        """Add two directories with the evidence on the tensors of each execution."""
        self.folders.append(folder)
        self._measured[folder.label] = tensors

    def find_again(self, folder: ComparedFolder, found: Mapping[str, str]) -> None:
        """Register the counterparts that re-execution found: examined names by golden names."""
        self.folders[self.folders.index(folder)] = replace(folder, found_again=found)

    def is_paired(self, folder: ComparedFolder) -> bool:
        """Return whether any tensor of a directory has a counterpart."""
        return any(each.counterparts for each in folder.matched.executions)

    def report(self) -> Report:
        """Return the verdicts on all operators that were measured."""
        report = Report(is_strict=self.is_strict)
        for folder in self.folders:
            if not self.graph:  # with one, fused operators would seem missing
                missing = missing_operators(folder)
                report.missing += map(folder.missing_place, missing)
                report.unreturned += map(folder.missing_place, filter(folder.is_unreturned, missing))
                report.unasked += map(folder.missing_place, unasked_operators(folder))
                report.unread_graphs |= dict.fromkeys(folder.unread_graphs)
            report.alone += (
                Finding(folder.mine.place(name, label=folder.label), Verdict.UNCHECKED, note=why)
                for name, why in folder.matched.by_graphs.alone.items()
            )
            report.unreadable += folder.matched.unreadable
            report.uneven += folder.matched.uneven
            report.add_networks(folder.dumped.path, folder.golden.path, folder.matched.by_graphs.networks)
        for run in self.runs():
            for finding in self._judge_run(run, report):
                report.add(finding)
        for folder in self.folders:
            for finding in absence_findings(folder):
                report.add(finding)
        # vendor: MindSpore 2.10 numbers operators of one scope and type differently in files and in graphs,
        # gives files of views the shape of the view's input, cuts elements, and does not write outputs that
        # nothing reads. The graph file shows all that; names alone do not.
        torn = {each.label for each in self.folders if each.is_torn and not each.is_ours}
        for place, each in enumerate(report.findings):
            if each.is_accused and each.place.label in torn:
                note = joined(_TORN, each.note)
                report.findings[place] = replace(each, verdict=Verdict.UNCHECKED, note=note)
        return report

    def _judge_run(self, folders: list[ComparedFolder], report: Report) -> Iterator[Finding]:
        """Yield the verdicts of one run as tables list them, judged in the order of execution."""
        by_label = {folder.label: folder for folder in folders}
        rank = folders[0].mine.rank
        is_continued = any(each.place.rank == rank and each.wrong(IO.OUTPUT) for each in report.findings)
        evidence = [each for folder in folders for each in self.evidence(folder)]
        # branches and loops stand before the operators of their bodies, which have the same times
        evidence = [*control_evidence(folders, evidence), *evidence]
        evidence.sort(key=lambda each: each.place.time)
        for place, row in enumerate(evidence):
            # the noise of the scale, where an operator quantises a tensor and golden does not
            is_quantising = row.place.op_type == "QuantizeLinear"
            found = by_label[row.place.label].quantised(row.place.order - 1) if is_quantising else None
            if found is not None:
                (numbers, integers, *how), clamp = found
                evidence[place] = replace(row, scale=scale_noise(numbers, how, integers.dtype, clamp))
        facts = {fact: folder for folder in folders for fact in self.facts(folder)}
        report.facts += (each for each in facts if each not in report.facts)
        limits, bits = self.limits, [(each.bits, each.unlike) for each in folders if each.bits]
        if bits and limits.distance is None:
            limits, report.widened = limits.of_bits(*min(bits))
        coarsest = coarsest_type(evidence, limits)
        others = [
            judge_tensor(each, limits, coarsest)
            for folder in folders
            for each in folder.other_results.values()
        ]
        judged = judge(
            evidence,
            limits,
            [*facts],
            place_of=lambda fact: facts[fact].place_of(fact),
            outputs_differ=any(each.is_bad for each in others),
            is_continued=is_continued,
        )
        for finding in judged:
            fed = (finding.source(tensor.slot) for tensor in finding.inputs if tensor.is_bad)
            names = (source.name for source in fed if source.kind is SourceKind.INPUT)
            report.inputs += (name for name in names if name not in report.inputs)
        named = {each.name for each in others}
        report.outputs += [each for each in _network_outputs(folders, judged) if each.name not in named]
        report.outputs += others
        for label, folder in by_label.items():
            listed = [each for each in judged if each.place.label == label]
            if folder.mine.graph is None:
                listed = _with_stranger(listed, Verdict.REPLACED if report.missing else Verdict.EXTRA)
            yield from (with_reach(each, judged, folder.mine.graph) for each in listed)

    def evidence(self, folder: ComparedFolder) -> Iterator[Finding]:
        """Yield the evidence on the operators of two directories that were measured, in order."""
        # an evaluation reads the weights that the training step of the same dump wrote
        is_trained = any(each.is_training for each in self.folders)
        is_inner = folder.mine.graph is not None and bool(folder.mine.graph.caller)
        is_evaluation = is_trained and not folder.is_training and not is_inner
        masking = masking_operators(folder.mine.graph)
        measured = zip(folder.matched.executions, self._measured.get(folder.label, ()), strict=False)
        uneven = {each.name: (each.dumped, each.golden) for each in folder.matched.uneven}
        written: dict[tuple[str, int], float] = {}  # distances of outputs
        for number, (execution, tensors) in enumerate(measured):
            known, read = folder.evidence(number, execution, tensors), []
            for each in known.tensors:
                source = known.source(each.slot)
                if each.io is IO.OUTPUT:
                    written[known.place.shown_name, each.slot] = each.distance
                elif each.distance > written.get((source.name, source.slot), math.inf):
                    each = replace(each, as_written=folder.is_as_written(execution, each.slot))  # noqa: PLW2901
                read.append(each)
            yield self.explain(
                replace(
                    known,
                    tensors=tuple(read),
                    passes=uneven.get(known.place.name),
                    is_state=known.is_state or is_trained,
                    is_evaluation=is_evaluation,
                    is_masking=known.place.shown_name in masking,
                )
            )

    def facts(self, folder: ComparedFolder) -> tuple[Fact, ...]:
        """Return the differences between the graphs of two directories."""
        found = self._facts.get((id(folder.mine.graph), id(folder.theirs.graph)), ())
        return found or tuple(map(_of_rewired, folder.matched.by_graphs.rewired))

    def list_facts(
        self, mine: OperatorGraph | None, golden: OperatorGraph | None, identities: Identities
    ) -> None:
        """List the differences of two graphs, once for all iterations that share them."""
        key = id(mine), id(golden)
        if mine is not None and golden is not None and mine != golden and key not in self._facts:
            sides = GraphSide(mine), GraphSide(golden)
            self._facts[key] = list_facts(*sides, identities.alignment or align(*sides))

    def runs(self) -> Iterator[list[ComparedFolder]]:
        """Yield the directories of each run; branches and loops belong to the run of their graph."""
        runs: dict[tuple[object, ...], list[ComparedFolder]] = {}
        for folder in self.folders:
            runs.setdefault(folder.run, []).append(folder)
        yield from runs.values()


def _of_rewired(found: RewiredInput) -> Fact:
    operator, slot, source, call, is_missing = found
    if is_missing:
        text = f"in golden input {slot} of {operator} is from this call"
        return Fact(FactKind.MISSING, call, text, golden=call, readers=(operator,))
    text = f"input {slot} is {source}, in golden {call}"
    return Fact(FactKind.WIRING, operator, text, readers=(operator,))


def pair_with_tree(dumped: Folder, known: FolderSurroundings, golden: Folder) -> tuple[Identities, Folder]:
    """Return the identities of a dump and of one process of a tree of msprobe, and the tree's tensors."""
    if is_process(dumped.path):
        return Identities(), golden
    if known.graph is None:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{dumped.path}: its dump has no readable graph file in rank_N/graphs, and scopes of operators"
            " pair them with modules of msprobe; dump again",
        )
    return pair_tree(dumped, known.graph, golden, read_parents(golden.path))


_Side = tuple[Folder, FolderSurroundings]
"""A directory of tensors with its graph, its execution and the dump that it lies in."""


def _with_stranger(findings: list[Finding], verdict: Verdict) -> list[Finding]:
    """Accuse the only operator that golden lacks before the first difference; for dumps without a graph."""
    first = next((place for place, each in enumerate(findings) if each.is_bad), None)
    if first is None or findings[first].is_accused or findings[first].own:
        return findings
    alone = [
        place
        for place, each in enumerate(findings[:first])
        if each.verdict is Verdict.UNCHECKED
        and not each.place.name.startswith(INSERTED_PREFIX)
        and not each.note
    ]
    if len(alone) == 1:
        note = f"golden lacks this operator, and {findings[first].place.name} is the first to differ"
        findings[alone[0]] = replace(findings[alone[0]], verdict=verdict, note=note)
    return findings


def _network_outputs(
    folders: Iterable[ComparedFolder], findings: Iterable[Finding]
) -> Iterator[TensorEvidence]:
    """Yield the verdicts on the network's outputs; of an operator in a loop, only from its last pass.

    Outputs that golden's configuration leaves out are skipped.
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
                    yield replace(each, name=each.name or name)


_TITLES: Final = (
    *("Directory", "Order", "Operator", "Type", "Pass", "Tensor", "Shape", "DataType", "GoldenDataType"),
    "Verdict",
    *SCORES,
    *("Distance", "Limit", "Note"),
    *("OperatorVerdict", "OperatorNote", "ScaledError", "Ulps", "Masked", "OwnError"),
    *("FullName", "Scope", "Source", "Iteration", "Rank", "Execution"),
)


def findings_table(report: Report) -> Iterator[Sequence[object]]:
    """Yield the titles of the csv file, and a row for each tensor, in the order of execution.

    Golden operators without files on the examined side follow at the end, a row for each.
    """
    yield _TITLES
    nothing = ("",) * len(SCORES)
    for number, finding in enumerate((*report.findings, *report.absent)):
        place = finding.place
        numbers = (place.pass_number, place.iteration, place.rank, place.execution)
        pass_number, *known = ("" if each is None else each for each in numbers)
        where = (place.full_name, place.scope, place.source, *known)
        if number >= len(report.findings):  # golden alone has it
            own = (place.label, "", place.name, place.op_type, "", "", "", "", "", finding.verdict)
            yield (*own, *nothing, "", "", "", finding.verdict, finding.note, "", "", "", "", *where)
            continue
        for tensor in finding.tensors:
            error = tensor.error
            again = (each for each in finding.own if tensor.io is IO.OUTPUT and each.slot == tensor.slot)
            yield (
                *(place.label, place.order, place.name, place.op_type, pass_number),
                *(f"{tensor.io}:{tensor.slot}", shape_text(tensor), tensor.dtype, tensor.golden_dtype),
                tensor.verdict,
                *(nothing if error is None else errors.scores(error)),
                "" if error is None else f"{error.distance:.6g}",
                "" if tensor.limit is None else f"{tensor.limit:.6g}",
                *(tensor_reason(finding, tensor), finding.verdict, finding.note),
                *(nothing if error is None else (f"{error.scaled:.6g}", f"{error.ulps:.6g}", error.masked)),
                next((f"{each.error.distance:.6g}" for each in again), ""),
                *where,
            )


def shape_text(tensor: TensorEvidence) -> str:
    """Return a shape in a word, ``8x3x224x224``."""
    return "x".join(map(str, tensor.shape))


def tensor_reason(finding: Finding, tensor: TensorEvidence | None) -> str:
    """Return the text of a tensor's last column: the reason of its verdict, "" if the numbers show it."""
    place = f"in place of {finding.replaces}" if finding.replaces else ""
    return joined(place, tensor.note if tensor is not None else "")


Value = tuple[str, SourceKind, str]
"""Directory of a value that no operator writes, kind and name of its source."""

_LOOP: Final = "Loop"


def control_evidence(folders: Sequence[ComparedFolder], evidence: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a row for each branch and loop of a run that has compared operators inside.

    A declared input is compared where the body reads it, in the first pass, else where another operator reads
    it; operators inside read the other ones. A result counts if a side ran more passes: operators inside that
    agree then say nothing of it.
    """
    values = dict(_values(evidence))
    called = any(each.mine.graph is not None and each.mine.graph.caller for each in folders)
    for folder in folders:
        graph, number = folder.mine.graph, len(folder.matched.executions)
        for caller in graph.operators.values() if graph is not None and called else ():
            bodies = [each for each in folders if _is_body(each, caller)]
            labels = {each.label for each in bodies}
            inside = [each for each in evidence if each.place.label in labels]
            if not inside:
                continue
            number += 1
            tensors = [*_inputs(folder, caller, bodies, inside, values)]
            uneven = next((each for body in bodies for each in body.matched.uneven), None)
            if uneven is not None:
                tensors += _results(
                    folder, caller, evidence, f"{uneven.dumped} passes, in golden {uneven.golden}"
                )
            time = min(each.place.time for each in inside)
            place = folder.mine.place(
                sanitize(caller.full_name), caller.op_type, label=folder.label, order=number, time=time
            )
            yield Finding(described(place, caller), tensors=tuple(tensors), reads=caller.inputs)


def _is_body(folder: ComparedFolder, caller: GraphOperator) -> bool:
    return folder.mine.graph is not None and folder.mine.graph.caller == caller.full_name


def _values(evidence: Sequence[Finding]) -> Iterator[tuple[Value, TensorEvidence]]:
    """Yield weights and inputs with their evidence; of several the last counts: the first run, its file."""
    for each in reversed(evidence):
        label = each.place.label
        for tensor in each.tensors:
            source = each.source(tensor.slot) if tensor.io is IO.INPUT else None
            if source is not None and source.kind in {*FIXED, SourceKind.INPUT}:
                yield (label, source.kind, source.name), tensor
        for tensor in each.tensors:
            if tensor.io is IO.OUTPUT:
                for kind in (SourceKind.WEIGHT, SourceKind.INPUT):  # a parameter that was dumped by itself
                    yield (label, kind, each.place.name), tensor


def _inputs(
    folder: ComparedFolder,
    caller: GraphOperator,
    bodies: Sequence[ComparedFolder],
    inside: Sequence[Finding],
    values: Mapping[Value, TensorEvidence],
) -> Iterator[TensorEvidence]:
    around, inner = folder.mine.graph, [each.mine.graph for each in bodies]
    assert around is not None, "it has the caller"
    writers = (around.operators.get(each.name) for each in caller.inputs)
    captured = {each.label for each in writers if each is not None} | {each.name for each in caller.inputs}
    # an If declares its condition alone, which no branch reads
    declared = [
        [name for name in graph.inputs if name not in captured] for graph in inner if graph is not None
    ]
    for slot, source in enumerate(caller.inputs[: max(map(len, declared)) or 1]):
        # a loop's first input is the number of passes, its body's the number of the pass
        names = {each[slot] for each in declared if slot < len(each) and (slot or caller.op_type != _LOOP)}
        found = _read_inside(bodies, inside, names) or values.get((folder.label, source.kind, source.name))
        if found is not None:
            is_weight = source.kind in FIXED
            name = "" if source.kind is SourceKind.OPERATOR else source.name
            yield replace(found, io=IO.INPUT, slot=slot, is_weight=is_weight, name=name)


def _read_inside(
    bodies: Sequence[ComparedFolder], inside: Sequence[Finding], names: Collection[str]
) -> TensorEvidence | None:
    """Return the evidence of an input of bodies, by its names, in the first pass: the nearest to golden's."""
    found = []
    for body in bodies:
        for each in inside:
            operator = body.mine.operator(each.place.name) if each.place.label == body.label else None
            if operator is not None and not each.place.pass_number:
                found += [
                    tensor
                    for tensor in each.inputs
                    if tensor.error and tensor.slot < len(operator.inputs)
                    if (source := operator.inputs[tensor.slot]).kind is SourceKind.INPUT
                    and source.name in names
                ]
    return min(found, key=lambda each: each.distance, default=None)


def _results(
    folder: ComparedFolder, caller: GraphOperator, evidence: Sequence[Finding], note: str
) -> Iterator[TensorEvidence]:
    """Yield the outputs of a branch or loop, as the operators behind it read them."""
    seen: set[int] = set()
    for each in evidence:
        for tensor in each.tensors if each.place.label == folder.label else ():
            source = each.source(tensor.slot)
            is_result = tensor.io is IO.INPUT and source.name == caller.full_name
            if is_result and source.kind is SourceKind.OPERATOR and source.slot not in seen and tensor.error:
                seen.add(source.slot)
                yield replace(tensor, io=IO.OUTPUT, slot=source.slot, is_weight=False, note=note)
