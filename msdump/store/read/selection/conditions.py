"""What a selection asks of a tensor: its place, its operator, its slot."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, TypeAlias

from msdump.record import IO, lies_in

if TYPE_CHECKING:
    from msdump.store.read.records import Record

Numbers: TypeAlias = int | slice | Container[int] | None
"""Numbers that are wanted: one, several (a list, a range), a slice such as ``slice(3, 10)``, None: all."""

Texts: TypeAlias = str | Iterable[str] | None
"""Texts that are wanted, in which ``*`` and ``?`` stand for other characters; None: all."""

Predicate: TypeAlias = "Callable[[Record], object]"
"""Tells of a tensor whether it is wanted."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is asked of a tensor; what is None asks nothing.

    Attributes:
        scope: Scope, ``Default/conv1-Conv2d``, or module path, ``layers.0``, whole or in part, that holds the
            operator.
        op_type: Operator type; upper and lower case are the same.
        name: Full name of the operator, its last component, its name as files spell it.
        iteration: Number of the iteration.
        rank: Number of the rank or device.
        io: Input or output.
        slot: Number of the input or output.
        where: What else is asked.
    """

    scope: str | None = None
    op_type: Texts = None
    name: Texts = None
    iteration: Numbers = None
    rank: Numbers = None
    io: IO | None = None
    slot: Numbers = None
    where: Predicate | None = None

    def holds(self, iteration: int, rank: int) -> bool:
        """Tell whether tensors of an iteration of a rank may be wanted."""
        return is_wanted(iteration, self.iteration) and is_wanted(rank, self.rank)

    def tests(self) -> tuple[Predicate, ...]:
        """Return what is asked as functions of a tensor, the cheap ones first."""
        chosen: list[Predicate] = []
        if self.io is not None:
            chosen.append(lambda record: record.io == self.io)
        if self.slot is not None:
            chosen.append(lambda record: is_wanted(record.slot, self.slot))
        if self.op_type is not None:
            chosen.append(_of_type(_expressions(self.op_type, re.IGNORECASE)))
        if self.name is not None:
            chosen.append(_of_name(_expressions(self.name)))
        if self.scope is not None:
            chosen.append(_in_scope(self.scope))
        if self.where is not None:
            chosen.append(self.where)
        return tuple(chosen)


def is_wanted(number: int, wanted: Numbers) -> bool:
    """Tell whether a number is among those that are wanted.

    >>> is_wanted(3, None), is_wanted(3, 3), is_wanted(3, slice(4)), is_wanted(3, slice(4, None))
    (True, True, True, False)
    >>> is_wanted(3, [1, 2]), is_wanted(3, range(10))
    (False, True)
    """
    match wanted:
        case None:
            return True
        case slice():
            # a slice of all numbers from 0 on; negative bounds would need to know the last one
            stop = number + 1 if wanted.stop is None else wanted.stop
            return number in range(wanted.start or 0, stop, wanted.step or 1)
        case int():
            return number == wanted
        case _:
            return number in wanted


def _expressions(texts: str | Iterable[str], flags: int = 0) -> tuple[re.Pattern[str], ...]:
    each = (texts,) if isinstance(texts, str) else texts
    return tuple(re.compile(translate(text), flags) for text in each)


def _of_type(expressions: tuple[re.Pattern[str], ...]) -> Predicate:
    return lambda record: any(expression.match(record.op_type) for expression in expressions)


def _of_name(expressions: tuple[re.Pattern[str], ...]) -> Predicate:
    def matches(record: Record) -> bool:
        full_name = record.full_name or ""
        names = (record.op_name, full_name, full_name.rpartition("/")[2])
        return any(expression.match(name) for expression in expressions for name in names)

    return matches


def _in_scope(scope: str) -> Predicate:
    return lambda record: lies_in(record.full_name or record.op_name, scope)
