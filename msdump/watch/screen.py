"""What lets most tensors pass at once: a magnitude that none of their elements reaches, and no rule minds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from msdump.watch.elements import FLOAT16_LIMIT
from msdump.watch.quantities import Past
from msdump.watch.rules import Limit, WatchRule

_SLACK: Final = 1.001  # more than rounding takes from a rough sum of squares, which adds up short runs
_VANISHED: Final = 2.0**-125  # more than what is lost of a square of float32 that is too small for it


class Screen:
    """The rules on a tensor that a rough sum of the squares of its elements can show to have nothing to tell.

    Attributes:
        most_squares: Square of the largest magnitude at which all limits are kept that it decides; 0: none.
        others: The rules that it cannot decide.
    """

    __slots__ = ("most_squares", "others")

    def __init__(self, rules: Sequence[WatchRule]) -> None:
        """Find the largest magnitude at which the limits of the rules are kept.

        Args:
            rules: The rules that look at the tensor.
        """
        least, others = math.inf, []
        for rule in rules:
            magnitude = _harmless(rule)
            if magnitude:
                least = min(least, magnitude)
            else:
                others.append(rule)
        self.others = tuple(others)
        self.most_squares = least * least if len(others) < len(rules) else 0.0

    @property
    def decides(self) -> bool:
        """Whether there is a rule that it can decide."""
        return self.most_squares > 0

    @property
    def decides_all(self) -> bool:
        """Whether it can decide every rule, and there is one."""
        return self.decides and not self.others

    def clears(self, squares: float, count: int) -> bool:
        """Tell whether no limit of the rules that it can decide is passed; False: one may be.

        Args:
            squares: The sum of the squares of its elements, or what ``rough_squares`` returns for it.
            count: Number of its elements.
        """
        # no element is larger than the root of the sum of squares, and one is not zero where the sum is not
        return squares > 0.0 and squares * _SLACK + count * _VANISHED < self.most_squares


class Screens:
    """The screens of several tensors, asked together."""

    __slots__ = ("_lost", "_most_squares")

    def __init__(self, screens: Iterable[Screen], counts: Sequence[int]) -> None:
        """Take screens that can decide a rule each.

        Args:
            screens: The screens.
            counts: Number of the elements of each one's tensor.
        """
        self._most_squares = np.array([screen.most_squares for screen in screens])
        self._lost = np.array(counts, np.float64) * _VANISHED

    def clear(self, squares: np.ndarray) -> bool:
        """Tell whether each screen ``clears`` its tensor.

        Args:
            squares: What ``Screen.clears`` is given of each, in float64.
        """
        with np.errstate(all="ignore"):
            most = squares * _SLACK + self._lost
            return bool(((squares > 0.0) & (most < self._most_squares)).all())


def _harmless(rule: WatchRule) -> float:
    """Return a magnitude up to which elements, not all zero, keep all limits of a rule; 0 for none."""
    if rule.is_first_only:  # which has to be told that it has looked
        return 0.0
    return min((_harmless_to(limit, rule) for limit in rule.limits), default=0.0)


def _harmless_to(limit: Limit, rule: WatchRule) -> float:
    below = limit.quantity.below
    if below is None or limit.quantity.past is not Past.NOTHING:
        return 0.0
    for magnitude in sorted({*_magnitudes(limit, rule)}, reverse=True):
        if limit.comparison.holds(below(magnitude, rule.settings), limit.value) is False:
            return magnitude
    return 0.0


def _magnitudes(limit: Limit, rule: WatchRule) -> Iterator[float]:
    """Yield the magnitudes at which a limit may begin to be passed; infinity stands for all finite ones."""
    yield math.inf
    yield math.nextafter(FLOAT16_LIMIT, 0)
    yield abs(limit.value)
    yield abs(limit.value) / 2
    yield from map(abs, rule.settings.values())
