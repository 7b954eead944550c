"""Operators of a dump in execution order: producers and source lines."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msdump import reading
from msdump.look import DumpedFolder
from msdump.read import GraphOperator, OperatorGraph, SourceKind
from msdump.record import IO
from msdump.store import TensorName, names

OperatorKey = tuple[int, str, str, str]
"""Rank, network and graph, type, name as files spell it."""


@dataclass(frozen=True, slots=True)
class ReportedOperator:
    """An operator of a dump, or of a graph of which the dump holds nothing.

    Attributes:
        key: Rank, network and graph, type, name as files spell it.
        name: Its full scoped name; the name in files if the full one is unknown.
        order: Place in the execution of its graph, from 1.
        reads: Places, in the list of all operators, of the operators that it reads.
        parameters: Names of the weights and graph inputs that it reads.
        described: The operator in the graph file, None without one.
        is_dumped: Whether the dump holds a tensor of it.
    """

    key: OperatorKey
    name: str
    order: int = 0
    reads: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    described: GraphOperator | None = field(default=None, repr=False, compare=False)
    is_dumped: bool = True

    @property
    def rank(self) -> int:
        """Number of the rank, or of the device."""
        return self.key[0]

    @property
    def place(self) -> str:
        """Network and graph, or model."""
        return self.key[1]

    @property
    def op_type(self) -> str:
        """Operator type."""
        return self.key[2]

    @property
    def is_parameter(self) -> bool:
        """Whether it is a weight or a graph input, which files show as an operator."""
        return self.op_type == names.PARAMETER

    @property
    def scope(self) -> str:
        """Full name without the last component, "" if unknown."""
        return self.name.rpartition("/")[0]

    @property
    def source_line(self) -> str:
        """The user's line that made it, ``net.py:12: x = self.fc(x)``; "" where it is not known."""
        return "" if self.described is None else self.described.source_line


def operators_in_order(
    dumped: Iterable[ReportedOperator], graphs: Mapping[tuple[int, str], OperatorGraph]
) -> tuple[ReportedOperator, ...]:
    """Return all operators, dumped or not, ordered by rank, graph and execution.

    ``dumped`` are the operators with tensors, in order of time; ``graphs`` are graph files by rank and place.
    """
    by_place: dict[tuple[int, str], list[ReportedOperator]] = {place: [] for place in graphs}
    for operator in dumped:
        by_place.setdefault(operator.key[:2], []).append(operator)
    listed: list[ReportedOperator] = []
    for place in sorted(by_place):
        merged, first = [*_merge_undumped(place, by_place[place], graphs.get(place))], len(listed)
        places = {each.name: first + number for number, each in reversed([*enumerate(merged)])}
        for number, operator in enumerate(merged, 1):
            sources = () if operator.described is None else operator.described.inputs
            reads = (places.get(each.name) for each in sources if each.kind is SourceKind.OPERATOR)
            others = (each for each in sources if each.kind in {SourceKind.WEIGHT, SourceKind.INPUT})
            listed.append(
                replace(
                    operator,
                    order=number,
                    reads=tuple(dict.fromkeys(each for each in reads if each is not None)),
                    parameters=tuple(dict.fromkeys(each.name for each in others)),
                )
            )
    return tuple(listed)


def reported_operator(folder: DumpedFolder, key: OperatorKey) -> ReportedOperator:
    """Return an operator of which a directory holds tensors."""
    _, _, op_type, op_name = key
    described = None
    if folder.graph is not None and op_type != names.PARAMETER:
        described = folder.graph.find(op_name)
    if described is not None:
        return ReportedOperator(key, described.full_name, described=described)
    full_name = folder.iteration.full_name(TensorName(op_type, op_name, 0, IO.OUTPUT, 0))
    return ReportedOperator(key, full_name or op_name)


def _merge_undumped(
    place: tuple[int, str], dumped: list[ReportedOperator], graph: OperatorGraph | None
) -> Iterator[ReportedOperator]:
    """Yield the operators of a graph file, with dumped ones that it lacks behind the one dumped before."""
    known = {} if graph is None else graph.operators
    waiting: dict[str, list[ReportedOperator]] = {}
    followers: dict[str, list[ReportedOperator]] = {}
    last = ""
    for operator in dumped:
        if operator.described is None:
            followers.setdefault(last, []).append(operator)
        else:
            last = operator.name
            waiting.setdefault(last, []).append(operator)
    yield from followers.get("", ())
    for name, described in known.items():
        if name in waiting:
            yield from waiting[name]
            yield from followers.get(name, ())
        elif not described.bodies:  # control flow nodes never have files
            key = (*place, described.op_type, described.file_name)
            yield ReportedOperator(key, name, described=described, is_dumped=False)


def places_by_name(operators: Iterable[ReportedOperator]) -> Mapping[tuple[int | None, str], int]:
    """Return list indices by rank and name, full or as in files; rank None finds operators of any rank."""
    places: dict[tuple[int | None, str], int] = {}
    for number, operator in enumerate(operators):
        for rank in (operator.rank, None):
            for name in (operator.name, operator.key[3]):
                places.setdefault((rank, name), number)
    return places


_AROUND: Final = 3  # lines shown before and after
_LARGEST: Final = 4 << 20  # most bytes of a source file that is read


@dataclass(frozen=True, slots=True)
class SourceExcerpt:
    """The source line that made an operator, with the lines around it.

    Attributes:
        file: The file, as the graph file names it.
        line: Number of the line, from 1.
        code: The line as it was when the graph was made.
        first: Number of the first line of ``around``.
        around: The lines around it; none where the file is not there any more, or has changed.
    """

    file: str
    line: int
    code: str
    first: int = 0
    around: tuple[str, ...] = ()


def source_excerpt(operator: GraphOperator | None) -> SourceExcerpt | None:
    """Return the user's line that made an operator, None where it is not known."""
    line = None if operator is None else operator.own_line
    if line is None:
        return None
    lines = _source_lines(line.file)
    number = line.line - 1
    if not 0 <= number < len(lines) or lines[number].strip() != line.code.strip():
        return SourceExcerpt(line.file, line.line, line.code.strip())
    first = max(0, number - _AROUND)
    around = lines[first : number + _AROUND + 1]
    return SourceExcerpt(line.file, line.line, line.code.strip(), first + 1, around)


@functools.lru_cache(maxsize=64)
def _source_lines(path: str) -> tuple[str, ...]:
    try:
        data = reading.read_bytes(path, _LARGEST)
    except OSError:
        return ()
    return tuple(data.decode(errors="replace").splitlines())
