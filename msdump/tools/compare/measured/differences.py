"""How far the statistics of two tensors are apart: an error that the judge weighs like one of tensors.

Statistics tell less than tensors. The distance is the largest relative difference of a number: of extremes
and means relative to the largest of them on the golden side, of a norm to the golden norm. What lies within
the six digits of a table is no difference. Numbers of NaN and infinities must be the same; digests and counts
of signs tell only whether tensors are the same, as elements beside zero change their sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from msdump import dtypes
from msdump.encode import statistic_csv
from msdump.statistics.table import BY_CATEGORY, Nature
from msdump.store.read.cells import Cell
from msdump.tools.compare.measured.rows import StatisticRow
from msdump.tools.judge.errors import TensorError
from msdump.tools.judge.evidence import TensorEvidence
from msdump.tools.judge.verdicts import TensorVerdict

PRINTED: Final = 1e-5
"""Largest relative difference of two numbers of six significant digits that may be the same number."""

_NUMBERS: Final = frozenset({Nature.VALUE, Nature.AMOUNT})
_EXTREMES: Final = ("max", "min")
_HALVES: Final = {"float16": 2**-11, "bfloat16": 2**-8}
"""What devices round weights and inputs to: the largest relative change of a number by it."""
SUMS: Final = ("avg", "l2norm")
"""Statistics that depend on how a device adds."""


Pair = tuple[Cell, Cell]
"""A statistic of the examined side and of golden."""


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Compares rows of two sides.

    Attributes:
        limits: Largest relative difference by category, where the user says so: of counts the share of the
            elements; of digests any number demands the same one. Others: as the element types allow.
    """

    limits: Mapping[str, float] = field(default_factory=dict)

    def evidence(
        self, dumped: StatisticRow, golden: StatisticRow, *, is_handed_on: bool = False
    ) -> TensorEvidence:
        """Return the rows of a tensor and its counterpart as evidence.

        Args:
            dumped: The row that is examined.
            golden: Its counterpart.
            is_handed_on: Whether one tensor is what the other becomes in a graph that only the other side's
                compiler has simplified, so that a reshape may lie between them.
        """
        evidence = replace(alone(dumped), golden_dtype=golden.dtype, note="")
        shapes = [
            shape if shape is None else _kept(shape, is_handed_on=is_handed_on)
            for shape in (dumped.shape, golden.shape)
        ]
        if None not in shapes and shapes[0] != shapes[1]:
            note = f"shape {dumped.shape} beside {golden.shape}"
            return replace(evidence, fault=TensorVerdict.SHAPE, note=note)
        shared = dict(_shared(dumped, golden))
        if not shared:
            return replace(evidence, note="no statistic in common")
        if all(_is_same(*pair) for pair in shared.values()) and dumped.dtype == golden.dtype:
            return replace(evidence, error=TensorError(is_same=True))
        return self._differing(evidence, shared, max(1, math.prod(dumped.shape or ())))

    def _differing(self, evidence: TensorEvidence, shared: Mapping[str, Pair], count: int) -> TensorEvidence:
        """Return evidence with its error, and with a verdict where a limit of the user's is exceeded."""
        telling = {category: pair for category, pair in shared.items() if _tells(category, shared)}
        for category in shared:
            if _share(category, shared, count) > self.limits.get(category, math.inf):
                note = f"{_in_words(category, shared)}, beyond {self.limits[category]:g}"
                error = _error(telling, shared)
                return replace(evidence, fault=TensorVerdict.DIFFERS, error=error, note=note)
        judged = {category: pair for category, pair in telling.items() if category not in self.limits}
        error = _error(judged, shared)
        # Digits that only rounding or printing changed show no other bits of a weight.
        is_told = evidence.dtype != evidence.golden_dtype or not judged.keys().isdisjoint(_EXTREMES)
        is_rounded = not judged or (is_told and any(_is_rounded_to(each, judged, shared) for each in _HALVES))
        return replace(evidence, error=error, note=_worst(judged, shared), is_rounded=is_rounded)


def _kept(shape: tuple[int, ...], *, is_handed_on: bool) -> tuple[int, ...]:
    """Return what two tensors that are the same one have in common: of a reshaped one its size."""
    return (math.prod(shape),) if is_handed_on else shape


def _is_rounded_to(dtype: str, judged: Mapping[str, Pair], shared: Mapping[str, Pair]) -> bool:
    """Tell whether statistics are those of one tensor and of the same one rounded to a type.

    Rounding keeps the order of elements: the largest one of the rounded tensor is the largest one, rounded.

    Args:
        dtype: Name of the type.
        judged: The statistics that differ.
        shared: All statistics that both sides have.
    """
    extremes = [shared[category] for category in _EXTREMES if category in shared]
    if not judged.keys() <= {*_EXTREMES, *SUMS} or not (extremes and all(map(_is_finite, chain(*extremes)))):
        return False
    near = all(_difference(each, shared) <= _HALVES[dtype] + PRINTED for each in judged)
    turned = [(golden, dumped) for dumped, golden in extremes]
    return near and any(all(_may_become(*pair, dtype) for pair in pairs) for pairs in (extremes, turned))


def _may_become(longer: Cell, rounded: Cell, dtype: str) -> bool:
    """Tell whether a printed number is what another printed one becomes in a type of fewer bits."""
    number = dtypes.from_name(dtype).numpy.type
    # the digits that were not printed may decide which way it was rounded
    candidates = (float(number(float(longer) * (1 + off))) for off in (-PRINTED / 2, 0, PRINTED / 2))  # type: ignore[arg-type]
    return any(_distance(each, rounded) <= PRINTED * abs(each) for each in candidates)


