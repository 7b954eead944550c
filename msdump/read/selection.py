"""Tensors of a dump chosen by place and operator: lazy sequences, with data frames and HTML tables."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from fnmatch import translate
from functools import cached_property
from html import escape
from itertools import groupby, islice
from typing import Any, Final, TypeAlias, overload

from msdump.errors import DumpReadError, MsdumpError
from msdump.read.records import Directory, Record
from msdump.record import IO, lies_in
from msdump.statistics import BY_CATEGORY

Numbers: TypeAlias = int | slice | Container[int] | None
"""Numbers that are wanted: one, several (a list, a range), a slice such as ``slice(3, 10)``, None: all."""

Texts: TypeAlias = str | Iterable[str] | None
"""Texts that are wanted, in which ``*`` and ``?`` stand for other characters; None: all."""

Predicate: TypeAlias = Callable[[Record], object]
"""Returns whether a tensor is wanted."""


def is_wanted(number: int, wanted: Numbers) -> bool:
    """Return whether a number is among the wanted ones.

    >>> is_wanted(3, None), is_wanted(3, 3), is_wanted(3, slice(4)), is_wanted(3, slice(4, None))
    (True, True, True, False)
    >>> is_wanted(3, [1, 2]), is_wanted(3, range(10))
    (False, True)
    """
    match wanted:
        case None:
            return True
        case slice():
            # a slice over all numbers from 0 on: there is no last one that negative bounds could count from
            stop = number + 1 if wanted.stop is None else wanted.stop
            return number in range(wanted.start or 0, stop, wanted.step or 1)
        case int():
            return number == wanted
        case _:
            return number in wanted


def _expressions(texts: str | Iterable[str], flags: int = 0) -> tuple[re.Pattern[str], ...]:
    each = (texts,) if isinstance(texts, str) else texts
    return tuple(re.compile(translate(text), flags) for text in each)


def has_name(texts: str | Iterable[str]) -> Predicate:
    """Return a test for an operator's name: full, its last component, or as files spell it.

    In the name, or in several, ``*`` and ``?`` stand for other characters.
    """
    expressions = _expressions(texts)

    def matches(record: Record) -> bool:
        full_name = record.full_name or ""
        names = (record.op_name, full_name, full_name.rpartition("/")[2])
        return any(expression.match(name) for expression in expressions for name in names)

    return matches


_PLACE: Final = (
    *("rank", "network", "graph", "iteration", "execution", "pass"),
    *("op_type", "op_name", "full_name", "scope", "io", "slot", "dtype", "format", "timestamp", "path"),
)
_CATEGORIES: Final = tuple(BY_CATEGORY)


def columns(records: Iterable[Record], *, measures: bool) -> dict[str, list[Any]]:
    """Return the columns of a table with a row for each tensor.

    Statistics are columns by their categories ("max", "l2norm", "nan count"), None where there is none.
    With ``measures`` the ones that ``statistic.csv`` lacks are computed, which reads every file.

    Raises:
        DumpReadError: A file cannot be read.
    """
    table: dict[str, list[Any]] = {title: [] for title in (*_PLACE, *_CATEGORIES)}
    for record in records:
        key, name = record.directory.key, record.name
        try:
            dtype = record.dtype
        except DumpReadError:  # a torn file still gets a row
            dtype = None
        known = record.stats if measures else record.stats.saved
        cells = (
            *(record.rank, key.net if key.model is None else key.model),
            *(key.graph if key.model_id is None else key.model_id, record.iteration),
            *(record.execution, record.pass_number, record.op_type, record.op_name, record.full_name),
            *(record.scope, str(record.io), record.slot, dtype, name.format, name.timestamp),
            *(record.path, *map(known.get, _CATEGORIES)),
        )
        for column, cell in zip(table.values(), cells, strict=True):
            column.append(cell)
    # a statistic that no tensor has gets no column
    return {title: cells for title, cells in table.items() if title in _PLACE or set(cells) != {None}}


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        remedy = "install it, or msdump with its extra: pip install 'msdump[frames]'"
        raise ModuleNotFoundError(f"{name} is not installed; {remedy}", name=name) from error


_HEADINGS: Final = ("rank", "iteration", "operator", "type", "tensor", "dtype", "shape", "saved statistics")


def table(records: Sequence[Record], *, has_more: bool) -> str:
    """Return an HTML table with a row for each tensor; no elements are read."""
    head, rows = "".join(f"<th>{title}</th>" for title in _HEADINGS), ""
    for record in records:
        try:
            form = record.dtype, "x".join(map(str, record.shape)) or "scalar"
        except MsdumpError as error:  # a torn file must not hide the others
            form = "", f"unreadable: {error}"
        number = f", pass {record.pass_number}" if record.pass_number else ""
        cells = (
            *(str(record.rank), str(record.iteration), f"{record.full_name or record.op_name}{number}"),
            *(record.op_type, f"{record.io}:{record.slot}", *form),
            ", ".join(f"{name} {cell}" for name, cell in record.stats.saved.items()),
        )
        rows += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    more = f"<p>and more; the first {len(records)} are shown</p>" if has_more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


_SHOWN: Final = 20  # tensors that a notebook shows of a selection


class SelectableTensors(ABC):
    """Base class of dumps and selections: their tensors can be selected, searched and shown as tables."""

    @property
    @abstractmethod
    def tensors(self) -> TensorSelection:
        """Its tensors, also tensors of which only statistics were saved."""

    def select(
        self,
        *,
        scope: str | None = None,
        type: Texts = None,  # noqa: A002 - the word that its users know
        name: Texts = None,
        iteration: Numbers = None,
        rank: Numbers = None,
        io: str | None = None,
        slot: Numbers = None,
        where: Predicate | None = None,
    ) -> TensorSelection:
        """Return the tensors that match all conditions; None matches every tensor.

        Args:
            scope: Scope of the operator, ``Default/conv1-Conv2d``, or module path, ``layers.0``.
            type: Operator type or types, ``Conv2D``, with ``*`` and ``?``.
            name: Operator name or names, with ``*`` and ``?``: full, last component, or name in files.
            iteration: Number of the iteration, several (a list, a range), or a slice.
            rank: Number of the rank or device, several, or a slice.
            io: "input" or "output".
            slot: Number of the input or output, several, or a slice.
            where: A function of a record that returns whether the record matches.

        Raises:
            ValueError: ``io`` is not "input" or "output".
        """
        tests: list[Predicate] = []  # the cheap ones first
        if io is not None:
            side = IO(io)
            tests.append(lambda record: record.io == side)
        if slot is not None:
            tests.append(lambda record: is_wanted(record.slot, slot))
        if type is not None:
            types = _expressions(type, re.IGNORECASE)
            tests.append(lambda record: any(each.match(record.op_type) for each in types))
        if name is not None:
            tests.append(has_name(name))
        if scope is not None:
            tests.append(lambda record: lies_in(record.full_name or record.op_name, scope))
        if where is not None:
            tests.append(where)
        return self.tensors.narrowed(iteration, rank, tests)

    def first_nonfinite(self, *, masks: bool = False) -> Record | None:
        """Return the first tensor with NaN or an infinity in execution order, None if there is none.

        The search uses saved statistics, and reads the elements of tensors without statistics.

        Args:
            masks: Also count tensors with -inf only, as in attention masks.

        Raises:
            DumpReadError: A file cannot be read.
        """
        for record in self.tensors.by_time():
            stats = record.stats
            if stats.has_nan or stats.has_infinity or (masks and stats.has_negative_infinity):
                return record
        return None

    def to_pandas(self, *, stats: bool = False) -> Any:
        """Return a pandas.DataFrame with one row per tensor: place, file and statistics.

        Args:
            stats: Also compute the statistics that were not saved; this reads every file.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return _library("pandas").DataFrame(columns(self.tensors, measures=stats))

    def to_arrow(self, *, stats: bool = False) -> Any:
        """Return a pyarrow.Table with the rows of ``to_pandas``.

        Args:
            stats: Also compute the statistics that were not saved; this reads every file.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        return _library("pyarrow").table(columns(self.tensors, measures=stats))


class TensorSelection(SelectableTensors, Sequence[Record]):
    """Tensors of a dump, iteration by iteration, in the order of execution within each.

    A selection is lazy: iteration lists directories, and access to the elements of a tensor reads its file.
    ``len``, indices and ``in`` list all directories. Tensors with only a row of ``statistic.csv`` are
    included; their ``array`` cannot be read.

        dump.select(type="Conv2D", io="output", where=lambda record: record.stats.has_nan)
    """

    def __init__(self, iterations: Callable[[], Iterable[Directory]], *tests: Predicate) -> None:
        """Choose the tensors of iterations, which are listed lazily, that pass all tests."""
        self._iterations = iterations
        self._tests = tests

    def __iter__(self) -> Iterator[Record]:
        """Yield the tensors; DumpReadError if a directory or its ``statistic.csv`` cannot be read."""
        for iteration in self._iterations():
            yield from filter(self._is_wanted, iteration.tensors)

    def _is_wanted(self, record: Record) -> bool:
        return all(test(record) for test in self._tests)

    @cached_property
    def _listed(self) -> tuple[Record, ...]:
        return tuple(iter(self))

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._listed)

    def __bool__(self) -> bool:
        """Return whether there is a tensor; lists no more directories than needed."""
        return next(iter(self), None) is not None

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        """Return a tensor, or several."""
        return self._listed[index]

    @property
    def first(self) -> Record | None:
        """The first tensor, None if there is none; lists only the directories before it."""
        return next(iter(self), None)

    def narrowed(self, iteration: Numbers, rank: Numbers, tests: Iterable[Predicate]) -> TensorSelection:
        """Return the tensors of some iterations and ranks that meet further conditions."""

        def iterations() -> Iterator[Directory]:
            for each in self._iterations():
                if is_wanted(each.number, iteration) and is_wanted(each.rank, rank):
                    yield each

        return TensorSelection(iterations, *self._tests, *tests)

    @property
    def tensors(self) -> TensorSelection:
        """The selection itself."""
        return self

    def by_time(self) -> Iterator[Record]:
        """Yield the tensors in order of time: iteration by iteration, over all ranks, graphs and bodies."""
        held = sorted(self._iterations(), key=_moment)
        for _, group in groupby(held, key=_moment):
            records = (record for iteration in group for record in iteration.tensors)
            # parameters are saved at the end of a step: an operator that reads one shows it first
            in_order = sorted(records, key=lambda record: (record.is_parameter, record.timestamp))
            yield from filter(self._is_wanted, in_order)

    def __repr__(self) -> str:
        """Return the first tensors, a line each."""
        records = list(islice(self, _SHOWN + 1))
        count = str(len(records)) if len(records) <= _SHOWN else f"more than {_SHOWN}"
        return "\n  ".join((f"<TensorSelection of {count} tensors>", *map(str, records[:_SHOWN])))

    def _repr_html_(self) -> str:
        """Return a table of the first tensors, as notebooks show it."""
        records = list(islice(self, _SHOWN + 1))
        return table(records[:_SHOWN], has_more=len(records) > _SHOWN)


def _moment(iteration: Directory) -> tuple[int, int]:
    return iteration.key.step or 0, iteration.number
