"""Which operators and iterations are dumped: ``dump_mode``, items of ``kernels``, sets of numbers."""

from __future__ import annotations

import enum
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from msdump.errors import ConfigValueError, Problem
from msdump.reasons import Reason

_ADVANCE: Final = 2.0  # seconds of processor time for the first name
_PER_NAME: Final = 0.001  # seconds more for each name, so that a large graph has time in proportion
_MOST_KEPT: Final = 256


class Expression:
    """A regular expression with a limit of processor time, since backtracking may take exponential time."""

    def __init__(self, text: str, *, searches: bool) -> None:
        """Compile an expression of the ``regex`` package that matches anywhere in a name, or all of it."""
        import regex  # unlike re it takes a time limit, and stops in the middle of a match

        # std::regex has classes such as \d and \w for ASCII only
        compiled = regex.compile(text, regex.ASCII)
        self._match = compiled.search if searches else compiled.fullmatch
        self._time_left = _ADVANCE

    def matches(self, name: str) -> bool:
        """Return whether a name matches; TimeoutError once the time for all names so far is spent."""
        # processor time: a busy machine, or a suspended one, must not make a good expression fail
        started = time.process_time()
        try:
            match = self._match(name, timeout=self._time_left)
        except TimeoutError:
            self._time_left = _ADVANCE
            raise
        spent = time.process_time() - started
        # time that fast matches leave over is kept for slow ones, up to the limit _ADVANCE
        self._time_left = max(_PER_NAME, min(_ADVANCE, self._time_left - spent + _PER_NAME))
        return match is not None


@lru_cache(maxsize=_MOST_KEPT)
def expression(text: str, *, searches: bool) -> Expression:
    """Return the compiled expression of a text, one object for each text so that its time adds up.

    >>> expression("Default/.+", searches=False).matches("Default/conv1-Conv2d/Conv2D-op0")
    True
    >>> expression("Conv", searches=False).matches("Default/conv1-Conv2d/Conv2D-op0")
    False
    >>> expression("Conv", searches=True).matches("Default/conv1-Conv2d/Conv2D-op0")
    True
    """
    return Expression(text, searches=searches)


_LAST: Final = 1 << 64
"""Above every iteration: (number, _LAST) sorts behind all spans that start at the number."""


@dataclass(frozen=True, slots=True)
class IterationSet:
    """A set of iteration numbers.

    >>> numbers = IterationSet.of([(5, 8), (0, 0), (7, 9)])
    >>> str(numbers), 8 in numbers, 3 in numbers
    ('0|5-9', True, False)
    >>> str(numbers.including(10)), numbers.first_outside(5)
    ('0|5-10', 10)
    >>> str(numbers.excluding(6)), str(numbers.excluding(0)), str(numbers.excluding(4))
    ('0|5|7-9', '5-9', '0|5-9')
    >>> str(IterationSet()), 10**9 in IterationSet()
    ('all', True)
    """

    # closed ranges, sorted, disjoint and not adjacent; None: every iteration
    spans: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def of(cls, spans: list[tuple[int, int]]) -> IterationSet:
        """Return the union of closed ranges, in any order and overlap."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(spans):
            # adjacent spans become one, so that the shortest text is printed
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def of_numbers(cls, numbers: Iterable[int]) -> IterationSet:
        """Return the set of numbers in any order."""
        return cls.of([(number, number) for number in numbers])

    def __contains__(self, iteration: object) -> bool:
        """Tell whether an iteration belongs to the set."""
        if self.spans is None:
            return True
        if not isinstance(iteration, int):
            return False
        index = bisect_right(self.spans, (iteration, _LAST)) - 1
        return index >= 0 and self.spans[index][0] <= iteration <= self.spans[index][1]

    def including(self, iteration: int) -> IterationSet:
        """Return the set with one more iteration."""
        if self.spans is None:
            return self
        if self.spans and iteration == self.spans[-1][1] + 1:  # the usual case, without a sort
            return IterationSet((*self.spans[:-1], (self.spans[-1][0], iteration)))
        return IterationSet.of([*self.spans, (iteration, iteration)])

    def excluding(self, iteration: int) -> IterationSet:
        """Return the set, which must be finite, without an iteration."""
        assert self.spans is not None, "every iteration belongs to the set"
        parts = [
            part
            for low, high in self.spans
            for part in ((low, min(high, iteration - 1)), (max(low, iteration + 1), high))
        ]
        return IterationSet(tuple((low, high) for low, high in parts if low <= high))

    def first_outside(self, iteration: int) -> int:
        """Return the first number from ``iteration`` on that is not in the set, which must be finite."""
        assert self.spans is not None, "every iteration belongs to the set"
        index = bisect_right(self.spans, (iteration, _LAST)) - 1
        return iteration if iteration not in self else self.spans[index][1] + 1

    def __str__(self) -> str:
        """Return the shortest text of the iteration grammar for the set."""
        if self.spans is None:
            return "all"
        return "|".join(str(low) if low == high else f"{low}-{high}" for low, high in self.spans)


class DumpMode(enum.IntEnum):
    """Which operators are dumped (``dump_mode``)."""

    ALL = 0
    KERNELS = 1
    MARKED = 2


class PatternKind(enum.StrEnum):
    """How a ``kernels`` item matches an operator's full name."""

    REGEX = "regex"
    NAME = "name"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class KernelPattern:
    """One item of ``kernels``."""

    kind: PatternKind  # regex, exact name, or operator type
    text: str
    item: str  # the item as the user wrote it, for messages
    searches: bool = False  # for a regex: match anywhere in the name (O2) instead of the whole name
    translated: str = ""
    place: str = "kernels"  # where the item stands, for messages

    def matches(self, full_name: str) -> bool:
        """Tell whether the item selects an operator or parameter by its full name.

        A type is a case-insensitive substring of the text after the last "/"
        and before the last "-" of the name (O0/O1 ``kernels``); it therefore
        also matches parameters, as the reference does. Spaces of a name do not
        count: the reader removes the item's, as the reference does.

        Raises:
            ConfigValueError: Matching a regex takes too long.
        """
        # vendor: MindSpore strips the spaces of an item, which then could match no name with spaces
        full_name = full_name.replace(" ", "")
        if self.kind is PatternKind.NAME:
            return self.text == full_name
        if self.kind is PatternKind.TYPE:
            return self.text.lower() in _component(full_name)
        try:
            return expression(self.translated, searches=self.searches).matches(full_name)
        except TimeoutError:
            message = (
                f"{self.item!r} takes too long to match {full_name!r}; avoid repetitions of repeated"
                " groups, such as (a+)+"
            )
            raise ConfigValueError(self.place, (Problem("", message),)) from None


