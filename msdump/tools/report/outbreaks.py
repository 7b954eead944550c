"""NaN and infinities of a dump: the operators in which they begin, and those that they reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from msdump.graph.updates import written_inputs
from msdump.record import IO
from msdump.tools.report.operators import ReportedOperator
from msdump.tools.report.series import STRUCK, StatisticSeries, TensorState


@dataclass(slots=True)
class Outbreak:
    """An operator in which NaN or infinities begin.

    Attributes:
        operator: Its place in the list of operators.
        state: What its outputs hold.
        has_struck_input: Whether an input holds them already, of which nothing tells what wrote it.
        iterations: Numbers of the iterations in which they begin there.
        victims: Places of the operators that they reach, in the order of execution.
    """

    operator: int
    state: TensorState
    has_struck_input: bool
    iterations: list[int] = field(default_factory=list)
    victims: dict[int, None] = field(default_factory=dict)


def find(operators: Sequence[ReportedOperator], series: StatisticSeries) -> list[Outbreak]:
    """Return where NaN and infinities begin, by iteration and in the order of execution.

    An operator is the culprit where its outputs hold them and no operator that it reads, and none of its
    inputs, does. Without a graph, what follows a culprit and was not dumped with its inputs counts as
    reached. What a training step leaves in the weights reaches the iterations behind it.
    """
    states = series.of_operators(len(operators))
    struck = np.asarray(states & STRUCK, np.bool_)
    if not struck.any():
        return []
    inputs = _Inputs(series)
    found: dict[int, Outbreak] = {}
    places = _by_place(operators)
    for column, iteration in enumerate(series.iterations):
        if not struck[:, column].any():
            continue
        for members in places.values():
            walk = _Walk(operators, struck[:, column], inputs.of(column), found)
            for place in members:
                if struck[place, column]:
                    walk.visit(place, iteration, TensorState(int(states[place, column])))
    order = {number: column for column, number in enumerate(series.iterations)}
    return sorted(found.values(), key=lambda each: (order[each.iterations[0]], each.operator))


def _by_place(operators: Sequence[ReportedOperator]) -> Mapping[tuple[int, str], list[int]]:
    places: dict[tuple[int, str], list[int]] = {}
    for number, operator in enumerate(operators):
        places.setdefault((operator.rank, operator.place), []).append(number)
    return places


class _Inputs:
    """The states of the inputs of operators, in one iteration after the other."""

    def __init__(self, series: StatisticSeries) -> None:
        self._series = series
        self._rows = [row for row, each in enumerate(series.tensors) if each.io is IO.INPUT]

    def of(self, column: int) -> Mapping[int, bool]:
        """Return by operator whether one of its dumped inputs holds NaN or infinities."""
        tensors, states = self._series.tensors, self._series.states[:, column]
        held: dict[int, bool] = {}
        for row in self._rows:
            if states[row]:
                operator = tensors[row].operator
                held[operator] = held.get(operator, False) or bool(states[row] & STRUCK)
        return held


class _Walk:
    """One iteration of one graph, operator by operator."""

    def __init__(
        self,
        operators: Sequence[ReportedOperator],
        struck: np.ndarray,
        inputs: Mapping[int, bool],
        found: dict[int, Outbreak],
    ) -> None:
        self._operators = operators
        self._struck = struck
        self._inputs = inputs
        self._found = found
        self._owners: dict[int, Outbreak] = {}
        self._last: Outbreak | None = None
        self._earlier = next(iter(found.values()), None)

    def visit(self, place: int, iteration: int, state: TensorState) -> None:
        """Find what an operator that is struck has its NaN or infinities from."""
        owner = self._owner(place)
        if owner is not None:
            owner.victims[place] = None
        else:
            new = Outbreak(place, state, has_struck_input=self._inputs.get(place, False))
            owner = self._last = self._found.setdefault(place, new)
            owner.iterations.append(iteration)
        self._owners[place] = owner

    def _owner(self, place: int) -> Outbreak | None:
        operator = self._operators[place]
        for producer in operator.reads:
            if producer != place and self._struck[producer]:
                return self._owners.get(producer, self._last)
        has_struck_input = self._inputs.get(place)
        if place in self._found:
            return None
        if has_struck_input:
            return self._last or self._earlier
        is_unknown = has_struck_input is None and operator.described is None
        if is_unknown and self._last is not None:
            return self._last
        return self._earlier if has_struck_input is None and self._is_trained(operator) else None

    def _is_trained(self, operator: ReportedOperator) -> bool:
        """Tell whether an operator reads weights that an earlier iteration has struck."""
        if self._earlier is None or not operator.parameters:
            return False
        return any(written_inputs(each.op_type) for each in _described(self._operators, operator))


def _described(
    operators: Sequence[ReportedOperator], operator: ReportedOperator
) -> Iterator[ReportedOperator]:
    """Yield the operators of the same graph."""
    return (each for each in operators if (each.rank, each.place) == (operator.rank, operator.place))
