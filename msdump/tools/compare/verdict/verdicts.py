"""What a comparison comes to: verdicts of tensors and operators, drawn from numbers."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msdump.record import IO
from msdump.tools.compare.verdict.agreement import Agreement
from msdump.tools.compare.verdict.limits import Limits, coarser


class Verdict(enum.StrEnum):
    """What a comparison of two tensors comes to, from the best to the worst."""

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


AGREEING: Final = frozenset({Verdict.EQUAL, Verdict.CLOSE})
BAD: Final = frozenset({Verdict.UNREADABLE, Verdict.FAILED, Verdict.DIFFERENT})

_SEVERITY: Final = {verdict: place for place, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found of a tensor and its counterpart.

    Attributes:
        io: Input or output.
        slot: Its number.
        shape: That of the tensor on the host, where it is known.
        dtype: Its element type, "" where it is not known.
        golden_dtype: That of the counterpart, "" where there is none.
        scores: Texts of all algorithms; none where nothing was compared.
        agreement: How far apart they are, None where nothing was compared.
        fault: Why nothing was compared, None where it was.
        note: What the numbers do not tell.
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
    """What is said of a tensor.

    Attributes:
        found: What was found of it and its counterpart.
        verdict: What that comes to.
        note: Why, where the numbers do not tell.
        limit: Largest distance that was allowed; None where the two had to be the same, or were not compared.
    """

    found: Compared
    verdict: Verdict
    note: str = ""
    limit: float | None = None

    @property
    def io(self) -> IO:
        """Input or output."""
        return self.found.io

    @property
    def slot(self) -> int:
        """Its number."""
        return self.found.slot

    @property
    def badness(self) -> tuple[int, bool, float]:
        """What tells which tensor agrees least: the verdict, outputs before inputs, the distance."""
        numbers = self.found.agreement
        distance = math.inf if numbers is None else numbers.distance
        return _SEVERITY[self.verdict], self.io is IO.OUTPUT, distance


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """The tensors of one execution of an operator.

    Attributes:
        name: The operator as the names of files have it.
        op_type: Its type.
        tensors: What is said of each, inputs first; at least one.
        number: Which of its executions it is, from 0; None where it ran once.
        replaces: The golden operator that stood in its place, "" where both have the same.
    """

    name: str
    op_type: str
    tensors: tuple[TensorResult, ...]
    number: int | None = None
    replaces: str = ""

    def of(self, io: IO) -> tuple[TensorResult, ...]:
        """Return what is said of the inputs or the outputs."""
        return tuple(tensor for tensor in self.tensors if tensor.io is io)

    @property
    def worst(self) -> TensorResult:
        """The tensor that agrees least."""
        return max(self.tensors, key=lambda tensor: tensor.badness)

    @property
    def verdict(self) -> Verdict:
        """That of the tensor that agrees least."""
        return self.worst.verdict


class Judge:
    """Draws verdicts of tensors, in the order of the execution.

    A tensor is at best as precise as what it was computed from: the limits of the coarsest element
    type hold in which the two sides did not have the same so far.
    """

    def __init__(self, limits: Limits) -> None:
        """Start at the first operator of a directory."""
        self._limits = limits
        self._coarsest = limits.precision

    def results(self, tensors: Iterable[Compared]) -> tuple[TensorResult, ...]:
        """Return what is said of the tensors of the operator that ran next."""
        tensors = tuple(tensors)
        unlike = (each for each in tensors if each.agreement is None or not each.agreement.is_same)
        types = (dtype for each in unlike for dtype in (each.dtype, each.golden_dtype))
        self._coarsest = coarser(self._coarsest, *types)
        return tuple(map(self._result, tensors))

    def _result(self, found: Compared) -> TensorResult:
        numbers = found.agreement
        if numbers is None:
            return TensorResult(found, found.fault or Verdict.ALONE, found.note)
        types = (found.dtype, found.golden_dtype)
        limit = self._limits.allowed(types, self._coarsest)
        remarks = (*_remarks(numbers), *_unlike(types), found.note)
        return TensorResult(
            found, self._verdict(numbers, types, limit), "; ".join(filter(None, remarks)), limit
        )

    def _verdict(self, numbers: Agreement, types: tuple[str, str], limit: float | None) -> Verdict:
        if numbers.is_same:
            return Verdict.EQUAL if types[0] == types[1] else Verdict.CLOSE
        if limit is None or numbers.misplaced:
            return Verdict.DIFFERENT
        is_near = numbers.distance <= limit and numbers.cosine >= self._limits.cosine
        return Verdict.CLOSE if is_near else Verdict.DIFFERENT


def _remarks(numbers: Agreement) -> Iterator[str]:
    if numbers.misplaced:
        yield f"NaN or infinities differ at {numbers.misplaced:,} element{'s' * (numbers.misplaced > 1)}"
    elif math.isnan(numbers.cosine):
        yield "golden is zero" if math.isinf(numbers.distance) else "mine is zero"


def _unlike(types: tuple[str, str]) -> Iterator[str]:
    if types[0] != types[1]:
        yield f"{types[0]} beside {types[1]}"
