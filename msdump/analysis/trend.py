"""Statistics of a tensor over the iterations of a dump: saved ones, others computed from elements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msdump.errors import DumpReadError, ToolError, name_hint
from msdump.read import Cell, Dump, Execution, Iteration, Record, has_name
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.statistics import STATISTICS, Nature

Slot = tuple[IO, int]
"""An input or output of an operator."""

_SLOT: Final = re.compile(r"(input|output):([0-9]{1,6})")
_LISTED: Final = 8  # most names in a message
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
        slot: Which input or output it is.
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

    Raises:
        ToolError: There is no such number.
    """
    name = text.strip().lower()
    known = name if name in _CATEGORIES else _SHORT.get(name) or _OTHER.get(name, name)
    if known not in _CATEGORIES:
        names = [each.category.removesuffix(_COUNTED) for each in STATISTICS if each.category in _CATEGORIES]
        hint = name_hint(name, names)
        raise ToolError(ReturnCode.PARAMETER, f"no statistic {text!r}{hint}; there are {', '.join(names)}")
    return known


def slot(text: str) -> Slot:
    """Return an input or output by its name, ``output:0``.

    Raises:
        ToolError: The text is none.
    """
    match = _SLOT.fullmatch(text)
    if match is None:
        raise ToolError(ReturnCode.PARAMETER, f"{text!r} is not an input or output such as output:0")
    return IO(match[1]), int(match[2])


def trends(
    dump: Dump, operators: Sequence[str], slots: Sequence[Slot], categories: Sequence[str]
) -> TrendReport:
    """Return the statistics of operators' tensors over the iterations of a dump.

    Each rank and each execution has a series of its own. Names of operators are full, as files spell them
    or their last component; ``*`` and ``?`` stand for other characters.

    Raises:
        ToolError: The dump has no such operator, or none of them has such an input or output.
    """
    wanted = [has_name(name) for name in operators]
    seen: dict[str, bool] = dict.fromkeys(operators, False)
    present: dict[str, None] = {}
    there: set[Slot] = set()
    series: dict[tuple[object, ...], TensorTrend] = {}
    unreadable: list[str] = []
    for iteration, execution, record in _records(dump):
        present.setdefault(record.full_name or record.op_name)
        hits = [name for name, matches in zip(operators, wanted, strict=True) if matches(record)]
        for name in hits:
            seen[name] = True
        if not hits:
            continue
        there.add((record.io, record.slot))
        if (record.io, record.slot) in slots:
            operator, slot = record.full_name or record.op_name, (record.io, record.slot)
            rank, network = iteration.rank, iteration.network or ""
            values = _values(record, categories, unreadable)
            trend = series.setdefault(
                (rank, network, iteration.key.graph, execution, operator, slot),
                TensorTrend(operator, record.op_type, slot, rank, network),
            )
            trend.points.append(TrendPoint(iteration.step, execution, record.pass_number, values))
    _check(seen, present, there, slots)
    for trend in series.values():
        trend.points.sort(key=lambda point: (point.iteration, point.pass_number))
    return TrendReport(list(series.values()), unreadable)


def _records(dump: Dump) -> Iterator[tuple[Iteration, int, Record]]:
    for iteration in dump.all_iterations:
        for number, execution in enumerate(iteration.executions or (_NOTHING,)):
            of_operators = () if number else iteration.measured_operators
            for record in (*execution.records, *iteration.measured(execution), *of_operators):
                yield iteration, execution.number, record


def _values(record: Record, categories: Sequence[str], unreadable: list[str]) -> dict[str, Cell]:
    """Return the statistics of a tensor, or None and the reason if its file cannot be read."""
    try:
        statistics = record.stats  # read once: statistics that were not saved are all measured in one pass
        return {name: statistics[name] for name in categories}
    except DumpReadError as error:
        unreadable.append(str(error))
        return dict.fromkeys(categories)


def _check(seen: Mapping[str, bool], present: Iterable[str], there: set[Slot], slots: Sequence[Slot]) -> None:
    names = [*present]
    for operator, is_there in seen.items():
        if not is_there:
            raise ToolError(
                ReturnCode.PARAMETER, f"no operator {operator!r} was dumped{alike(operator, names)}"
            )
    if not there & {*slots}:
        asked, has = (", ".join(f"{io}:{number}" for io, number in sorted(each)) for each in (slots, there))
        raise ToolError(ReturnCode.PARAMETER, f"no {asked} of these operators was dumped; there are {has}")


def alike(operator: str, names: Sequence[str]) -> str:
    """Return a hint for an unknown operator name: similar names, or else some existing ones."""
    text = operator.strip("*?").lower()
    like = [name for name in names if text and text in name.lower()]
    hint = "" if like else name_hint(operator, [*names, *(name.rpartition("/")[2] for name in names)])
    shown = like or ([] if hint else names)
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    there = f"; there are {', '.join(shown[:_LISTED])}{more}" if shown else ""
    return f"{hint}{there}"
