"""The statistics of a dumped tensor: the saved ones, and those that its elements tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.errors import FormatError
from msdump.statistics.table import BY_CATEGORY, STATISTICS, Nature, Statistic
from msdump.statistics.totals import StatisticNeed
from msdump.store.read.cells import Cell, Row

if TYPE_CHECKING:
    import numpy as np

    from msdump.statistics.totals import Totals

Load = Callable[[], "np.ndarray | None"]
"""Returns the elements of a tensor, None where they were not saved."""

_EVERYTHING: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)


class Measurements(Mapping[str, Cell]):
    """The statistics of one tensor by the categories of ``statistic_category``: "max", "l2norm", "nan count".

    What ``statistic.csv`` holds is taken from there, with its six digits. The rest is measured in one pass
    over the elements when it is first asked for; it is None where the elements were not saved, where there
    are none, and for text and complex numbers. Digests are those that were saved.
    """

    def __init__(self, row: Row | None, load: Load) -> None:
        """Take what was saved.

        Args:
            row: The tensor's row of ``statistic.csv``, None without one.
            load: Loads its elements.
        """
        saved = row or {}
        self._saved = {each.category: saved[each.title] for each in STATISTICS if each.title in saved}
        self._load = load

    def __getitem__(self, category: str) -> Cell:
        """Return a statistic.

        Raises:
            KeyError: No such category, or a digest that was not saved.
            DumpReadError: The elements cannot be read.
        """
        if category in self._saved:
            return self._saved[category]
        statistic = BY_CATEGORY[category]
        if statistic.nature is Nature.DIGEST:
            raise KeyError(category)
        return self._measured(statistic)

    def __iter__(self) -> Iterator[str]:
        """Yield the categories: all numbers, and the digests that were saved."""
        for statistic in STATISTICS:
            if statistic.nature is not Nature.DIGEST or statistic.category in self._saved:
                yield statistic.category

    def __len__(self) -> int:
        """Return the number of categories."""
        return sum(1 for _ in self)

    @property
    def saved(self) -> Mapping[str, Cell]:
        """The statistics that ``statistic.csv`` holds."""
        return self._saved

    @property
    def max(self) -> Cell:
        """The largest element, NaN where one is NaN."""
        return self["max"]

    @property
    def min(self) -> Cell:
        """The smallest element, NaN where one is NaN."""
        return self["min"]

    @property
    def mean(self) -> Cell:
        """The mean of the elements."""
        return self["avg"]

    @property
    def l2norm(self) -> Cell:
        """The square root of the sum of squares."""
        return self["l2norm"]

    @property
    def has_nan(self) -> bool | None:
        """Whether an element is NaN; None where neither statistics nor elements tell."""
        count = self._saved.get("nan count")
        if count is None:
            extremes = [self._saved.get(name) for name in ("max", "min", "avg", "l2norm")]
            numbers = [cell for cell in extremes if isinstance(cell, int | float)]
            if numbers:
                return any(map(math.isnan, numbers))
            count = self["nan count"]
        return None if count is None else bool(count)

    @property
    def has_infinity(self) -> bool | None:
        """Whether an element is inf; -inf alone, with which attention is masked, does not count."""
        return self._reaches("positive inf count", "max", math.inf)

    @property
    def has_negative_infinity(self) -> bool | None:
        """Whether an element is -inf."""
        return self._reaches("negative inf count", "min", -math.inf)

    def _reaches(self, count_of: str, extreme: str, infinity: float) -> bool | None:
        count = self._saved.get(count_of)
        bound = self._saved.get(extreme)
        # NaN hides the other elements of an extreme
        if count is None and isinstance(bound, int | float) and not math.isnan(bound):
            return bound == infinity
        count = self[count_of] if count is None else count
        return None if count is None else bool(count)

    def _measured(self, statistic: Statistic) -> Cell:
        if self._totals is None:
            return None
        from msdump.statistics.digests import Message

        # no number is found from the bytes
        return statistic.value(self._totals, Message(lambda: memoryview(b"")))

    @cached_property
    def _totals(self) -> Totals | None:
        from msdump.statistics import passes

        array = self._load()
        if array is None or not array.size:
            return None
        try:
            dtype = dtypes.from_numpy(array.dtype)
        except FormatError:
            return None
        return passes.measure(array, dtype, _EVERYTHING) if passes.is_measurable(dtype) else None

    def __repr__(self) -> str:
        """Return the numbers in a line; what was not saved is measured."""
        return f"<Measurements {', '.join(f'{name} {value}' for name, value in self.items())}>"