def _component(full_name: str) -> str:
    """Return the part of a name, in lower case, in which an operator type is searched."""
    # vendor: MindSpore cuts at the last hyphen, so that a type never matches the operator's number
    component = full_name.rpartition("/")[2]
    return (component.rpartition("-")[0] or component).lower()


def used_patterns(patterns: Iterable[KernelPattern], full_names: Iterable[str]) -> Iterator[KernelPattern]:
    """Yield the patterns that select at least one of the names; the time is linear in the patterns."""
    names = {name.replace(" ", "") for name in full_names}
    components = "/".join({_component(name) for name in names})  # no type has a slash
    for pattern in patterns:
        if pattern.kind is PatternKind.NAME:
            is_used = pattern.text in names
        elif pattern.kind is PatternKind.TYPE:
            is_used = pattern.text.lower() in components
        else:
            is_used = any(map(pattern.matches, names))
        if is_used:
            yield pattern


class _Patterns:
    """The items of ``kernels`` in a form in which many of them match a name quickly."""

    def __init__(self, patterns: Iterable[KernelPattern]) -> None:
        texts: dict[PatternKind, list[KernelPattern]] = {kind: [] for kind in PatternKind}
        for pattern in patterns:
            texts[pattern.kind].append(pattern)
        self._names = {each.text for each in texts[PatternKind.NAME]}
        self._types = tuple({each.text.lower() for each in texts[PatternKind.TYPE]})
        self._regexes = texts[PatternKind.REGEX]
        self._is_typed: dict[str, bool] = {}  # many operators have few types

    def match(self, full_name: str) -> bool:
        """Return whether one of the patterns selects an operator or parameter."""
        name = full_name.replace(" ", "")
        component = _component(name)
        if component not in self._is_typed:
            self._is_typed[component] = any(text in component for text in self._types)
        return (
            name in self._names
            or self._is_typed[component]
            or any(pattern.matches(name) for pattern in self._regexes)
        )


@dataclass(frozen=True, slots=True)
class Selector:
    """Which operators are dumped.

    >>> operators = ("Default/conv1-Conv2d/Conv2D-op0", "Default/fc-Dense/MatMul-op0")
    >>> by_type = KernelPattern(PatternKind.TYPE, "conv2d", "Conv2D")
    >>> [by_type.matches(name) for name in operators]
    [True, False]
    >>> by_name = KernelPattern(PatternKind.NAME, operators[1], operators[1])
    >>> [by_name.matches(name) for name in operators]
    [False, True]
    >>> regex = KernelPattern(PatternKind.REGEX, "fc", 'name-regex(fc)', searches=True, translated="fc")
    >>> [regex.matches(name) for name in operators]
    [False, True]
    >>> [Selector(DumpMode.KERNELS, (by_type, by_name)).selects(name) for name in operators]
    [True, True]
    >>> [Selector(DumpMode.MARKED).selects(name, is_marked=name == operators[1]) for name in operators]
    [False, True]
    """

    # all, the operators that ``patterns`` select, or the ones that ``set_dump`` marked
    mode: DumpMode = DumpMode.ALL
    # the items of ``kernels``; none under ``KERNELS`` selects everything
    patterns: tuple[KernelPattern, ...] = ()
    _sorted: _Patterns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the patterns."""
        object.__setattr__(self, "_sorted", _Patterns(self.patterns))

    def selects(self, full_name: str, *, is_marked: bool = False) -> bool:
        """Tell whether an operator or parameter is dumped."""
        return self.refusal(full_name, is_marked=is_marked) is None

    def refusal(self, full_name: str, *, is_marked: bool = False) -> Reason | None:
        """Return why an operator or parameter is not dumped, None where it is."""
        if self.mode is DumpMode.MARKED:
            return None if is_marked else Reason.NOT_MARKED
        if self.mode is DumpMode.ALL or not self.patterns:
            return None
        return None if self._sorted.match(full_name) else Reason.NOT_IN_KERNELS
