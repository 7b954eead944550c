"""Two directories of operators: evidence on each execution, and golden operators without files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np

from msdump import dtypes
from msdump.device import INSERTED_PREFIX, is_settled, is_view
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.graph import is_random, written_inputs
from msdump.judge import SHORTER, Fact, FactKind, host_arrays, is_rounding, measure
from msdump.judge.compare.executions import Matched, OperatorExecution, shortest_apart
from msdump.judge.compare.surroundings import (
    LEFTOVER,
    FolderSurroundings,
    behind,
    described,
    in_its_graph,
)
from msdump.judge.pair import CLAMPS, is_quantised, lost_clamps
from msdump.judge.verdict import (
    PACKED,
    Finding,
    OperatorPlace,
    ScaledOperator,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    are_golden,
    coarser,
    kind,
    packed_fault,
    unlike_numbers,
    unlike_scales,
)
from msdump.read import (
    ABSENT,
    FIXED,
    Folder,
    FolderKind,
    GraphOperator,
    Record,
    SourceKind,
    ValueSource,
    parse_attributes,
)
from msdump.record import IO
from msdump.store import names

_ONE_BY_ONE: Final = frozenset({FolderKind.TENSORS, FolderKind.COMPILED})
"""Kinds of the directories that have a file for each tensor."""

_Slot = tuple[IO, int]

_BYTE: Final = 8  # bits

_QUANTISING: Final = ((IO.INPUT, 0), (IO.OUTPUT, 0), (IO.INPUT, 1), (IO.INPUT, 2))
"""What QuantizeLinear reads, writes, and takes for scale and zero point."""


@dataclass(frozen=True)
class _Side:
    """One of the two directories: its name in notes, its files, and the dump around it."""

    whose: str
    folder: Folder
    known: FolderSurroundings

    def lost(self, slot: _Slot) -> TensorEvidence:
        """Return the evidence of a tensor that has no file and should have one."""
        note = f"its file is missing in {self.whose}"
        return TensorEvidence(*slot, verdict=TensorVerdict.UNREADABLE, note=note)

    @cached_property
    def sides(self) -> frozenset[IO]:
        return self.known.expectation.sides or frozenset(each.io for each in self.folder.tensors)

    def should_have(self, name: str, slot: _Slot) -> bool:
        """Return whether a tensor of an operator should have a file, as other tensors of its kind have one.

        vendor: MindSpore does not dump inputs that come from outside of a graph inside a larger one, and of
        constant arguments the ones that its kernels need.
        """
        operator = self.known.operator(name)
        if slot[0] not in self.sides or operator is None:
            return slot[0] in self.sides
        if slot[0] is IO.OUTPUT:
            return slot[1] < len(operator.outputs)
        kind = _kind(operator, slot[1])
        is_dumped = kind in self._read_kinds or (name, *slot) in self.known.expectation.elsewhere
        is_argument = kind is SourceKind.CONSTANT and not self.known.is_ours
        return is_dumped and kind is not SourceKind.ABSENT and not is_argument

    @cached_property
    def _read_kinds(self) -> frozenset[SourceKind]:
        """Kinds of the sources of dumped inputs: operators, weights, inputs of the network."""
        inputs = (each for each in self.folder.tensors if each.io is IO.INPUT)
        return frozenset(_kind(self.known.operator(each.op_name), each.slot) for each in inputs)

    def run(self, name: str, pass_number: int) -> dict[_Slot, Record]:
        """Return the tensors of an operator in one pass of a loop, with inputs dumped once for all passes."""
        tensors = self.folder.operators.get(name, ())
        counts: Counter[_Slot] = Counter((each.io, each.slot) for each in tensors if each.io is IO.INPUT)
        return {
            (each.io, each.slot): each
            for each in tensors
            if each.pass_number == pass_number or counts[each.io, each.slot] == 1
        }


class Losses:
    """Finds files that one of two directories has lost, by the files of the other one."""

    def __init__(self, folder: ComparedFolder) -> None:
        """Take the matched operators of two directories."""
        self._by_graphs = folder.matched.by_graphs
        self._mine = _Side("mine", folder.dumped, folder.mine)
        self._golden = _Side("golden", folder.golden, folder.theirs)
        self._lists_all = {folder.dumped.kind, folder.golden.kind} <= _ONE_BY_ONE
        self._lists_all &= not folder.dumped.is_measured  # a row that is missing is no lost file

    def of(self, execution: OperatorExecution) -> dict[_Slot, TensorEvidence]:
        """Return evidence on the tensors of an execution with a file that either side has lost."""
        partner = self._partners.get(execution.name)
        if not self._lists_all or partner is None or execution.replaces:
            return {}
        pass_number = execution.tensors[-1].pass_number
        own, other = self._mine.run(execution.name, pass_number), self._golden.run(partner, pass_number)
        if not any(each.pass_number == pass_number for each in other.values()):
            is_lost = partner not in self._golden.folder.operators and self._has_lost(self._golden, partner)
            return {slot: self._golden.lost(slot) for slot in own} if is_lost else {}  # it ran less often
        operators = self._mine.known.operator(execution.name), self._golden.known.operator(partner)
        if not _are_alike(*operators, execution.op_type, next(iter(other.values())).op_type):
            return {}
        paired = execution.counterparts
        alone = own.keys() - other.keys() - paired.keys()
        golden_alone = other.keys() - own.keys() - {(each.io, each.slot) for each in paired.values()}
        absent = dict.fromkeys(alone, (self._golden, partner))
        absent |= dict.fromkeys(golden_alone, (self._mine, execution.name))
        return {
            slot: side.lost(slot)
            for slot, (side, name) in sorted(absent.items(), key=lambda item: item[0])
            if side.should_have(name, slot)
        }

    @cached_property
    def whole(self) -> Mapping[str, tuple[TensorEvidence, ...]]:
        """Evidence on the tensors of golden operators of which the examined side has lost all files."""
        own_names = {golden: own for own, golden in self._partners.items()}
        lost: dict[str, tuple[TensorEvidence, ...]] = {}
        for name in self._golden.folder.operators if self._lists_all else ():
            own = own_names.get(name)
            if (
                own is not None
                and own not in self._by_graphs.replaced
                and own not in self._mine.folder.operators
                and self._has_lost(self._mine, own)
            ):
                lost[name] = tuple(self._mine.lost(slot) for slot in sorted(self._golden.run(name, 0)))
        return lost

    @cached_property
    def _partners(self) -> Mapping[str, str]:
        if self._by_graphs.partners is not None:
            return self._by_graphs.partners
        return {name: name for side in (self._mine, self._golden) for name in side.folder.operators}

    def _has_lost(self, side: _Side, name: str) -> bool:
        """Return whether an operator without files on a side should have some."""
        operator, graph = side.known.operator(name), side.known.graph
        if operator is None or graph is None or name.startswith(INSERTED_PREFIX):
            return False
        is_expected = side.known.expectation.expects(operator.full_name, operator.op_type)
        if is_expected is not None:
            return is_expected
        # without a configuration: whether it has most of the operators that the other side has
        mine, golden = self._mine.folder.operators, self._golden.folder.operators
        there = [(own in mine, other in golden) for own, other in self._partners.items()]
        beside = [pair[side is self._golden] for pair in there if pair[side is self._mine]]
        return 2 * sum(beside) >= len(beside)


def _are_alike(mine: GraphOperator | None, golden: GraphOperator | None, op_type: str, other: str) -> bool:
    """Return whether the inputs and outputs of two operators correspond to each other."""
    if op_type == other:
        return op_type != names.PARAMETER
    if mine is None or golden is None:
        return False
    return len(mine.inputs) == len(golden.inputs) and len(mine.outputs) == len(golden.outputs)


def _kind(operator: GraphOperator | None, slot: int) -> SourceKind:
    inputs = () if operator is None else operator.inputs
    kind = inputs[slot].kind if slot < len(inputs) else SourceKind.ABSENT
    return SourceKind.INPUT if kind is SourceKind.WEIGHT else kind


class _Operator(NamedTuple):
    """An operator of an execution: in both graphs, and the sources of its inputs there."""

    name: str
    mine: GraphOperator | None
    theirs: GraphOperator | None
    reads: tuple[ValueSource, ...]
    golden_reads: tuple[ValueSource, ...]


@dataclass(frozen=True)
class ComparedFolder:
    """Two directories, and the executions of operators in them."""

    label: str  # label of the pair, "" if there is only one
    dumped: Folder  # the directory that is examined
    golden: Folder  # the directory that it is compared with
    matched: Matched  # the executions, each with the places of its counterparts
    mine: FolderSurroundings  # surroundings of the examined directory
    theirs: FolderSurroundings  # surroundings of the golden directory
    # examined operators by the names of their golden counterparts, for pairs that only re-execution found:
    # both are made of the same operators of the model
    found_again: Mapping[str, str] = field(default_factory=dict)
    _operators: dict[tuple[str, int | None], _Operator] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def run(self) -> tuple[object, ...]:
        """Key of the run of the network, which the directories of its branches and loops share."""
        if self.mine.iteration is None or self.mine.graph is None:
            return (self.label,)
        return (self.mine.rank, self.mine.iteration)

    @property
    def is_torn(self) -> bool:
        """Whether a graph file is cut off, so that missing operators cannot be recognised."""
        return self.mine.is_graph_torn or self.theirs.is_graph_torn

    @property
    def unread_graphs(self) -> tuple[str, ...]:
        """Sides of dumped operators without a graph: MINE, GOLDEN."""
        sides = (("MINE", self.dumped, self.mine), ("GOLDEN", self.golden, self.theirs))
        return tuple(
            name
            for name, folder, known in sides
            if known.graph is None and folder.kind is not FolderKind.GOLDEN
        )

    @property
    def is_ours(self) -> bool:
        """Whether msdump made both dumps, so that operators have the same names in files and graphs."""
        return self.mine.is_ours and self.theirs.is_ours

    @cached_property
    def is_training(self) -> bool:
        """Whether the examined graph writes weights, or golden's if the examined graph is not known."""
        graph = self.mine.graph or self.theirs.graph
        return graph is not None and any(written_inputs(each.op_type) for each in graph.operators.values())

    def weights(self, execution: OperatorExecution) -> frozenset[int]:
        """Return the numbers of an execution's inputs that are weights or constants.

        In the later passes of a loop, inputs that vary are excluded: only the first value may be a constant.
        """
        sides = self._operator(execution)[-2:]
        is_later = execution.number not in {None, 0}
        weights = set()
        for slot, sources in enumerate(zip_longest(*sides, fillvalue=ABSENT)):
            known = [each for each in sources if each.kind is not SourceKind.ABSENT]
            if known and all(each.kind in FIXED and not (is_later and each.varies) for each in known):
                weights.add(slot)
            # a branch or loop may pass a weight on to its body: the row of the branch or loop shows it
            if not known and sources[0].name and not is_later:
                weights.add(slot)
        return frozenset(weights)

    def roundings(
        self, execution: OperatorExecution
    ) -> tuple[frozenset[int], frozenset[str], tuple[str, ...]]:
        """Return the inputs that are weights, and the types to which an execution's tensors may be rounded.

        Devices hold its tensors in these types (all short ones if unknown). If the sides compute in different
        types, the shortest of each side follow.
        """
        _, mine, theirs, *_ = self._operator(execution)
        weights = self.weights(execution)
        if mine is None or not mine.held:
            return weights, frozenset(SHORTER), ()
        held = mine.held | (frozenset() if theirs is None else theirs.held)
        return weights, held, shortest_apart(_float_types(mine), _float_types(theirs))

    def reshaped(self, execution: OperatorExecution) -> frozenset[tuple[IO, int]]:
        """Return the inputs and outputs of an execution that a view may have left in the shape of its input.

        vendor: MindSpore's files of a view's output, and of the inputs that read it, have this shape, which
        the graph file shows only where it is static. A view may hand on the tensor before it is quantised,
        and a group may compute in another shape than golden's.
        """
        partner = execution.counterparts.get((IO.OUTPUT, 0))
        if execution.op_type == "DequantizeLinear" and partner and partner.op_type != execution.op_type:
            return frozenset({(IO.OUTPUT, 0)})
        partners = self.matched.by_graphs.partners
        if self.is_ours and (partners is None or execution.name in partners):
            return frozenset()
        views = {(IO.OUTPUT, 0)} if is_view(execution.op_type) and not self.is_ours else set()
        *_, reads, golden_reads = self._operator(execution)
        for side, sources in ((self.mine, reads), (self.theirs, golden_reads)):
            for slot, source in enumerate(sources):
                known = side.operator(source.name) if source.kind is SourceKind.OPERATOR else None
                if known is not None and is_view(known.op_type):
                    views.add((IO.INPUT, slot))
        return frozenset(views)

    def evidence(
        self, number: int, execution: OperatorExecution, tensors: Sequence[TensorEvidence]
    ) -> Finding:
        """Return all evidence on an execution (numbered from 0) and on its tensors."""
        name, mine, theirs, reads, golden_reads = self._operator(execution)
        # constant inputs that golden's operators compute from other constants
        folded = [
            slot
            for slot, (own, golden) in enumerate(zip(reads, golden_reads, strict=False))
            if own.kind in FIXED and golden.kind is SourceKind.OPERATOR and self.theirs.is_fixed(golden.name)
        ]
        # a difference that other files of the tensor show says more than a lost file
        found, known = dict(self.losses.of(execution)), []
        for each in tensors:
            if (each.io, each.slot) not in found or (each.error and not each.error.is_same):
                found[each.io, each.slot] = each
        for _, each in sorted(found.items(), key=lambda item: item[0]):
            source, tensor = ABSENT, each
            if each.io is IO.INPUT:
                source = reads[each.slot] if each.slot < len(reads) else ABSENT
                is_outer = source.kind is SourceKind.ABSENT and bool(source.name)
                is_named = source.kind not in {SourceKind.OPERATOR, SourceKind.ABSENT}
                tensor = replace(
                    each,
                    name=source.name if is_named else "",
                    is_weight=each.is_weight and not is_outer,
                    is_folded=each.slot in folded,
                )
            known.append(self._as_checked(tensor, execution, source))
        return Finding(
            self._place(number, execution),
            tensors=tuple(known),
            note=execution.note if self.matched.by_graphs.partners is None else "",
            replaces=execution.replaces,
            reads=reads,
            arithmetic=_arithmetic(mine, theirs, tensors),
            is_state=self.is_training,
            is_random=_is_random(mine, theirs),
            wiring="" if are_golden(known) else self.scales.get(name) or self._packed_fault(execution, mine),
            returned=frozenset([each.slot for each in self.returned if each.name == name]),
            unread=self.mine.unread(mine) | self._leftover(execution),
        )

    @cached_property
    def unlike(self) -> str:
        """Why equal integers of both sides are other real numbers; "" if they may be the same ones."""
        sides = (self.mine, self.theirs)
        if any(each.graph is None for each in sides):
            return ""
        return unlike_numbers([*map(is_quantised, self._types)], [{*_weight_scales(each)} for each in sides])

    @cached_property
    def bits(self) -> int | None:
        """Fewest bits of quantised numbers if these are other ones on each side; None otherwise."""
        if not self.unlike:
            return None
        graphs = [each.graph for each in (self.mine, self.theirs) if each.graph is not None]
        operators = [(each, graph) for graph in graphs for each in graph.operators.values()]
        packed = (parse_attributes(each.attributes).get("bits") for each, _ in operators if each.attributes)
        read = (graph.form_of(each.inputs[0]).dtype for each, graph in operators if _dequantises(each))
        found = [each for each in (*packed, *(dtype.strip("uint") for dtype in read)) if each]
        return min([_BYTE, *(int(each) for each in found if str(each).isdecimal())])

    @cached_property
    def _types(self) -> tuple[frozenset[str], frozenset[str]]:
        """Types of the operators of both graphs."""
        mine, golden = (
            frozenset(each.op_type for each in ({} if graph is None else graph.operators).values())
            for graph in (self.mine.graph, self.theirs.graph)
        )
        return mine, golden

    @cached_property
    def clamps(self) -> frozenset[str]:
        """Types of golden's clamps (Relu, Clip) that the examined side has as ranges of its integers."""
        return lost_clamps(*reversed(self._types))

    @cached_property
    def scales(self) -> Mapping[str, str]:
        """Sentences on operators with another scale than the reader or writer of the integers, by name."""
        graph, found = self.mine.graph, dict[str, str]()
        for each in () if graph is None else unlike_scales(map(self._scaled, graph.operators.values())):
            execution = self._executions.get(names.sanitize(each.writer[0]))
            written = None if execution is None else execution.tensor(IO.OUTPUT, 0)
            try:
                integers = np.zeros(0, np.uint8) if written is None else written.on_host()
            except (DumpReadError, FormatError):  # said where the tensors themselves are compared
                continue
            numbers = (integers.astype(np.float64) - each.zero) * each.scales[1]
            name, text = each.at_fault(numbers, integers.dtype)
            found[name] = text
        return found

    def _packed_fault(self, execution: OperatorExecution, operator: GraphOperator | None) -> str:
        """Return a sentence on a weight of few bits that is not golden's rounded to them, "" for none."""
        if operator is None or operator.op_type != PACKED or self.bits is None:
            return ""
        partner = execution.counterparts.get((IO.OUTPUT, 0))
        found = () if partner is None else self.golden.operators.get(partner.name.op_name, ())
        weights = [each for each in found if (each.io, each.slot) == (IO.INPUT, 1)]
        read = [execution.tensor(IO.INPUT, slot) for slot in range(1, len(operator.inputs))]
        if not weights or None in read[:2]:
            return ""
        try:
            own = [each.on_host() for each in read[:3] if each is not None]
            return packed_fault(own, parse_attributes(operator.attributes), weights[0].on_host())
        except (DumpReadError, FormatError):  # said where the tensors themselves are compared
            return ""

    def _scaled(self, operator: GraphOperator) -> ScaledOperator:
        execution = self._executions.get(names.sanitize(operator.full_name))

        def constant(slot: int) -> np.ndarray | None:
            tensor = None if execution is None else execution.tensor(IO.INPUT, slot)
            try:
                return None if tensor is None else tensor.on_host()
            except (DumpReadError, FormatError):  # said where the tensors themselves are compared
                return None

        name = operator.full_name
        read = [
            (each.name, each.slot) if each.kind is SourceKind.OPERATOR else None for each in operator.inputs
        ]
        written = [(name, slot) for slot in range(len(operator.outputs))]
        return ScaledOperator(name, name, operator.op_type, read, written, constant)

    def quantised(self, number: int) -> tuple[tuple[np.ndarray, ...], str] | None:
        """Return the arrays of an operator that quantises a tensor, if golden computes without quantising.

        The arrays are input, integers, scale and, where it has one, zero point. Beside them stands the type
        of the golden operator that clamps as the integers' range does, "" for none.
        """
        graph, golden = self.mine.graph, self.theirs.graph
        if graph is None or golden is None or is_quantised(self._types[1]):
            return None
        execution = self.matched.executions[number]
        operands = [execution.tensor(io, slot) for io, slot in _QUANTISING]
        if None in operands[:3]:
            return None
        name, clamp = self._operator(execution).name, ""
        for reader in graph.used_by(name):
            if reader.inputs[0].name == name:
                partner = golden.find(self.matched.by_graphs.partner(reader.full_name))
                clamp = partner.op_type if partner and partner.op_type in CLAMPS else clamp
        try:
            return tuple(each.on_host() for each in operands if each is not None), clamp
        except (DumpReadError, FormatError):
            return None

    @cached_property
    def returned(self) -> tuple[ValueSource, ...]:
        """The outputs of operators that the examined network returns."""
        return self.mine.returned(self._casts[0])

    @cached_property
    def other_results(self) -> Mapping[str, TensorEvidence]:
        """Outputs of the network that another operator writes in golden, by golden's operator."""
        found = {}
        own, other = self.returned, self.theirs.returned(self._casts[1])
        for mine, golden in zip(own, other, strict=True) if len(own) == len(other) else ():
            key = IO.OUTPUT, mine.slot
            execution = self._executions.get(names.sanitize(mine.name))
            written = self.golden.operators.get(names.sanitize(golden.name), ())
            theirs = [each for each in written if (each.io, each.slot) == (IO.OUTPUT, golden.slot)]
            array = None if execution is None else execution.tensor(*key)
            known = None if execution is None else execution.counterparts.get(key)
            if array is None or known is None or not theirs or known.op_name == theirs[-1].op_name:
                continue
            try:
                arrays = host_arrays(array, theirs[-1])
            except (DumpReadError, FormatError, ToolError):  # said where the tensors themselves are compared
                continue
            dtype, golden_dtype = (dtypes.from_numpy(each.dtype).name for each in arrays)
            error = measure(*arrays)
            found[golden.name] = TensorEvidence(
                *key, arrays[0].shape, dtype, golden_dtype, error, name=mine.name
            )
        return found

    def is_as_written(self, execution: OperatorExecution, slot: int) -> bool | None:
        """Return whether an input has the elements that its producer wrote, up to rounding to a held type."""
        operator = self._operator(execution).mine
        reads = self.mine.reads(operator, frozenset())
        source = reads[slot] if slot < len(reads) else ABSENT
        writer = self._executions.get(names.sanitize(source.name))
        if source.kind is not SourceKind.OPERATOR or writer is None:
            return None
        read = execution.tensor(IO.INPUT, slot)
        written = writer.tensor(IO.OUTPUT, source.slot)
        if read is None or written is None:
            return None
        try:
            arrays = host_arrays(read, written)
        except (DumpReadError, FormatError, ToolError):
            return None
        held = frozenset(SHORTER) if operator is None or not operator.held else operator.held
        return measure(*arrays).is_same or is_rounding(*arrays, held)

    def _leftover(self, execution: OperatorExecution) -> frozenset[int]:
        """Return the outputs that a kernel of either side does not write: files have old bytes of memory."""
        # msdump's own kernels, recognised by names of the model's nodes, write all outputs
        leftover, (_, *sides, _, _) = LEFTOVER.get(execution.op_type), self._operator(execution)
        is_vendors = leftover and any(side is not None and not side.onnx_names for side in sides)
        return leftover if leftover and is_vendors else frozenset()

    def _as_checked(
        self, tensor: TensorEvidence, execution: OperatorExecution, source: ValueSource
    ) -> TensorEvidence:
        """Return a tensor, as unchecked if the kernel does not write it, or integers are other numbers."""
        is_same = tensor.error is not None and tensor.error.is_same
        if self.unlike and not is_same:
            is_constant = tensor.is_weight and (
                execution.op_type == names.PARAMETER or is_quantised((execution.op_type,))
            )
            if is_constant or {kind(tensor.dtype), kind(tensor.golden_dtype)} == {"int", "float"}:
                return replace(tensor, error=None, verdict=TensorVerdict.UNCHECKED, note=self.unlike)
        writer, slot = execution, tensor.slot
        if tensor.io is IO.INPUT:
            found = self._executions.get(names.sanitize(source.name))
            if source.kind is not SourceKind.OPERATOR or found is None:
                return tensor
            writer, slot = found, source.slot
        if slot not in self._leftover(writer):
            return tensor
        return replace(
            tensor, error=None, verdict=TensorVerdict.UNCHECKED, note="the kernel does not write it"
        )

    @cached_property
    def _executions(self) -> Mapping[str, OperatorExecution]:
        return {execution.name: execution for execution in self.matched.executions}

    @cached_property
    def losses(self) -> Losses:
        """Files that either side has lost."""
        return Losses(self)

    def missing_place(self, name: str) -> OperatorPlace:
        """Return the place of a golden operator that the examined side lacks."""
        is_tree = bool(self.matched.by_graphs.rewired)
        place = self.mine.place(names.sanitize(name), full_name=name if is_tree else "", label=self.label)
        return described(place, self.theirs.operator(name))

    def place_of(self, fact: Fact) -> OperatorPlace:
        """Return the place of an operator that has no verdict of its own."""
        if fact.kind is FactKind.MISSING:
            return self.missing_place(fact.operator)
        place = replace(self.missing_place(fact.operator), op_type=fact.op_type)
        return described(place, self.mine.operator(fact.operator))

    def is_asked(self, finding: Finding, output: TensorEvidence) -> bool:
        """Return whether an output was compared, or golden's configuration includes it."""
        if output.verdict is not TensorVerdict.UNCHECKED or output.error is not None:
            return True
        sides, place = self.theirs.expectation.sides, finding.place
        return (sides is None or IO.OUTPUT in sides) and not self.theirs.leaves_out(place, place.name)

    def is_unreturned(self, name: str) -> bool:
        """Return whether golden's network returns an output of an operator that was not compared."""
        operator = self.theirs.operator(name)
        if operator is None or operator.full_name in self.other_results:
            return False
        return any(each.name == operator.full_name for each in self.theirs.returned(self._casts[1]))

    def _place(self, number: int, execution: OperatorExecution) -> OperatorPlace:
        place = self.mine.place(
            execution.name,
            execution.op_type,
            pass_number=execution.number,
            execution=self.dumped.execution if self.dumped.executions > 1 else None,
            label=self.label,
            order=number + 1,
            time=execution.time,
        )
        _, mine, theirs, *_ = self._operator(execution)
        is_named = theirs is not None and names.sanitize(theirs.full_name) == execution.name
        return described(place, theirs if mine is None and is_named else mine)

    @property
    def _casts(self) -> tuple[frozenset[str], frozenset[str]]:
        return self.matched.by_graphs.casts

    def _operator(self, execution: OperatorExecution) -> _Operator:
        """Return the operator in both graphs; golden's is found by counterparts of outputs, or of inputs."""
        key = execution.name, execution.number
        if key not in self._operators:
            mine, theirs = self.mine.operator(execution.name), None
            for io in (IO.INPUT, IO.OUTPUT):
                same = [
                    each for (own, _), each in execution.counterparts.items() if own is each.name.io is io
                ]
                theirs = self.theirs.operator(same[0].name.op_name) if same else theirs
            reads, name = (
                self.mine.reads(mine, self._casts[0]),
                execution.name if mine is None else mine.full_name,
            )
            self._operators[key] = _Operator(name, mine, theirs, reads, self._golden_sources(execution))
        return self._operators[key]

    def _golden_sources(self, execution: OperatorExecution) -> tuple[ValueSource, ...]:
        """Return the sources, in golden's graph, of the inputs' counterparts."""
        graph = self.theirs.graph
        inputs = {slot: place for (io, slot), place in execution.counterparts.items() if io is IO.INPUT}
        if graph is None or not inputs:
            return ()
        sources = []
        for slot in range(max(inputs) + 1):
            read = inputs.get(slot)
            operator = None if read is None else graph.find(read.op_name)
            if read is None or operator is None:
                sources.append(ABSENT)
            elif read.io is IO.OUTPUT:
                sources.append(ValueSource(SourceKind.OPERATOR, operator.full_name, read.slot))
            else:
                known = read.slot < len(operator.inputs)
                sources.append(in_its_graph(operator.inputs[read.slot], graph) if known else ABSENT)
        return tuple(behind(source, graph, self._casts[1]) for source in sources)

    def own_name(self, golden_name: str) -> str:
        """Return the examined side's name of a golden operator, "" if it lacks the operator."""
        name = names.sanitize(golden_name)
        if name in self.found_again:
            return self.found_again[name]
        return golden_name if self._own_names is None else self._own_names.get(name, "")

    @cached_property
    def _own_names(self) -> Mapping[str, str] | None:
        partners = self.matched.by_graphs.partners
        return None if partners is None else {golden: own for own, golden in partners.items()}


