"""The verdicts on the operators of a directory whose statistics are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msdump.record import IO
from msdump.store.read.graphs.operator_graph import FIXED, OperatorGraph, SourceKind, ValueSource
from msdump.tools.compare.measured import counterparts, differences
from msdump.tools.compare.measured.counterparts import Counterparts
from msdump.tools.compare.measured.differences import RowComparison
from msdump.tools.compare.measured.pairs import RowPair
from msdump.tools.compare.measured.rows import Place, RowSide, StatisticRow
from msdump.tools.compare.pairing import dump_folder
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.pairing.dump_folders import FolderPair
from msdump.tools.compare.verdict.surroundings import (
    FolderSurroundings,
    SurroundedDump,
    described,
    with_graphs,
)
from msdump.tools.judge import reach
from msdump.tools.judge.evidence import OperatorEvidence, OperatorPlace, TensorEvidence
from msdump.tools.judge.findings import Report, Uneven
from msdump.tools.judge.judging import Judge
from msdump.tools.judge.limits import Limits
from msdump.tools.judge.verdicts import TensorVerdict

Passage = tuple[str, int]
"""One execution of an operator: its name as files spell it, and the number of its pass."""


@dataclass(frozen=True, slots=True)
class RowJudge:
    """Judges the operators of two dumps by their statistics.

    Attributes:
        limits: What counts as agreement.
        mine: What the examined dump tells around its directories.
        theirs: What the golden dump tells.
        report: The verdicts so far.
    """

    limits: Limits
    mine: SurroundedDump
    theirs: SurroundedDump
    report: Report

    def add(self, label: str, folders: FolderPair, pair: RowPair) -> None:
        """Add the verdicts on the operators of a pair of directories to the report.

        Args:
            label: Label of the two directories.
            folders: Their paths.
            pair: Their rows.
        """
        mine, theirs = self._around(folders, pair)
        judge, found = (
            Judge(self.limits),
            counterparts.find(pair.dumped, pair.golden, mine.graph, theirs.graph),
        )
        golden, passes = _by_passage(pair.golden), _passes(pair.dumped)
        findings = []
        for order, ((name, number), rows) in enumerate(_by_passage(pair.dumped).items(), 1):
            reads = mine.reads(name) or theirs.reads(name)
            left = {} if found.matched else golden.get((name, number), {})
            tensors = [*self._tensors(rows, left, pair, found, reads)]
            place = _place(rows, label, mine, order, passes[name])
            evidence = OperatorEvidence(place, tuple(tensors), replaces=found.replaces(name), reads=reads)
            findings.append(judge.finding(evidence))
        for finding in findings:
            self.report.add(reach.told(finding, findings, mine.graph))
        self._add_missing(label, (mine, theirs), pair, found)
        self.report.uneven += _uneven(pair.dumped, pair.golden, found)

    def _around(self, folders: FolderPair, pair: RowPair) -> tuple[FolderSurroundings, FolderSurroundings]:
        """Return what is known of two directories; tensors that were measured tell the graph that ran."""
        mine, theirs = self.mine.of(folders.dumped), self.theirs.of(folders.golden)
        if _has_branches(mine.graph) or _has_branches(theirs.graph):
            return mine, theirs  # what a compiled graph has inside has rows elsewhere on the other side
        return with_graphs(
            (_tensors_of(folders.dumped, pair.dumped), mine),
            (_tensors_of(folders.golden, pair.golden), theirs),
        )

    def _add_missing(
        self,
        label: str,
        sides: tuple[FolderSurroundings, FolderSurroundings],
        pair: RowPair,
        found: Counterparts,
    ) -> None:
        """Add the golden operators of which no row is a counterpart to the report, once for each pass."""
        mine, theirs = sides
        used = (
            {row.place[0] for row in found.rows.values()}
            if found.matched
            else {place[0] for place in pair.dumped.rows}
        )
        for (name, _), rows in _by_passage(pair.golden).items():
            if name not in used and found.lacks(next(iter(rows.values()))):
                place = _place(rows, label, theirs, 0, 1)
                is_unasked = mine.leaves_out(place, name)
                (self.report.unasked if is_unasked else self.report.missing).append(place)

    def _tensors(
        self,
        rows: Mapping[Place, StatisticRow],
        golden: Mapping[Place, StatisticRow],
        pair: RowPair,
        found: Counterparts,
        reads: Sequence[ValueSource],
    ) -> Iterator[TensorEvidence]:
        """Yield the tensors of an operator beside their counterparts, inputs first."""
        comparison = RowComparison(self.limits.statistics)
        tensors = [_evidence(comparison, row, pair, found) for row in rows.values()]
        tensors += _left_over(rows, golden)
        for tensor in sorted(tensors, key=lambda tensor: (tensor.io, tensor.slot)):
            source = reads[tensor.slot] if tensor.io is IO.INPUT and tensor.slot < len(reads) else None
            known = tensor
            if source is not None and source.kind is not SourceKind.OPERATOR:
                known = replace(tensor, name=source.name, is_weight=source.kind in FIXED)
            # what operators compute is as precise as the limits say
            yield known if known.is_weight else replace(known, is_rounded=False)


def _has_branches(graph: OperatorGraph | None) -> bool:
    return graph is not None and any(each.bodies for each in graph.operators.values())


def _tensors_of(path: str, side: RowSide) -> Folder | None:
    """Return the tensors that were measured for the rows of a directory, None where it has rows."""
    return dump_folder.read(path, execution=side.execution) if side.is_of_tensors else None


def _by_passage(side: RowSide) -> dict[Passage, dict[Place, StatisticRow]]:
    """Return the rows of each execution of an operator, in the order of execution."""
    passages: dict[Passage, dict[Place, StatisticRow]] = {}
    for place, row in side.rows.items():
        passages.setdefault((place[0], place[3]), {})[place] = row
    return passages


def _passes(side: RowSide) -> Counter[str]:
    """Return how often each operator ran."""
    return Counter(name for name, _ in _by_passage(side))


def _evidence(
    comparison: RowComparison, row: StatisticRow, pair: RowPair, found: Counterparts
) -> TensorEvidence:
    if row.place in pair.unreadable:
        fault = pair.unreadable[row.place]
        return replace(differences.alone(row), fault=TensorVerdict.UNREADABLE, note=fault)
    counterpart = found.rows.get(row.place)
    if counterpart is None:
        return differences.alone(row)
    is_other = row.place[:2] != counterpart.place[:2]
    is_handed_on = is_other and pair.dumped.is_compiled != pair.golden.is_compiled
    evidence = comparison.evidence(row, counterpart, is_handed_on=is_handed_on)
    note = found.note(row.place[0])
    return replace(evidence, note="; ".join(filter(None, (note, evidence.note)))) if note else evidence


def _left_over(
    rows: Mapping[Place, StatisticRow], counterparts: Mapping[Place, StatisticRow]
) -> Iterator[TensorEvidence]:
    """Yield the golden tensors of an operator that the examined side lacks."""
    for place, row in counterparts.items():
        if place not in rows:
            yield replace(differences.alone(row), note="mine has no such row")


def _place(
    rows: Mapping[Place, StatisticRow], label: str, around: FolderSurroundings, order: int, passes: int
) -> OperatorPlace:
    row = next(iter(rows.values()))
    name, _, _, number = row.place
    place = OperatorPlace(
        name,
        row.op_type,
        iteration=around.iteration,
        rank=around.rank,
        pass_number=number if passes > 1 else None,
        label=label,
        order=order,
        time=row.time,
    )
    return described(place, around.operator(name))


def _uneven(dumped: RowSide, golden: RowSide, found: Counterparts) -> Iterator[Uneven]:
    mine = _passes(dumped)
    theirs = {dump_folder.key(name): count for name, count in _passes(golden).items()}
    for name, count in mine.items():
        other = theirs.get(dump_folder.key(found.partner(name)), count)
        if count != other:
            yield Uneven(name, count, other)
