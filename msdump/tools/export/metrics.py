"""One number, or one word, of each operator of a report, over all of its tensors and iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.record import IO
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.series import TensorState

VERDICT: Final = "verdict"
DISTANCE: Final = "distance"
OWN_ERROR: Final = "own error"
STATE: Final = "state"
TIME: Final = "time in microseconds"

_STATES: Final = (
    (TensorState.NAN, "nan"),
    (TensorState.INF, "inf"),
    (TensorState.NEGATIVE_INF, "-inf"),
)


@dataclass(frozen=True, slots=True)
class OperatorMetric:
    """What is known of operators under one name.

    Attributes:
        name: ``verdict``, ``distance``, ``own error``, ``state``, ``time in microseconds``, or a statistic by
            its category.
        values: By the operator's place in the report: a number, which is finite, or a word.
    """

    name: str
    values: Mapping[int, float | str]

    @property
    def is_numeric(self) -> bool:
        """Whether all values are numbers."""
        return not any(isinstance(value, str) for value in self.values.values())


def of_operators(report: DumpReport) -> Iterator[OperatorMetric]:
    """Yield everything that is known of operators, each under its name; what is known of none is left out.

    Statistics are those of the outputs over all iterations: the smallest ``min``, of everything else the
    largest. What is not finite has no number; ``state`` names it.
    """
    verdicts = report.verdicts
    found: list[tuple[str, dict[int, float | str]]] = [
        (VERDICT, {place: str(each.worst.verdict) for place, each in verdicts.items() if place >= 0}),
        (DISTANCE, _finite({place: each.distance for place, each in verdicts.items() if place >= 0})),
        (OWN_ERROR, _finite({place: each.own_error for place, each in verdicts.items() if place >= 0})),
        (STATE, dict(_states(report))),
        *((name, _statistic(report, name)) for name in report.series.numbers),
        (TIME, _finite(report.times)),
    ]
    yield from (OperatorMetric(name, values) for name, values in found if values)


def _finite(values: Mapping[int, float]) -> dict[int, float | str]:
    return {place: float(value) for place, value in values.items() if np.isfinite(value)}


def _states(report: DumpReport) -> Iterator[tuple[int, str]]:
    series = report.series
    states = series.of_operators(len(report.operators))
    for place, of_iterations in enumerate(states):
        flags = int(np.bitwise_or.reduce(of_iterations)) if len(of_iterations) else 0
        if flags & TensorState.THERE:
            words = [word for flag, word in _STATES if flags & flag]
            yield place, " and ".join(words) or "finite"


def _statistic(report: DumpReport, name: str) -> dict[int, float | str]:
    """Return a statistic of each operator's outputs."""
    table = report.series.numbers[name]
    join: Callable[[float, float], float] = min if name == "min" else max
    values: dict[int, float] = {}
    for row, tensor in enumerate(report.series.tensors):
        if tensor.io is not IO.OUTPUT:
            continue
        known = table[row][np.isfinite(table[row])]
        if len(known):
            number = float(known.min() if name == "min" else known.max())
            values[tensor.operator] = join(values.get(tensor.operator, number), number)
    return _finite(values)