def _dequantises(operator: GraphOperator) -> bool:
    return operator.op_type == "DequantizeLinear" and bool(operator.inputs)


def _weight_scales(side: FolderSurroundings) -> Iterator[bool]:
    """Yield for each quantised weight of a graph whether it has several scales."""
    graph = side.graph
    for each in () if graph is None else graph.operators.values():
        if _dequantises(each) and each.inputs[0].kind is not SourceKind.OPERATOR and graph is not None:
            yield math.prod(graph.form_of(each.inputs[1]).shape or ()) > 1


def _float_types(operator: GraphOperator | None) -> frozenset[tuple[IO, str]]:
    if operator is None:
        return frozenset()
    forms = {IO.INPUT: operator.device_inputs, IO.OUTPUT: operator.device_outputs}
    return frozenset((io, each.dtype) for io, side in forms.items() for each in side if coarser(each.dtype))


def _arithmetic(
    mine: GraphOperator | None, theirs: GraphOperator | None, tensors: Sequence[TensorEvidence]
) -> tuple[frozenset[tuple[IO, str]], frozenset[tuple[IO, str]]]:
    """Return the float types that each side reads and writes, from its graph or else from its tensors."""
    own, other = _float_types(mine), _float_types(theirs)
    if own or other:
        return own, other
    compared = [each for each in tensors if each.error is not None]
    return (
        frozenset((each.io, each.dtype) for each in compared if coarser(each.dtype)),
        frozenset((each.io, each.golden_dtype) for each in compared if coarser(each.golden_dtype)),
    )


