"""Tensors of a dump in the order of execution, read when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, overload

from msdump.record import IO
from msdump.store.read.records import Record
from msdump.store.read.selection import frames, markup
from msdump.store.read.selection.conditions import Conditions, Numbers, Predicate, Texts

if TYPE_CHECKING:
    from msdump.store.read.tensor_directories import Iteration

_SHOWN: Final = 20  # tensors that a notebook shows of a selection


class SelectableTensors(ABC):
    """What has tensors that can be selected, searched and shown as tables: a dump, and a selection of one."""

    @property
    @abstractmethod
    def tensors(self) -> TensorSelection:
        """Its tensors, also those of which only statistics were saved."""

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
        """Return those of its tensors of which all of this is true; None asks nothing.

        Args:
            scope: Scope, ``Default/conv1-Conv2d``, or module path, ``layers.0``, that holds the operator.
            type: Operator type or types, ``Conv2D``; ``*`` and ``?`` stand for other characters.
            name: Name or names of the operator: full, its last component, or as files spell it, likewise.
            iteration: Number of the iteration, several (a list, a range), or a slice.
            rank: Number of the rank, or of the device, likewise.
            io: "input" or "output".
            slot: Number of the input or output, likewise.
            where: A function that takes a record and tells whether it is wanted.

        Raises:
            ValueError: ``io`` is neither.
        """
        side = None if io is None else IO(io)
        conditions = Conditions(scope, type, name, iteration, rank, side, slot, where)
        return self.tensors.narrowed(conditions)

    def first_nonfinite(self, *, masks: bool = False) -> Record | None:
        """Return the first tensor with a NaN or an infinity in the order of execution, None without one.

        Statistics tell where they were saved; else elements are read, tensor after tensor, up to the first.

        Args:
            masks: Count -inf alone as well, which attention is masked with.

        Raises:
            DumpReadError: A file cannot be read.
        """
        return next((record for record in self.tensors.by_time() if _is_nonfinite(record, masks=masks)), None)

    def to_pandas(self, *, stats: bool = False) -> Any:
        """Return a pandas.DataFrame with a row for each tensor: its place, its file and its statistics.

        Args:
            stats: Measure what ``statistic.csv`` does not hold, which reads every file.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return frames.to_pandas(self.tensors, measures=stats)

    def to_arrow(self, *, stats: bool = False) -> Any:
        """Return a pyarrow.Table of the same rows as ``to_pandas``.

        Args:
            stats: Measure what ``statistic.csv`` does not hold, which reads every file.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        return frames.to_arrow(self.tensors, measures=stats)


class TensorSelection(SelectableTensors, Sequence[Record]):
    """Tensors of a dump, iteration by iteration, in the order of execution within each.

    A selection is lazy: directories are listed when it is iterated, files are read when a tensor's elements
    are asked for. ``len``, indices and ``in`` list all of its directories. Tensors of which only a row of
    ``statistic.csv`` was saved belong to it, too; their ``array`` cannot be read.

        dump.select(type="Conv2D", io="output", where=lambda record: record.stats.has_nan)
    """

    def __init__(self, iterations: Callable[[], Iterable[Iteration]], *conditions: Conditions) -> None:
        """Choose tensors.

        Args:
            iterations: Gives the directories of all iterations.
            conditions: What is asked of a tensor; all of them hold.
        """
        self._iterations = iterations
        self._conditions = conditions

    def __iter__(self) -> Iterator[Record]:
        """Yield the tensors.

        Raises:
            DumpReadError: A directory or its ``statistic.csv`` cannot be read.
        """
        for iteration in self._iterations():
            if self._holds(iteration):
                yield from filter(self._is_wanted, iteration.tensors)

    def _holds(self, iteration: Iteration) -> bool:
        return all(each.holds(iteration.number, iteration.rank) for each in self._conditions)

    def _is_wanted(self, record: Record) -> bool:
        return all(test(record) for test in self._tests)

    @cached_property
    def _tests(self) -> tuple[Predicate, ...]:
        return tuple(test for each in self._conditions for test in each.tests())

    @cached_property
    def _listed(self) -> tuple[Record, ...]:
        return tuple(iter(self))

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._listed)

    def __bool__(self) -> bool:
        """Tell whether there is a tensor; only as many directories are listed as that takes."""
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
        """The first tensor, None where there is none; lists only what that takes."""
        return next(iter(self), None)

    def narrowed(self, conditions: Conditions) -> TensorSelection:
        """Return those of its tensors that meet further conditions."""
        return TensorSelection(self._iterations, *self._conditions, conditions)

    @property
    def tensors(self) -> TensorSelection:
        """Itself."""
        return self

    def by_time(self) -> Iterator[Record]:
        """Yield the tensors as they came into being: in each iteration those of all ranks, graphs, bodies."""
        held = sorted(filter(self._holds, self._iterations()), key=_moment)
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
        return markup.table(records[:_SHOWN], has_more=len(records) > _SHOWN)


def _moment(iteration: Iteration) -> tuple[int, int]:
    return iteration.key.step or 0, iteration.number


def _is_nonfinite(record: Record, *, masks: bool) -> bool:
    stats = record.stats
    return bool(stats.has_nan or stats.has_infinity or (masks and stats.has_negative_infinity))
