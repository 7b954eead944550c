"""The report of a comparison: the first operators that differ, counts, and the table of all tensors."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msdump.record import IO
from msdump.tools.compare.verdict.limits import DISTANCES
from msdump.tools.compare.verdict.matching import Uneven
from msdump.tools.compare.verdict.verdicts import AGREEING, BAD, OperatorResult, TensorResult, Verdict
from msdump.tools.scores import algorithms

_SUGGESTED: Final = ("float16", "bfloat16")  # what a device may compute in, whatever the types of its tensors
_UNCOMPARED: Final = frozenset({Verdict.ALONE, Verdict.UNREADABLE})
_TITLES: Final = (
    *("Directory", "Order", "Operator", "Type", "Pass", "Tensor", "Shape", "DataType", "GoldenDataType"),
    "Verdict",
    *algorithms.ALL,
    *("Distance", "Limit", "Note"),
)


@dataclass(frozen=True, slots=True)
class Located:
    """The verdicts on an operator, and its place in the execution.

    Attributes:
        label: Label of its directory, "" where there is only one.
        order: Place in the execution of this directory, from 1.
        result: The verdicts on its tensors.
        time: Time at which it ran, in microseconds since the epoch. It orders operators of different
            directories, which may overlap, as those of a loop do.
    """

    label: str
    order: int
    result: OperatorResult
    time: int = 0

    @property
    def is_bad(self) -> bool:
        """Whether one of its tensors differs, or could not be compared with its counterpart."""
        return self.result.verdict in BAD

    @property
    def is_compared(self) -> bool:
        """Whether all of its outputs were compared."""
        return not any(each.verdict in _UNCOMPARED for each in self.result.of(IO.OUTPUT))

    def wrong(self, side: IO) -> tuple[TensorResult, ...]:
        """Return the inputs or the outputs that differ or could not be compared."""
        return tuple(each for each in self.result.of(side) if each.verdict in BAD)

    def fault(self) -> str:
        """Return its fault in words, such as "output 0 differs, its inputs agree"."""
        # What differs comes first; where only inputs do, the outputs' agreement is the remark.
        parts = [_state(side, self.result.of(side)) for side in (IO.OUTPUT, IO.INPUT)]
        return ", ".join(parts if self.wrong(IO.OUTPUT) else reversed(parts))


def _state(side: IO, tensors: Sequence[TensorResult]) -> str:
    bad = [each for each in tensors if each.verdict in BAD]
    if bad:
        differs = any(each.verdict is Verdict.DIFFERENT for each in bad)
        # inputs that the operator writes stand behind its outputs
        own = [str(each.slot) for each in bad if each.io is side]
        slots = ", ".join((*own, *(f"{each.io} {each.slot}" for each in bad if each.io is not side)))
        is_plural = len(bad) > 1
        # "already": an input that differs was wrong before this operator ran.
        verb = f"differ{'s' * (not is_plural)}" if differs else "cannot be compared"
        return f"{side}{'s' * is_plural} {slots} {verb}{' already' * (differs and side is IO.INPUT)}"
    distances = [each.compared.agreement.distance for each in tensors if each.compared.agreement is not None]
    if distances:
        return f"its {side}s agree{f' (distance {max(distances):.2g})' if max(distances) else ''}"
    return f"its {side}s were not compared"


@dataclass(slots=True)
class DifferenceReport:
    """All verdicts of a comparison.

    Attributes:
        operators: The operators, directory by directory, in the order of execution.
        tensors: Number of tensors by verdict.
        missing: Golden operators that the other side lacks.
        unreadable: Messages about golden files that cannot be read.
        uneven: Operators of loops that did not run equally often.
    """

    operators: list[Located] = field(default_factory=list)
    tensors: Counter[Verdict] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    uneven: list[Uneven] = field(default_factory=list)

    def add(self, located: Located) -> None:
        """Add an operator, and count its tensors."""
        self.operators.append(located)
        self.tensors.update(tensor.verdict for tensor in located.result.tensors)

    @property
    def agreeing(self) -> int:
        """Number of tensors that agree."""
        return sum(self.tensors[verdict] for verdict in AGREEING)

    @property
    def failed(self) -> int:
        """Number of tensors that have a counterpart and cannot be compared with it."""
        return self.tensors[Verdict.FAILED] + self.tensors[Verdict.UNREADABLE]

    @property
    def compared(self) -> int:
        """Number of tensors that have a counterpart."""
        return self.tensors.total() - self.tensors[Verdict.ALONE]

    @property
    def bad(self) -> list[Located]:
        """Operators with a tensor that differs or could not be compared with its counterpart."""
        return [located for located in self.operators if located.is_bad]

    @property
    def agrees(self) -> bool:
        """Whether everything that has a counterpart could be compared with it and agrees."""
        return not (self.bad or self.unreadable or self.uneven)

    @property
    def first(self) -> Located | None:
        """The first operator with a tensor that differs or does not fit; else with an unreadable file."""
        bad = self.bad
        # A file that cannot be read says nothing about the computation, so it comes second.
        readable = [each for each in bad if each.result.verdict is not Verdict.UNREADABLE]
        return min(readable or bad, key=lambda each: each.time, default=None)

    def before(self, located: Located) -> list[Located]:
        """Return the operators that ran before another one, in all directories, in the order of execution."""
        earlier = (each for each in self.operators if each.time < located.time)
        return sorted(earlier, key=lambda each: each.time)

    def precision(self) -> str:
        """Return the type to suggest for ``--precision``, "" where none makes the first operator agree."""
        first = self.first
        if first is None:
            return ""
        bad = [each for each in first.result.tensors if each.verdict in BAD]
        return next((name for name in _SUGGESTED if all(_is_within(each, name) for each in bad)), "")


def _is_within(tensor: TensorResult, dtype: str) -> bool:
    agreement = tensor.compared.agreement
    if agreement is None or tensor.limit is None:
        return False
    return tensor.limit < agreement.distance <= DISTANCES[dtype]


def table(operators: Iterable[Located]) -> str:
    """Return the text of the csv file with a row for each tensor, in the order of execution."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_TITLES)
    writer.writerows(row for located in operators for row in _rows(located))
    return text.getvalue()


def _rows(located: Located) -> Iterator[Sequence[object]]:
    result = located.result
    number = "" if result.number is None else result.number
    for tensor in result.tensors:
        compared = tensor.compared
        yield (
            *(located.label, located.order, result.name, result.op_type, number),
            *(
                f"{tensor.io}:{tensor.slot}",
                shape(tensor),
                compared.dtype,
                compared.golden_dtype,
                tensor.verdict,
            ),
            *(compared.scores or ("",) * len(algorithms.ALL)),
            "" if compared.agreement is None else f"{compared.agreement.distance:.6g}",
            "" if tensor.limit is None else f"{tensor.limit:.6g}",
            reason(result, tensor),
        )


def shape(tensor: TensorResult) -> str:
    """Return a shape in a word, ``8x3x224x224``."""
    return "x".join(map(str, tensor.compared.shape))


def reason(result: OperatorResult, tensor: TensorResult) -> str:
    """Return the text of a tensor's last column: the reason of its verdict, where numbers do not give it."""
    place = f"in the place of {result.replaces}" if result.replaces else ""
    return "; ".join(filter(None, (place, tensor.note)))
