"""What is known of an operator before its verdict."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msdump.store.read.graphs.operator_graph import ABSENT, SourceKind, ValueSource
from msdump.tools.judge.evidence import OperatorEvidence
from msdump.tools.judge.findings import TensorResult


@dataclass(frozen=True)
class Case:
    """An operator before its verdict.

    Attributes:
        evidence: What is known of it.
        tensors: The verdicts on its tensors.
        inputs: Its inputs that were compared; where they were not dumped, the outputs that it reads.
        outputs: Its outputs that were compared.
        is_complete: Whether all of its inputs are known.
    """

    evidence: OperatorEvidence
    tensors: Sequence[TensorResult]
    inputs: Sequence[TensorResult]
    outputs: Sequence[TensorResult]
    is_complete: bool

    @functools.cached_property
    def bad_inputs(self) -> Sequence[TensorResult]:
        """Inputs that differ."""
        return [each for each in self.inputs if each.is_bad]

    @functools.cached_property
    def bad_outputs(self) -> Sequence[TensorResult]:
        """Outputs that differ."""
        return [each for each in self.outputs if each.is_bad]

    def written_inputs(self) -> Iterator[tuple[TensorResult, ValueSource, ValueSource]]:
        """Yield each input that differs and that an operator wrote, with its source and golden's source."""
        reads, golden_reads = self.evidence.reads, self.evidence.golden_reads
        for each in self.bad_inputs:
            source = reads[each.slot] if each.slot < len(reads) else ABSENT
            if source.kind is SourceKind.OPERATOR:
                yield each, source, golden_reads[each.slot] if each.slot < len(golden_reads) else ABSENT

    @property
    def input_distance(self) -> float:
        """The largest distance of an input, 0 without any."""
        return _largest(self.inputs)

    @property
    def output_distance(self) -> float:
        """The largest distance of an output that differs, 0 without any."""
        return _largest(self.bad_outputs)


def _largest(tensors: Sequence[TensorResult]) -> float:
    errors = (each.evidence.error for each in tensors)
    return max((error.distance for error in errors if error is not None), default=0.0)