def _is_random(*sides: GraphOperator | None) -> bool:
    """Return whether the outputs of an operator are random, without a seed that both sides share."""
    known = [each for each in sides if each is not None]
    if not known or not all(is_random(each.op_type, len(each.inputs)) for each in known):
        return False
    seeds = [
        {name: seed for name, seed in parse_attributes(each.attributes).items() if name.startswith("seed")}
        for each in known
    ]
    return not any(seeds[0].values()) or any(each != seeds[0] for each in seeds)


def missing_operators(folder: ComparedFolder) -> tuple[str, ...]:
    """Return golden operators that the examined side should have and lacks, in the order of execution."""
    lost = folder.losses.whole
    return tuple(name for name in folder.matched.missing if name not in lost and is_expected(folder, name))


def unasked_operators(folder: ComparedFolder) -> tuple[str, ...]:
    """Return golden operators that the examined side's configuration leaves out, in their order."""
    lost = folder.losses.whole
    return tuple(name for name in folder.matched.missing if name not in lost and _is_left_out(folder, name))


def absence_findings(folder: ComparedFolder) -> Iterator[Finding]:
    """Yield findings on golden operators with lost files, or missing where a graph file is cut off."""
    for name, tensors in folder.losses.whole.items():
        results = tuple(replace(each, verdict=TensorVerdict.UNREADABLE) for each in tensors)
        yield Finding(folder.missing_place(name), Verdict.UNREADABLE, results, results[0].note)
    for name in folder.matched.missing if folder.is_torn else ():
        yield Finding(folder.missing_place(name), Verdict.UNCHECKED, note="the file of a graph breaks off")


