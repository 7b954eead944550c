"""What to say of a comparison: where the dumps part, how much was compared, and the table of it all."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msdump.record import IO
from msdump.tools import algorithms
from msdump.tools.divergence import AGREEING, OperatorResult, TensorResult, Verdict

_BAD: Final = frozenset({Verdict.DIFFERENT, Verdict.FAILED})
_TITLES: Final = (
    *("Directory", "Order", "Operator", "Type", "Tensor", "Shape", "DataType", "GoldenDataType", "Verdict"),
    *algorithms.ALL,
    "Note",
)


@dataclass(frozen=True, slots=True)
class Located:
    """An operator and where it stands.

    Attributes:
        label: Its directory, "" where there is only one.
        order: Place in the execution, from 1.
        result: What is said of it.
    """

    label: str
    order: int
    result: OperatorResult

    @property
    def is_bad(self) -> bool:
        """Whether an output differs, or could not be read."""
        return self.result.verdict in _BAD

    def inputs(self) -> str:
        """Return what is known of its inputs, in words."""
        compared = [each for each in self.result.of(IO.INPUT) if each.verdict in AGREEING | _BAD]
        wrong = [str(each.slot) for each in compared if each.verdict in _BAD]
        if wrong:
            return f"input {', '.join(wrong)} differs already"
        return "its inputs agree" if compared else "its inputs were not compared"


@dataclass(slots=True)
class Report:
    """A comparison as a whole.

    Attributes:
        operators: What was compared, directory by directory, in the order of execution.
        tensors: Number of tensors by verdict.
    """

    operators: list[Located] = field(default_factory=list)
    tensors: Counter[Verdict] = field(default_factory=Counter)

    def add(self, located: Located) -> None:
        """Take an operator in."""
        self.operators.append(located)
        self.tensors.update(tensor.verdict for tensor in located.result.tensors)

    @property
    def compared(self) -> int:
        """Number of tensors that were compared."""
        return sum(count for verdict, count in self.tensors.items() if verdict in AGREEING | _BAD)

    @property
    def bad(self) -> list[Located]:
        """Operators with an output that differs or could not be read."""
        return [located for located in self.operators if located.is_bad]

    @property
    def first(self) -> Located | None:
        """The first operator whose output differs; without one, the first of which a file is bad."""
        different = (each for each in self.bad if each.result.verdict is Verdict.DIFFERENT)
        return next(different, next(iter(self.bad), None))


def table(operators: Iterable[Located]) -> str:
    """Return the table of all tensors, in the order of execution."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_TITLES)
    writer.writerows(row for located in operators for row in _rows(located))
    return text.getvalue()


def _rows(located: Located) -> Iterator[Sequence[object]]:
    result = located.result
    for tensor in result.tensors:
        yield (
            *(located.label, located.order, result.name, result.op_type, f"{tensor.io}:{tensor.slot}"),
            *(shape(tensor), tensor.mine_dtype, tensor.golden_dtype, tensor.verdict),
            *(tensor.scores or ("",) * len(algorithms.ALL)),
            tensor.note,
        )


def shape(tensor: TensorResult) -> str:
    """Return a shape in a word, ``8x3x224x224``."""
    return "x".join(map(str, tensor.shape))
