"""The statistics of all tensors over the iterations: one table for each statistic, tensors x iterations."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump.graph.updates import written_inputs
from msdump.record import IO
from msdump.store.read.graphs.operator_graph import SourceKind
from msdump.tools.report.columns import CATEGORIES, MeasuredColumns, MeasuredName
from msdump.tools.report.operators import OperatorKey, ReportedOperator
from msdump.tools.watching.dumped import DumpedFolder

_Key = tuple[OperatorKey, str, int]
"""Operator, input or output, its number."""

_SMALLEST: Final = frozenset({"min"})
_REAL: Final = ("max", "min", "avg", "l2norm")
_NAN, _INF, _NEGATIVE_INF = "nan count", "positive inf count", "negative inf count"


class TensorState(enum.IntFlag):
    """What a tensor holds besides numbers."""

    THERE = 1
    """It was dumped."""
    NAN = 2
    INF = 4
    NEGATIVE_INF = 8


STRUCK: Final = int(TensorState.NAN | TensorState.INF)
"""The states of a tensor that counts as struck; -inf alone, with which attention is masked, does not."""


@dataclass(frozen=True, slots=True)
class ReportedTensor:
    """An input or output of an operator.

    Attributes:
        operator: Place of its operator in the list.
        io: Input or output.
        slot: Its number.
        dtype: Element type, "" where it is not known.
        shape: Its shape, ``2x3``; "" of a scalar.
        is_shown: Whether it stands for itself: outputs, and inputs that no operator of the dump wrote.
    """

    operator: int
    io: IO
    slot: int
    dtype: str
    shape: str
    is_shown: bool


@dataclass(frozen=True)
class StatisticSeries:
    """The statistics of tensors over iterations.

    Attributes:
        iterations: Numbers of the iterations, the columns of the tables.
        tensors: The tensors, the rows of the tables: operator by operator in the order of execution.
        states: ``TensorState`` of each tensor in each iteration, uint8.
        numbers: The statistics by category, float64; NaN where there is none. Of an operator that ran
            several times in an iteration the largest, for ``min`` the smallest, counts are added.
    """

    iterations: tuple[int, ...]
    tensors: tuple[ReportedTensor, ...]
    states: np.ndarray = field(repr=False)
    numbers: Mapping[str, np.ndarray] = field(repr=False)

    def of_operators(self, count: int) -> np.ndarray:
        """Return the states of operators by their outputs; of what has none, by what it shows."""
        states = np.zeros((count, len(self.iterations)), np.uint8)
        for number, tensor in enumerate(self.tensors):
            if tensor.is_shown and (tensor.io is IO.OUTPUT or not states[tensor.operator].any()):
                states[tensor.operator] |= self.states[number]
        return states


def spans(numbers: Sequence[int]) -> str:
    """Return sorted numbers in words.

    >>> spans([0, 1, 2, 5])
    '0-2, 5'
    """
    stretches: list[list[int]] = []
    for number in numbers:
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in stretches)


class SeriesTable:
    """Statistics as the directories of a dump give them, one after the other."""

    def __init__(self) -> None:
        """Begin without any."""
        self._numbers: dict[_Key, int] = {}
        self._forms: list[tuple[str, str]] = []
        self._columns: dict[int, int] = {}
        self._parts: list[tuple[int, np.ndarray, Mapping[str, np.ndarray], np.ndarray]] = []

    def add(self, folder: DumpedFolder, measured: MeasuredColumns) -> None:
        """Take in the tensors of a directory."""
        column = self._columns.setdefault(folder.number, len(self._columns))
        place = (folder.rank, folder.place)
        rows = np.fromiter(map(self._number, _keys(place, measured.names)), np.int64, len(measured.names))
        known = len(self._forms)
        self._forms += [("", "")] * (len(self._numbers) - known)
        if known < len(self._forms) or not all(self._forms[row][0] for row in rows.tolist()):
            for row, form in zip(rows.tolist(), measured.forms, strict=True):
                if not self._forms[row][0]:
                    self._forms[row] = form
        self._parts.append((column, rows, measured.numbers, _states(measured)))

    def _number(self, key: _Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def of(self, operators: Sequence[ReportedOperator]) -> StatisticSeries:
        """Return the series of the tensors of some operators."""
        places = {operator.key: number for number, operator in enumerate(operators)}
        written = {(places[key], slot) for key, io, slot in self._numbers if io == IO.OUTPUT}
        writers = {operator for operator, _ in written}
        tensors, old = [], []
        for (key, io, slot), number in self._numbers.items():
            place = places[key]
            is_shown = io == IO.OUTPUT or _is_own(operators[place], slot, has_output=place in writers)
            tensors.append(ReportedTensor(place, IO(io), slot, *self._forms[number], is_shown))
            old.append(number)
        order = sorted(range(len(tensors)), key=lambda each: _order(tensors[each]))
        new_of_old = np.empty(len(order), np.int64)
        new_of_old[[old[each] for each in order]] = np.arange(len(order))
        return self._assembled(tuple(tensors[each] for each in order), new_of_old)

    def _assembled(self, tensors: tuple[ReportedTensor, ...], rows: np.ndarray) -> StatisticSeries:
        iterations = sorted(self._columns)
        places = {self._columns[number]: place for place, number in enumerate(iterations)}
        states = np.zeros((len(tensors), len(iterations)), np.uint8)
        there = {category for _, _, numbers, _ in self._parts for category in numbers}
        tables = {category: np.full(states.shape, np.nan) for category in CATEGORIES if category in there}
        for column, old_rows, numbers, part_states in self._parts:
            place, new_rows = places[column], rows[old_rows]
            np.bitwise_or.at(states[:, place], new_rows, part_states)
            for category, values in numbers.items():
                _put(category, tables[category][:, place], new_rows, values)
        return StatisticSeries(tuple(iterations), tensors, states, tables)


def _keys(place: tuple[int, str], names: Sequence[MeasuredName]) -> Iterator[_Key]:
    rank, network = place
    for op_type, op_name, io, slot in names:
        yield (rank, network, op_type, op_name), io, slot


def _order(tensor: ReportedTensor) -> tuple[int, bool, int]:
    return (tensor.operator, tensor.io is IO.INPUT, tensor.slot)


def _is_own(operator: ReportedOperator, slot: int, *, has_output: bool) -> bool:
    """Tell whether an input is what no other operator shows: a weight, what it writes, or all there is."""
    if not has_output or slot in written_inputs(operator.op_type):
        return True
    sources = () if operator.described is None else operator.described.inputs
    return slot < len(sources) and sources[slot].kind is not SourceKind.OPERATOR


def _put(category: str, table: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Put values into a column; of one row several are joined, and a number stays beside no number."""
    if category in _SMALLEST:
        np.fmin.at(table, rows, values)
    elif category.endswith("count"):
        is_known = ~np.isnan(values)
        rows, values = rows[is_known], values[is_known]
        table[rows[np.isnan(table[rows])]] = 0
        np.add.at(table, rows, values)
    else:
        np.fmax.at(table, rows, values)


def _states(measured: MeasuredColumns) -> np.ndarray:
    states = np.full(len(measured.names), TensorState.THERE, np.uint8)
    numbers, known = measured.numbers, measured.known

    def mark(flag: TensorState, is_so: np.ndarray) -> None:
        states[is_so] |= np.uint8(flag)

    for category in _REAL:
        if category in numbers:
            mark(TensorState.NAN, np.isnan(numbers[category]) & known[category])
    if "max" in numbers:
        mark(TensorState.INF, numbers["max"] == np.inf)
    if "min" in numbers:
        mark(TensorState.NEGATIVE_INF, numbers["min"] == -np.inf)
    counted = ((_NAN, TensorState.NAN), (_INF, TensorState.INF), (_NEGATIVE_INF, TensorState.NEGATIVE_INF))
    for category, flag in counted:
        if category in numbers:
            mark(flag, np.nan_to_num(numbers[category]) > 0)
    return states
