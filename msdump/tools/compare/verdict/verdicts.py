"""The verdicts on tensors and operators, drawn from how far tensors are apart."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msdump.graph.updates import written_inputs
from msdump.record import IO
from msdump.tools.compare.verdict.agreement import Agreement
from msdump.tools.compare.verdict.limits import Limits, coarser


class Verdict(enum.StrEnum):
    """The result of comparing two tensors, from the best to the worst."""

    ALONE = "alone"
    """There is no counterpart."""
    EQUAL = "equal"
    """Bit for bit, in the same element type."""
    CLOSE = "close"
    UNREADABLE = "unreadable"
    """A file cannot be read."""
    FAILED = "failed"
    """The shapes or the elements do not fit."""
    DIFFERENT = "different"


# ALONE is in neither set: a tensor without a counterpart says nothing about the computation.
AGREEING: Final = frozenset({Verdict.EQUAL, Verdict.CLOSE})
BAD: Final = frozenset({Verdict.UNREADABLE, Verdict.FAILED, Verdict.DIFFERENT})

# The members of Verdict stand in this order on purpose.
_SEVERITY: Final = {verdict: place for place, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Compared:
    """A tensor beside its counterpart, before a verdict.

    Attributes:
        io: Input or output.
        slot: Number of the input or output.
        shape: Shape of the tensor on the host, where it is known.
        dtype: Element type, "" where it is not known.
        golden_dtype: Element type of the counterpart, "" where there is none.
        scores: Texts of all algorithms; none where nothing was compared.
        agreement: How far apart they are, None where nothing was compared.
        fault: Why nothing was compared, None where it was.
        note: What the numbers do not tell, "" for nothing.
    """

    io: IO
    slot: int
    shape: tuple[int, ...] = ()
    dtype: str = ""
    golden_dtype: str = ""
    scores: tuple[str, ...] = ()
    agreement: Agreement | None = None
    fault: Verdict | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TensorResult:
    """The verdict on a tensor.

    Attributes:
        compared: The tensor and its counterpart, and how far they are apart.
        verdict: The verdict.
        note: Reason of the verdict, where the numbers do not tell.
        limit: Largest distance that was allowed; None where the two had to be the same, or were not compared.
    """

    compared: Compared
    verdict: Verdict
    note: str = ""
    limit: float | None = None

    @property
    def io(self) -> IO:
        """Input or output."""
        return self.compared.io

    @property
    def slot(self) -> int:
        """Number of the input or output."""
        return self.compared.slot

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Sort key that is largest for the tensor that agrees least: verdict, whether an output, distance."""
        agreement = self.compared.agreement
        distance = math.inf if agreement is None else agreement.distance
        return _SEVERITY[self.verdict], self.io is IO.OUTPUT, distance


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """The verdicts on the tensors of one execution of an operator.

    Attributes:
        name: The operator as the names of files have it.
        op_type: Operator type.
        tensors: The verdict on each tensor, inputs first; at least one.
        number: Number of the execution among those of the operator, from 0; None where it ran once.
        replaces: Name of the golden operator that stood in its place, "" where both have the same operator.
    """

    name: str
    op_type: str
    tensors: tuple[TensorResult, ...]
    number: int | None = None
    replaces: str = ""

    def of(self, io: IO) -> tuple[TensorResult, ...]:
        """Return the verdicts on the inputs or the outputs; an input that it writes counts as an output."""
        written = written_inputs(self.op_type)
        return tuple(
            tensor
            for tensor in self.tensors
            if (IO.OUTPUT if tensor.io is IO.INPUT and tensor.slot in written else tensor.io) is io
        )

    @property
    def worst(self) -> TensorResult:
        """The tensor that agrees least."""
        return max(self.tensors, key=lambda tensor: tensor.badness)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the tensor that agrees least."""
        return self.worst.verdict


class Judge:
    """Draws verdicts on tensors, in the order of the execution.

    A tensor is at best as precise as what it was computed from. So the limit is that of the coarsest
    element type of all tensors so far that the two sides do not have bit for bit the same.
    """

    def __init__(self, limits: Limits) -> None:
        """Start at the first operator of a directory."""
        self._limits = limits
        self._coarsest = limits.precision

    def results(self, tensors: Iterable[Compared]) -> tuple[TensorResult, ...]:
        """Return the verdicts on the tensors of the operator that ran next."""
        tensors = tuple(tensors)
        unlike = (tensor for tensor in tensors if tensor.agreement is None or not tensor.agreement.is_same)
        # All tensors of the operator before any is judged: its inputs limit how good its outputs can be.
        types = (dtype for tensor in unlike for dtype in (tensor.dtype, tensor.golden_dtype))
        self._coarsest = coarser(self._coarsest, *types)
        return tuple(map(self._result, tensors))

    def _result(self, compared: Compared) -> TensorResult:
        agreement = compared.agreement
        if agreement is None:
            return TensorResult(compared, compared.fault or Verdict.ALONE, compared.note)
        types = (compared.dtype, compared.golden_dtype)
        limit = self._limits.allowed(types, self._coarsest)
        remarks = (*_remarks(agreement), *_unlike(types), compared.note)
        return TensorResult(
            compared, self._verdict(agreement, types, limit), "; ".join(filter(None, remarks)), limit
        )

    def _verdict(self, agreement: Agreement, types: tuple[str, str], limit: float | None) -> Verdict:
        if agreement.is_same:  # the same numbers in two types are close: one side was computed otherwise
            return Verdict.EQUAL if types[0] == types[1] else Verdict.CLOSE
        if limit is None or agreement.misplaced:
            return Verdict.DIFFERENT
        is_near = agreement.distance <= limit and agreement.cosine >= self._limits.cosine
        return Verdict.CLOSE if is_near else Verdict.DIFFERENT


def _remarks(agreement: Agreement) -> Iterator[str]:
    if agreement.misplaced:
        yield f"NaN or infinities differ at {agreement.misplaced:,} element{'s' * (agreement.misplaced > 1)}"
    elif math.isnan(agreement.cosine):
        yield "golden is zero" if math.isinf(agreement.distance) else "mine is zero"


def _unlike(types: tuple[str, str]) -> Iterator[str]:
    if types[0] != types[1]:
        yield f"{types[0]} beside {types[1]}"