def is_expected(folder: ComparedFolder, name: str) -> bool:
    """Return whether the examined side should have a golden operator.

    Operators that the device inserts have no counterpart, nor have clamps beside integers; compiled graphs
    have no task for operators that only pass tensors on. Exporters and compilers fold operators that
    only read weights.
    """
    if name.startswith(INSERTED_PREFIX) or names.sanitize(name) in folder.found_again:
        return False
    operator = folder.theirs.operator(name)
    if (
        folder.is_torn
        or _is_left_out(folder, name)
        or (operator is not None and operator.op_type in folder.clamps)
    ):
        return False
    if folder.mine.graph is not None and folder.theirs.is_fixed(name):
        return False
    is_other_form = folder.dumped.kind.is_compiled is not folder.golden.kind.is_compiled
    if is_other_form and folder.unread_graphs and not folder.matched.by_graphs.golden:
        return False  # names of fused kernels and of single operators differ
    if not folder.dumped.kind.is_compiled or folder.golden.kind.is_compiled:
        return True
    return operator is None or not (is_settled(operator.op_type) or folder.theirs.is_fixed(name))


def _is_left_out(folder: ComparedFolder, name: str) -> bool:
    """Return whether the examined side's configuration leaves a golden operator out."""
    name = names.sanitize(name)
    if name.startswith(INSERTED_PREFIX) or name in folder.found_again or folder.is_torn:
        return False
    return folder.mine.leaves_out(folder.missing_place(name), folder.own_name(name))