def _shared(dumped: StatisticRow, golden: StatisticRow) -> Iterator[tuple[str, Pair]]:
    """Yield the statistics that both rows have; two configurations may choose different ones."""
    for category, cell in dumped.cells.items():
        is_known = golden.cells.get(category) is not None
        if is_known and not (_has_overflowed(category, dumped) or _has_overflowed(category, golden)):
            yield category, (cell, golden.cells[category])


def _has_overflowed(category: str, row: StatisticRow) -> bool:
    """Tell whether a sum says nothing of its tensor: on a device those of float16 may overflow."""
    extremes = (row.cells.get("max"), row.cells.get("min"))
    return category in SUMS and not _is_finite(row.cells[category]) and all(map(_is_finite, extremes))


def _tells(category: str, shared: Mapping[str, Pair]) -> bool:
    """Tell whether a statistic shows a difference beyond that of rounding and printing."""
    nature = BY_CATEGORY[category].nature
    if nature is Nature.DIGEST:  # it has no distance; the numbers tell one
        return not any(BY_CATEGORY[other].nature in _NUMBERS for other in shared)
    return nature is not Nature.SIGN_COUNT and _difference(category, shared) > PRINTED


def alone(row: StatisticRow) -> TensorEvidence:
    """Return a row that has no counterpart as evidence."""
    _, io, slot, _ = row.place
    return TensorEvidence(
        io,
        slot,
        row.shape or (),
        row.dtype,
        note="golden has no such row",
        is_weight=row.is_parameter,
    )


_NONFINITE: Final = ("nan count", "negative inf count", "positive inf count")


def _is_same(dumped: Cell, golden: Cell) -> bool:
    is_nan = dumped != dumped and golden != golden  # noqa: PLR0124 - NaN is what differs from itself
    return dumped == golden or is_nan


def _is_finite(cell: Cell) -> bool:
    return isinstance(cell, int | float) and math.isfinite(cell)


def _difference(category: str, shared: Mapping[str, Pair]) -> float:
    """Return the relative difference of a statistic; infinite where only one side is finite.

    >>> shared = {"max": (4.1, 4.0), "min": (-8.0, -8.0), "nan count": (1, 0)}
    >>> round(_difference("max", shared), 4), _difference("nan count", shared)
    (0.0125, inf)
    """
    dumped, golden = shared[category]
    if _is_same(dumped, golden):
        return 0.0
    nature = BY_CATEGORY[category].nature
    if nature not in _NUMBERS or not (_is_finite(dumped) and _is_finite(golden)):
        return math.inf
    # A norm grows with the number of elements, so its scale is its own; minimum and average share theirs.
    values = [pair[1] for name, pair in shared.items() if BY_CATEGORY[name].nature is Nature.VALUE]
    scales = [abs(float(cell)) for cell in values if _is_finite(cell)]  # type: ignore[arg-type]
    scale = abs(float(golden)) if nature is Nature.AMOUNT else max(scales)  # type: ignore[arg-type]
    return _distance(dumped, golden) / scale if scale else math.inf


def _distance(dumped: Cell, golden: Cell) -> float:
    return abs(float(dumped) - float(golden))  # type: ignore[arg-type]


def _share(category: str, shared: Mapping[str, Pair], count: int) -> float:
    """Return the relative difference of a statistic, of a count relative to the number of elements."""
    dumped, golden = shared[category]
    if BY_CATEGORY[category].nature in {Nature.COUNT, Nature.SIGN_COUNT}:
        return _distance(dumped, golden) / count
    return _difference(category, shared)


def _error(judged: Mapping[str, Pair], shared: Mapping[str, Pair]) -> TensorError:
    """Return the error that statistics tell.

    Args:
        judged: The statistics that differ.
        shared: All statistics that both sides have.
    """
    surplus = [int(_distance(*judged[category])) for category in _NONFINITE if category in judged]
    values = {name: pair for name, pair in judged.items() if BY_CATEGORY[name].nature in _NUMBERS}
    one_sided = [pair for pair in values.values() if not all(map(_is_finite, pair)) and not _is_same(*pair)]
    misplaced = sum(surplus) or len(one_sided[:1])
    if misplaced:
        counts = [judged[name] for name in _NONFINITE if name in judged]
        more = sum(max(0, int(mine or 0) - int(golden or 0)) for mine, golden in counts)
        is_mine = any(not _is_finite(pair[0]) for pair in one_sided)
        is_infinite = TensorError(False, math.inf, math.nan, math.inf, misplaced, more or int(is_mine))
        return replace(is_infinite, norm=math.inf, scaled=math.inf, ulps=math.nan)
    extremes = {name: pair for name, pair in values.items() if BY_CATEGORY[name].nature is Nature.VALUE}
    return TensorError(
        is_same=False,
        distance=max((_difference(name, shared) for name in judged), default=0.0),
        largest=max((_distance(*pair) for pair in extremes.values()), default=0.0),
        scaled=max((_difference(name, shared) for name in extremes), default=0.0),
        norm=math.nan,  # that of the difference, and units of the last place: no element is known
        ulps=math.nan,
    )


def _worst(judged: Mapping[str, Pair], shared: Mapping[str, Pair]) -> str:
    """Return the statistic that differs most in words, "" where none does."""
    worst = max(judged, key=lambda category: _difference(category, shared), default="")
    return _in_words(worst, shared) if worst else ""


def _in_words(category: str, shared: Mapping[str, Pair]) -> str:
    dumped, golden = map(statistic_csv.text, shared[category])
    return f"{BY_CATEGORY[category].title} {dumped} beside {golden}"
