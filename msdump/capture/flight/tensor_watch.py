"""Tensors with the rules that look at them, one by one and those of operators that run together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.capture.flight.ahead import SQUARES, MeasuredAhead
from msdump.observer import Arrays, tensors_of
from msdump.record import OperatorRef
from msdump.statistics.passes import rough_squares
from msdump.watch.rules import WatchRule, need_of
from msdump.watch.screen import Screen, Screens
from msdump.watch.subjects import WatchedTensor

RanOperator = tuple[OperatorRef, Arrays, Arrays]
"""An operator that has run, with its inputs and outputs as an observer is shown them."""


class TensorWatch:
    """A tensor with the rules that look at it, and how often it was seen in this iteration.

    Attributes:
        subject: The tensor.
        rules: The rules, but those that compare ranks.
        rank_rules: Those that compare ranks.
        screen: The rules that a sum of squares may show to have nothing to tell.
        need: What a pass over its elements finds out for the rules.
        first_need: What finds out whether the rules have anything to tell.
        is_as_shown: Whether rules looked last at the elements that the operator was shown with.
    """

    __slots__ = (
        *("_iteration", "_runs", "first_need", "is_as_shown", "need", "rank_rules", "rules", "screen"),
        "subject",
    )

    def __init__(self, tensor: WatchedTensor, rules: Sequence[WatchRule]) -> None:
        """Look at nothing yet.

        Args:
            tensor: The tensor.
            rules: The rules that look at it.
        """
        self.subject = tensor
        self.rules = tuple(rule for rule in rules if not rule.compares_ranks)
        self.rank_rules = tuple(rule for rule in rules if rule.compares_ranks)
        self.screen = Screen(self.rules)
        self.need = need_of(self.rules)
        self.first_need = SQUARES if self.screen.decides_all else self.need
        self.is_as_shown = False
        self._iteration = -1
        self._runs = 0

    @property
    def is_screened(self) -> bool:
        """Whether it has no rules, or its screen decides all of them."""
        if self.rank_rules:
            return False
        return not self.rules or (self.screen.decides_all)

    def clears(self, array: np.ndarray, ahead: MeasuredAhead) -> bool:
        """Tell whether its screen shows that the rules it decides do not hit."""
        squares = _squares(array, ahead)
        return squares is not None and self.screen.clears(squares, array.size)

    def run_number(self, iteration: int) -> int:
        """Return which run of its operator within an iteration this is, from 0."""
        if iteration != self._iteration:
            self._iteration, self._runs = iteration, 0
        self._runs += 1
        return self._runs - 1


class ScreenedOperators:
    """Operators that run together, of whose tensors screens decide everything.

    It is kept from step to step, and holds while the same operators are shown.

    Attributes:
        shown: The operators.
        watched: Those of their tensors that are there, inputs of each first.
    """

    __slots__ = ("_ruled", "_screens", "shown", "watched")

    def __init__(self, shown: Sequence[RanOperator], watched: Sequence[TensorWatch]) -> None:
        """Take in what is the same in every step."""
        self.shown = shown
        self.watched = watched
        arrays = tensors_of(shown)
        self._ruled = [place for place, each in enumerate(watched) if each.rules]
        self._screens = Screens(
            [watched[place].screen for place in self._ruled], [arrays[place].size for place in self._ruled]
        )

    def clear(self, squares: np.ndarray) -> bool:
        """Tell whether screens clear all tensors.

        Args:
            squares: The sum of the squares of the elements of each, in float64.
        """
        return self._screens.clear(squares[self._ruled])


def _squares(array: np.ndarray, ahead: MeasuredAhead) -> float | None:
    """Return a sum of the squares of a tensor's elements for its screen, None for types that have none."""
    squares = ahead.squares(array)
    return rough_squares(array) if squares is None else squares
