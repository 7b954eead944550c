"""What to say of a comparison: where the dumps part, how much was compared, and the table of it all."""

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
    """An operator and where it stands.

    Attributes:
        label: Its directory, "" where there is only one.
        order: Place in the execution, from 1.
        result: What is said of it.
        time: When it ran, in microseconds; directories of one run, such as those of a loop, overlap.
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
        """Return in words what is wrong with it."""
        parts = [_state(side, self.result.of(side)) for side in (IO.OUTPUT, IO.INPUT)]
        return ", ".join(parts if self.wrong(IO.OUTPUT) else reversed(parts))


def _state(side: IO, tensors: Sequence[TensorResult]) -> str:
    bad = [each for each in tensors if each.verdict in BAD]
    if bad:
        differs = any(each.verdict is Verdict.DIFFERENT for each in bad)
        slots = ", ".join(str(each.slot) for each in bad)
        many = len(bad) > 1
        what = f"differ{'s' * (not many)}" if differs else "cannot be compared"
        return f"{side}{'s' * many} {slots} {what}{' already' * (differs and side is IO.INPUT)}"
    distances = [each.found.agreement.distance for each in tensors if each.found.agreement is not None]
    if distances:
        return f"its {side}s agree{f' (distance {max(distances):.2g})' if max(distances) else ''}"
    return f"its {side}s were not compared"


@dataclass(slots=True)
class DifferenceReport:
    """A comparison as a whole.

    Attributes:
        operators: What was compared, directory by directory, in the order of execution.
        tensors: Number of tensors by verdict.
        missing: Golden operators that the other side lacks.
        unreadable: What is wrong with golden files that cannot be read.
        uneven: Operators of loops that did not run equally often.
    """

    operators: list[Located] = field(default_factory=list)
    tensors: Counter[Verdict] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    uneven: list[Uneven] = field(default_factory=list)

    def add(self, located: Located) -> None:
        """Take an operator in."""
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
        """The first that ran of those with a tensor that differs or does not fit; else with a bad file."""
        bad = self.bad
        told = [each for each in bad if each.result.verdict is not Verdict.UNREADABLE]
        return min(told or bad, key=lambda each: each.time, default=None)

    def before(self, located: Located) -> list[Located]:
        """Return what ran before an operator, in all directories, in the order of execution."""
        earlier = (each for each in self.operators if each.time < located.time)
        return sorted(earlier, key=lambda each: each.time)

    def precision(self) -> str:
        """Return the element type within whose limits the first differences lie, "" where there is none."""
        first = self.first
        if first is None:
            return ""
        bad = [each for each in first.result.tensors if each.verdict in BAD]
        return next((name for name in _SUGGESTED if all(_is_within(each, name) for each in bad)), "")


def _is_within(tensor: TensorResult, dtype: str) -> bool:
    numbers = tensor.found.agreement
    if numbers is None or tensor.limit is None:
        return False
    return tensor.limit < numbers.distance <= DISTANCES[dtype]


def table(operators: Iterable[Located]) -> str:
    """Return the table of all tensors, in the order of execution."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_TITLES)
    writer.writerows(row for located in operators for row in _rows(located))
    return text.getvalue()


def _rows(located: Located) -> Iterator[Sequence[object]]:
    result = located.result
    number = "" if result.number is None else result.number
    for tensor in result.tensors:
        found = tensor.found
        yield (
            *(located.label, located.order, result.name, result.op_type, number),
            *(f"{tensor.io}:{tensor.slot}", shape(tensor), found.dtype, found.golden_dtype, tensor.verdict),
            *(found.scores or ("",) * len(algorithms.ALL)),
            "" if found.agreement is None else f"{found.agreement.distance:.6g}",
            "" if tensor.limit is None else f"{tensor.limit:.6g}",
            reason(result, tensor),
        )


def shape(tensor: TensorResult) -> str:
    """Return a shape in a word, ``8x3x224x224``."""
    return "x".join(map(str, tensor.found.shape))


def reason(result: OperatorResult, tensor: TensorResult) -> str:
    """Return what the numbers of a tensor do not tell."""
    place = f"in the place of {result.replaces}" if result.replaces else ""
    return "; ".join(filter(None, (place, tensor.note)))
