"""Statistics of a tensor over the iterations of a dump: saved ones, others computed from elements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msdump.errors import DumpReadError, ToolError, name_hint
from msdump.read import Cell, Dump, Execution, describe_miss, find_operators
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.statistics import STATISTICS, Nature

Slot = tuple[IO, int]
"""An input or output of an operator."""

_SLOT: Final = re.compile(r"(input|output):([0-9]{1,6})")
_COUNTED: Final = " count"
_CATEGORIES: Final = {each.category for each in STATISTICS if each.nature is not Nature.DIGEST}
_SHORT: Final = {name.removesuffix(_COUNTED): name for name in _CATEGORIES if name.endswith(_COUNTED)}
_OTHER: Final = {"mean": "avg", "inf": "positive inf count", "-inf": "negative inf count"}

_NOTHING: Final = Execution(0, is_whole=True, records=(), statistics=())


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The statistics of a tensor at one moment.

    Attributes:
        iteration: Number of the iteration.
        execution: Number of the execution, where several left something in its directory; else 0.
        pass_number: Which run of the operator in the execution it is, from 0.
        values: The statistics by category; None where one was not saved and cannot be measured.
    """

    iteration: int
    execution: int
    pass_number: int
    values: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class TensorTrend:
    """The statistics of a tensor over time.

    Attributes:
        operator: Full name of its operator; the name that files have where that is all that is known.
        op_type: Type of its operator.
        rank: Number of the rank, or of the device.
        network: Network or model; "" for operators that were called alone.
        points: By iteration and pass; of one execution, where several left something in one directory.
    """

    operator: str
    op_type: str
    slot: Slot
    rank: int
    network: str
    points: list[TrendPoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TrendReport:
    """Statistics of tensors over time.

    Attributes:
        series: The tensors.
        unreadable: Faults of files that cannot be read; their statistics are None.
    """

    series: list[TensorTrend]
    unreadable: list[str]


def category(text: str) -> str:
    """Return the category of a statistic by its name, or a short form of it.

    >>> category("max"), category("mean"), category("nan")
    ('max', 'avg', 'nan count')
    """
    name = text.strip().lower()
    known = name if name in _CATEGORIES else _SHORT.get(name) or _OTHER.get(name, name)
    if known not in _CATEGORIES:
        names = [each.category.removesuffix(_COUNTED) for each in STATISTICS if each.category in _CATEGORIES]
        hint = name_hint(name, names)
        raise ToolError(ReturnCode.PARAMETER, f"no statistic {text!r}{hint}; there are {', '.join(names)}")
    return known


def slot(text: str) -> Slot:
    """Return an input or output by its name, ``output:0``."""
    match = _SLOT.fullmatch(text)
    if match is None:
        raise ToolError(ReturnCode.PARAMETER, f"{text!r} is not an input or output such as output:0")
    return IO(match[1]), int(match[2])


def trends(
    dump: Dump, operators: Sequence[str], slots: Sequence[Slot], categories: Sequence[str]
) -> TrendReport:
    """Return the statistics of operators' tensors over the iterations of a dump.

    Each rank and each execution has a series of its own. Names of operators are full, as files spell them,
    their last component or a part; ``*`` and ``?`` stand for other characters.

    Raises:
        ToolError: The dump has no such operator, or none of them has such an input or output.
    """
    records = [
        (iteration, execution.number, record)
        for iteration in dump.all_iterations
        for number, execution in enumerate(iteration.executions or (_NOTHING,))
        for record in (
            *execution.records,
            *iteration.measured(execution),
            *(() if number else iteration.measured_operators),
        )
    ]
    present: dict[str, set[str]] = {}
    for _, _, record in records:
        present.setdefault(record.full_name or record.op_name, set()).add(record.op_name)
    wanted: set[str] = set()
    for asked in operators:
        if not (found := find_operators(asked, present)):
            raise ToolError(ReturnCode.PARAMETER, describe_miss(asked, present))
        wanted.update(found)
    there: set[Slot] = set()
    series: dict[tuple[object, ...], TensorTrend] = {}
    unreadable: list[str] = []
    for iteration, execution, record in records:
        operator, slot = record.full_name or record.op_name, (record.io, record.slot)
        if operator not in wanted:
            continue
        there.add(slot)
        if slot in slots:
            rank, network = iteration.rank, iteration.network or ""
            values: dict[str, Cell] = dict.fromkeys(categories)
            try:
                statistics = (
                    record.stats
                )  # read once: statistics that were not saved are measured in one pass
                values = {name: statistics[name] for name in categories}
            except DumpReadError as error:
                unreadable.append(str(error))
            trend = series.setdefault(
                (rank, network, iteration.key.graph, execution, operator, slot),
                TensorTrend(operator, record.op_type, slot, rank, network),
            )
            trend.points.append(TrendPoint(iteration.step, execution, record.pass_number, values))
    if not there & {*slots}:
        chosen, has = (", ".join(f"{io}:{number}" for io, number in sorted(each)) for each in (slots, there))
        raise ToolError(ReturnCode.PARAMETER, f"no {chosen} of these operators was dumped; there are {has}")
    for trend in series.values():
        trend.points.sort(key=lambda point: (point.iteration, point.pass_number))
    return TrendReport(list(series.values()), unreadable)
