"""Two directories of operators that are compared, and what their graphs tell of each execution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from msdump.graph.updates import written_inputs
from msdump.record import IO
from msdump.store import names
from msdump.store.read.graphs import arguments
from msdump.store.read.graphs.operator_graph import (
    ABSENT,
    FIXED,
    GraphOperator,
    SourceKind,
    ValueSource,
)
from msdump.tools.compare.pairing import remnants
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.verdict.losses import Losses
from msdump.tools.compare.verdict.matching import Matched, OperatorExecution
from msdump.tools.compare.verdict.surroundings import (
    LEFTOVER,
    FolderSurroundings,
    behind,
    described,
    in_its_graph,
)
from msdump.tools.judge.errors import SHORTER
from msdump.tools.judge.evidence import OperatorEvidence, OperatorPlace, TensorEvidence
from msdump.tools.judge.limits import coarser
from msdump.tools.judge.verdicts import TensorVerdict

_SAME_NUMBER: Final = 1e-6
"""Relative difference of two numbers in graph files that may be float32's next to one text."""


@dataclass(frozen=True)
class ComparedFolder:
    """Two directories, and the executions of operators in them.

    Attributes:
        label: Their label, "" for the only pair.
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        matched: The executions, each with the places of its counterparts.
        mine: What the examined dump tells around its directory.
        theirs: What the golden dump tells.
        found_again: Names of the examined side's operators by those of golden ones that nothing pairs with
            them, but that they are by the model by which they ran again.
    """

    label: str
    dumped: Folder
    golden: Folder
    matched: Matched
    mine: FolderSurroundings
    theirs: FolderSurroundings
    found_again: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> tuple[object, ...]:
        """What the directories of one run have in common: those of its branches and loops, too."""
        if self.mine.iteration is None or self.mine.graph is None:
            return (self.label,)
        return (self.mine.rank, self.mine.iteration)

    @cached_property
    def gone(self) -> frozenset[str]:
        """Golden operators whose files the examined side has lost, inputs and inserted ones among them."""
        is_told = self.mine.is_inferred and self.theirs.is_inferred
        expectations = self.mine.expectation, self.theirs.expectation
        if (
            not is_told
            or len({each.sides for each in expectations}) > 1
            or expectations[0].selects_all is False
        ):
            return frozenset()
        return remnants.gone(self.dumped, self.golden)

    @property
    def is_ours(self) -> bool:
        """Whether msdump made both dumps, so that names of files are those of graphs."""
        return self.mine.is_ours and self.theirs.is_ours

    @cached_property
    def is_training(self) -> bool:
        """Whether the examined graph writes weights; golden's, where no file shows the examined one."""
        graph = self.mine.graph or self.theirs.graph
        return graph is not None and any(written_inputs(each.op_type) for each in graph.operators.values())

    def weights(self, execution: OperatorExecution) -> frozenset[int]:
        """Return the numbers of an execution's inputs that are weights or constants.

        What a loop begins with may be a constant; its later passes read what the ones before them computed.
        """
        sides = self._reads(execution), self._golden_sources(execution)
        known = [
            [
                sources[slot]
                for sources in sides
                if slot < len(sources) and sources[slot].kind is not SourceKind.ABSENT
            ]
            for slot in range(max(map(len, sides)))
        ]
        is_later = execution.number not in {None, 0}
        return frozenset(
            slot
            for slot, sources in enumerate(known)
            if sources
            and all(source.kind in FIXED and not (is_later and source.varies) for source in sources)
        )

    def _folded(self, execution: OperatorExecution) -> frozenset[int]:
        """Return the numbers of inputs that are constants, which golden's operators compute of constants."""
        if self.theirs.is_inferred:  # nothing tells what its operators read
            return frozenset()
        sources = zip(self._reads(execution), self._golden_sources(execution), strict=False)
        return frozenset(
            slot
            for slot, (own, golden) in enumerate(sources)
            if own.kind in FIXED and golden.kind is SourceKind.OPERATOR and self.theirs.is_fixed(golden.name)
        )

    def held(self, execution: OperatorExecution) -> frozenset[str]:
        """Return the element types that the devices hold an execution's tensors in; any, where none tells."""
        mine, theirs = self.mine.operator(execution.name), self._golden_operator(execution)
        if mine is None or not mine.held:
            return frozenset(SHORTER)
        return mine.held | (frozenset() if theirs is None else theirs.held)

    def evidence(
        self, number: int, execution: OperatorExecution, tensors: Sequence[TensorEvidence]
    ) -> OperatorEvidence:
        """Return all that is known of an execution.

        Args:
            number: Its place in the directory, from 0.
            execution: The execution.
            tensors: Its tensors beside their counterparts.
        """
        reads = self._reads(execution)
        named = {
            slot: source.name for slot, source in enumerate(reads) if source.kind is not SourceKind.OPERATOR
        }
        folded = self._folded(execution)
        return OperatorEvidence(
            self._place(number, execution),
            tuple(
                self._told(
                    replace(each, name=named.get(each.slot, ""), is_folded=each.slot in folded)
                    if each.io is IO.INPUT
                    else each,
                    execution,
                    reads,
                )
                for each in _with_lost(tensors, self.losses.of(execution))
            ),
            replaces=execution.replaces,
            beside=execution.beside,
            reads=reads,
            golden_reads=tuple(map(self._translated, self._golden_sources(execution))) if reads else (),
            arithmetic=(
                _precision(self.mine.operator(execution.name)),
                _precision(self._golden_operator(execution)),
            ),
            is_state=self.is_training,
            retyped=self._retyped(execution),
            arguments=self._other_arguments(execution),
            unread=self.mine.unread(execution.name) | self._leftover(execution),
        )

    def _leftover(self, execution: OperatorExecution) -> frozenset[int]:
        """Return the outputs that a kernel of either side leaves as the memory was."""
        operators = self.mine.operator(execution.name), self._golden_operator(execution)
        # msdump's own kernels write all outputs; its graphs name the nodes of the model
        is_vendors = any(each is not None and not each.onnx_names for each in operators)
        return LEFTOVER.get(execution.files[-1].op_type, frozenset()) if is_vendors else frozenset()

    def _told(
        self, tensor: TensorEvidence, execution: OperatorExecution, reads: Sequence[ValueSource]
    ) -> TensorEvidence:
        """Return a tensor, not compared where it is what a kernel left as the memory was."""
        writer, slot = execution, tensor.slot
        if tensor.io is IO.INPUT:
            source = reads[slot] if slot < len(reads) else ABSENT
            if source.kind is not SourceKind.OPERATOR:
                return tensor
            found = self._executions.get(names.sanitize(source.name))
            if found is None:
                return tensor
            writer, slot = found, source.slot
        if slot not in self._leftover(writer):
            return tensor
        return replace(tensor, error=None, fault=TensorVerdict.UNCHECKED, note="the kernel does not write it")

    @cached_property
    def _executions(self) -> Mapping[str, OperatorExecution]:
        return {execution.name: execution for execution in self.matched.executions}

    @cached_property
    def losses(self) -> Losses:
        """Files that either side has lost."""
        return Losses(self.matched, (self.dumped, self.mine), (self.golden, self.theirs))

    def missing_place(self, name: str, *, order: int = 0, time: int = 0) -> OperatorPlace:
        """Return the place of a golden operator that the examined side lacks."""
        return described(
            OperatorPlace(
                names.sanitize(name),
                iteration=self.mine.iteration,
                rank=self.mine.rank,
                label=self.label,
                order=order,
                time=time,
            ),
            self.theirs.operator(name),
        )

    def inputs_of_missing(self, name: str) -> tuple[ValueSource, ...]:
        """Return what a golden operator reads, operators under the examined side's names."""
        operator = self.theirs.operator(name)
        return () if operator is None else tuple(map(self._translated, operator.inputs))

    def _place(self, number: int, execution: OperatorExecution) -> OperatorPlace:
        last = execution.files[-1]
        place = OperatorPlace(
            last.op_name,
            last.op_type,
            iteration=self.mine.iteration,
            rank=self.mine.rank,
            pass_number=execution.number,
            execution=self.dumped.execution if self.dumped.executions > 1 else None,
            label=self.label,
            order=number + 1,
            time=execution.time,
        )
        return described(place, self.mine.operator(last.op_name))

    def _reads(self, execution: OperatorExecution) -> tuple[ValueSource, ...]:
        """Return where the inputs of an execution come from, by the examined side's graph."""
        return self.mine.reads(execution.name, self._casts[0])

    def _retyped(self, execution: OperatorExecution) -> str:
        text = self._retypings.get(execution.name, "")
        sources = (source for source in self._reads(execution) if source.kind is SourceKind.OPERATOR)
        # Only the first of several in a row. A Cast that only the examined side has is not among them.
        is_first = not any(names.sanitize(source.name) in self._retypings for source in sources)
        return text if is_first else ""

    @cached_property
    def _retypings(self) -> Mapping[str, str]:
        """In words how operators, as files call them, compute in another float type than golden's.

        None where most of the network does: it was converted as a whole.
        """
        types = {each.name: self._types(each) for each in self.matched.executions}
        texts = {
            name: f"writes {mine}, in golden {golden}"
            for name, (mine, golden) in types.items()
            if mine != golden and coarser(mine) and coarser(golden)
        }
        if self.matched.by_graphs is not None:
            texts = {**self.matched.by_graphs.recast, **texts}
        return texts if len(texts) * 2 <= len(types) else {}

    def _types(self, execution: OperatorExecution) -> tuple[str, str]:
        """Return the types of the first output that both graphs declare, "" where devices hold the same."""
        mine, golden = self.mine.operator(execution.name), self._golden_operator(execution)
        if mine is None or golden is None or not (mine.outputs and golden.outputs):
            return ("", "")
        known = self.matched.by_graphs
        is_single = known is None or execution.name in known.partners
        if not (is_single or any(io is IO.OUTPUT for io, _ in execution.counterparts)):
            return ("", "")  # a part of a kernel, whose output is none of the kernel's
        held = [each.device_outputs[0].dtype for each in (mine, golden) if each.device_outputs]
        if len(held) == len(set(held)) + 1:  # two graphs may declare what a device holds in one type
            return ("", "")
        return mine.outputs[0].dtype, golden.outputs[0].dtype

    @property
    def _casts(self) -> tuple[frozenset[str], frozenset[str]]:
        """Full names of the casts that the other side lacks, of the examined side and of golden."""
        known = self.matched.by_graphs
        return (frozenset(), frozenset()) if known is None else known.casts

    def _other_arguments(self, execution: OperatorExecution) -> str:
        """Return in words which numbers among an operator's arguments are others than golden's."""
        mine, golden = self.mine.operator(execution.name), self._golden_operator(execution)
        if mine is None or golden is None or mine.attributes == golden.attributes:
            return ""
        own, other = (arguments.attributes(each.attributes) for each in (mine, golden))
        pairs = [(name, own[name], other[name]) for name in own if name in other]
        numbers = (pair for pair in pairs if all(type(each) in {int, float} for each in pair[1:]))
        return ", ".join(
            f"{name} {number:g}, in golden {theirs:g}"
            for name, number, theirs in numbers
            if not math.isclose(number, theirs, rel_tol=_SAME_NUMBER)
        )

    def _golden_operator(self, execution: OperatorExecution) -> GraphOperator | None:
        for io in (IO.OUTPUT, IO.INPUT):
            for (own, _), (file, side, _) in execution.counterparts.items():
                if own is side is io:
                    return self.theirs.operator(file.op_name)
        return None

    def _golden_sources(self, execution: OperatorExecution) -> tuple[ValueSource, ...]:
        """Return where the counterparts of the inputs come from, under golden's names."""
        graph = self.theirs.graph
        inputs = {slot: place for (io, slot), place in execution.counterparts.items() if io is IO.INPUT}
        if graph is None or not inputs:
            return ()
        sources = []
        for slot in range(max(inputs) + 1):
            file, io, number = inputs.get(slot, (None, IO.INPUT, 0))
            operator = None if file is None else graph.find(file.op_name)
            if operator is None:
                sources.append(ABSENT)
            elif io is IO.OUTPUT:
                sources.append(ValueSource(SourceKind.OPERATOR, operator.full_name, number))
            else:
                known = number < len(operator.inputs)
                sources.append(in_its_graph(operator.inputs[number], graph) if known else ABSENT)
        return tuple(behind(source, graph, self._casts[1]) for source in sources)

    @cached_property
    def _own_outputs(self) -> Mapping[tuple[str, int], ValueSource]:
        """The examined side's outputs, by golden's name of the operator and number."""
        return {
            (file.op_name, golden_slot): ValueSource(SourceKind.OPERATOR, self._name(execution), slot)
            for execution in self.matched.executions
            for (io, slot), (file, side, golden_slot) in execution.counterparts.items()
            if io is side is IO.OUTPUT
        }

    def _name(self, execution: OperatorExecution) -> str:
        operator = self.mine.operator(execution.name)
        return execution.name if operator is None else operator.full_name

    def own_name(self, golden_name: str) -> str:
        """Return the examined side's name of a golden operator, "" where it lacks the operator."""
        name = names.sanitize(golden_name)
        if name in self.found_again:
            return self.found_again[name]
        return golden_name if self._own_names is None else self._own_names.get(name, "")

    @cached_property
    def _own_names(self) -> Mapping[str, str] | None:
        known = self.matched.by_graphs
        return None if known is None else {golden: own for own, golden in known.partners.items()}

    def _translated(self, source: ValueSource) -> ValueSource:
        """Return a golden source under the examined side's name; what it lacks is absent, under golden's."""
        if source.kind is not SourceKind.OPERATOR:
            return source
        own = self._own_outputs.get((names.sanitize(source.name), source.slot))
        if own is not None:
            return own
        operator = self.mine.operator(self.own_name(source.name))
        if operator is not None:  # it ran, but was not dumped
            return replace(source, name=operator.full_name)
        return ValueSource(SourceKind.ABSENT, source.name, source.slot)


def _with_lost(
    tensors: Sequence[TensorEvidence], lost: Mapping[tuple[IO, int], TensorEvidence]
) -> list[TensorEvidence]:
    # what other files hold as well, and what differs there, says more than that one is gone
    present = [
        each if each.error and not each.error.is_same else lost.get((each.io, each.slot), each)
        for each in tensors
    ]
    known = {(each.io, each.slot) for each in tensors}
    return sorted(
        [*present, *(each for slot, each in lost.items() if slot not in known)],
        key=lambda each: (each.io, each.slot),
    )


def _precision(operator: GraphOperator | None) -> str:
    return "" if operator is None else coarser(*operator.held)
