"""Files that one side of a comparison has lost: by graph and configuration they should be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msdump.device.tasks import INSERTED_PREFIX
from msdump.record import IO
from msdump.store import names
from msdump.store.read.graphs.operator_graph import GraphOperator, SourceKind
from msdump.tools.compare.pairing import numbering
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.verdict import unwritten
from msdump.tools.compare.verdict.matching import Matched, OperatorExecution
from msdump.tools.compare.verdict.surroundings import FolderSurroundings
from msdump.tools.judge.evidence import TensorEvidence
from msdump.tools.judge.verdicts import TensorVerdict

_ONE_BY_ONE: Final = frozenset({FolderKind.TENSORS, FolderKind.COMPILED})
"""Kinds of the directories that have a file for each tensor."""

_Slot = tuple[IO, int]


@dataclass(frozen=True)
class _Side:
    """One of the two directories.

    Attributes:
        whose: Its side in words.
        folder: The directory.
        known: What its dump tells around it.
    """

    whose: str
    folder: Folder
    known: FolderSurroundings

    @property
    def dumped(self) -> tuple[Folder, FolderSurroundings]:
        """The directory, and what its dump tells around it."""
        return self.folder, self.known

    def lost(self, slot: _Slot) -> TensorEvidence:
        """Return a tensor whose file is not there."""
        note = f"{self.whose} has no file of it, and should have"
        return TensorEvidence(*slot, fault=TensorVerdict.UNREADABLE, note=note)

    @cached_property
    def sides(self) -> frozenset[IO]:
        """Whether inputs, outputs or both were dumped."""
        dumped = frozenset(file.io for file in self.folder.files if file.io is not None)
        return self.known.expectation.sides or dumped

    def should_have(self, name: str, slot: _Slot) -> bool:
        """Tell whether a tensor of an operator should have a file as others of its kind have.

        vendor: MindSpore dumps no inputs from outside of a graph that is a part of a larger one.
        """
        operator = self.known.operator(name)
        if slot[0] not in self.sides or operator is None:
            return slot[0] in self.sides
        if slot[0] is IO.OUTPUT:
            return slot[1] < len(operator.outputs)
        kind = _kind(operator, slot[1])
        is_dumped = kind in self._read_kinds or (name, *slot) in self.known.expectation.elsewhere
        return is_dumped and kind is not SourceKind.ABSENT

    @cached_property
    def _read_kinds(self) -> frozenset[SourceKind]:
        """What gives the inputs that were dumped."""
        files = (file for file in self.folder.files if file.io is IO.INPUT)
        return frozenset(_kind(self.known.operator(file.op_name), file.slot) for file in files)

    def run(self, name: str, pass_number: int) -> dict[_Slot, NamedFile]:
        """Return the files of an operator in one pass of a loop; what was written once is read in all."""
        files = self.folder.operators.get(name, ())
        counts: Counter[_Slot] = Counter((each.io, each.slot) for each in files if each.io is IO.INPUT)
        return {
            (each.io, each.slot): each
            for each in files
            if each.io and (each.pass_number == pass_number or counts[each.io, each.slot] == 1)
        }


class Losses:
    """What either of two directories lacks that the other one has, and should have as well."""

    def __init__(
        self,
        matched: Matched,
        mine: tuple[Folder, FolderSurroundings],
        golden: tuple[Folder, FolderSurroundings],
    ) -> None:
        """Look at what was matched.

        Args:
            matched: The operators that belong together.
            mine: The directory that is examined, and what is known around it.
            golden: The one that it is compared with.
        """
        self._matched = matched
        self._mine, self._golden = _Side("mine", *mine), _Side("golden", *golden)
        self._is_told = {mine[0].kind, golden[0].kind} <= _ONE_BY_ONE

    def of(self, execution: OperatorExecution) -> dict[_Slot, TensorEvidence]:
        """Return the tensors of an execution whose files either side has lost."""
        if execution.name in self._lost_by_golden:
            return {slot: self._golden.lost(slot) for slot in self._lost_by_golden[execution.name]}
        partner = self._partners.get(execution.name)
        if not self._is_told or partner is None or execution.replaces:
            return {}
        pass_number = execution.files[-1].pass_number
        own, other = self._mine.run(execution.name, pass_number), self._golden.run(partner, pass_number)
        if not any(each.pass_number == pass_number for each in other.values()):
            is_lost = partner not in self._golden.folder.operators and self._has_lost(self._golden, partner)
            return {slot: self._golden.lost(slot) for slot in own} if is_lost else {}  # or it ran less often
        operators = self._mine.known.operator(execution.name), self._golden.known.operator(partner)
        if not _are_alike(*operators, execution.files[-1], next(iter(other.values()))):
            return {}
        paired = execution.counterparts
        alone = own.keys() - other.keys() - paired.keys()
        golden_alone = other.keys() - own.keys() - {place[1:] for place in paired.values()}
        absent = dict.fromkeys(alone, (self._golden, partner))
        absent |= dict.fromkeys(golden_alone, (self._mine, execution.name))
        return {
            slot: side.lost(slot)
            for slot, (side, name) in sorted(absent.items(), key=lambda item: item[0])
            if side.should_have(name, slot)
        }

    @cached_property
    def whole(self) -> Mapping[str, tuple[TensorEvidence, ...]]:
        """The tensors of golden operators whose counterparts in the examined side lack all files."""
        own_names = {golden: own for own, golden in self._partners.items()}
        unwritten_slots = unwritten.lost(self._mine.dumped, self._golden.dumped, own_names)
        lost = {name: tuple(map(self._mine.lost, slots)) for name, slots in unwritten_slots.items()}
        for name in self._golden.folder.operators if self._is_told else ():
            own = own_names.get(name)
            if (
                own is not None
                and own not in self._replacing
                and own not in self._mine.folder.operators
                and self._has_lost(self._mine, own)
            ):
                lost[name] = tuple(self._mine.lost(slot) for slot in sorted(self._golden.run(name, 0)))
        return lost

    @cached_property
    def _lost_by_golden(self) -> Mapping[str, tuple[_Slot, ...]]:
        """The tensors of operators of the examined side whose files golden has lost."""
        return unwritten.lost(self._golden.dumped, self._mine.dumped, self._partners)

    @cached_property
    def _partners(self) -> Mapping[str, str]:
        """Golden operators by those of the examined side, as files call them."""
        if self._matched.by_graphs is not None:
            return self._matched.by_graphs.partners
        return {name: name for side in (self._mine, self._golden) for name in side.folder.operators}

    @property
    def _replacing(self) -> Collection[str]:
        """Operators of the examined side that stand in the place of others."""
        return () if self._matched.by_graphs is None else self._matched.by_graphs.replaced

    def _has_lost(self, side: _Side, name: str) -> bool:
        """Tell whether a side should have files of an operator of which it has none."""
        operator = side.known.operator(name)
        graph = side.known.graph
        if operator is None or graph is None or name.startswith(INSERTED_PREFIX):
            return False
        if numbering.may_have_files(operator.full_name, graph, side.folder):
            return False
        expectation = side.known.expectation
        if expectation.selects_all is None and self._holds_most(side):
            return True
        return bool(expectation.selects_all) or expectation.has_chosen(operator.full_name, operator.op_type)

    def _holds_most(self, side: _Side) -> bool:
        """Tell whether a directory has most of the operators that the other one has."""
        pairs = [pair for pair in self._partners.items() if _has_files(self._other(side), pair)]
        return 2 * sum(_has_files(side, pair) for pair in pairs) >= len(pairs)

    def _other(self, side: _Side) -> _Side:
        return self._mine if side is self._golden else self._golden


def _has_files(side: _Side, pair: tuple[str, str]) -> bool:
    return pair[side.whose == "golden"] in side.folder.operators


def _are_alike(
    mine: GraphOperator | None, golden: GraphOperator | None, file: NamedFile, other: NamedFile
) -> bool:
    """Tell whether the inputs and outputs of two operators have the same meanings."""
    if file.op_type == other.op_type:
        return file.op_type != names.PARAMETER
    if mine is None or golden is None:
        return False
    return len(mine.inputs) == len(golden.inputs) and len(mine.outputs) == len(golden.outputs)


def _kind(operator: GraphOperator | None, slot: int) -> SourceKind:
    """Return what gives an operator an input; a weight counts as an input of the graph."""
    inputs = () if operator is None else operator.inputs
    kind = inputs[slot].kind if slot < len(inputs) else SourceKind.ABSENT
    return SourceKind.INPUT if kind is SourceKind.WEIGHT else kind
