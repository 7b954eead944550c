"""How far tensors are from golden ones: what a first look does not settle, threads measure side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from msdump.statistics.pairs import Distance
from msdump.threads import shares, spread
from msdump.tools.diff import screening
from msdump.tools.judge import errors
from msdump.tools.judge.errors import TensorError

SAME: Final = TensorError(is_same=True)

_PART: Final = 1 << 15
"""Elements of pairs that keep a thread busy for longer than it takes to wake one."""


class ArrayPair(NamedTuple):
    """Two arrays of one shape.

    Attributes:
        mine: The tensor that is examined.
        golden: The tensor that it is compared with.
        limit: Largest relative distance of tensors that agree, of which a quick look is enough; None: no
            distance is small enough.
        look: What a first look told of them; None: it was not taken.
    """

    mine: np.ndarray
    golden: np.ndarray
    limit: float | None = None
    look: Distance | None = None


def distances(pairs: Sequence[ArrayPair]) -> list[TensorError]:
    """Return how far the two of each pair are apart, as ``distance`` does."""
    found = {position: error for position, pair in enumerate(pairs) if (error := _seen(pair)) is not None}
    unsettled = [position for position in range(len(pairs)) if position not in found]

    def measure(share: list[int]) -> None:
        for position in share:
            found[position] = distance(*pairs[position])

    spread(measure, shares(unsettled, lambda position: pairs[position].mine.size, _PART))
    return [found[position] for position in range(len(pairs))]


def distance(
    mine: np.ndarray, golden: np.ndarray, limit: float | None = None, look: Distance | None = None
) -> TensorError:
    """Return how far two tensors of one shape are apart; arguments as of ``ArrayPair``."""
    # NaN tells nothing of bits, nor does 0: of equal numbers one may be -0
    is_unlike = look is not None and look.differences > 0
    if not is_unlike and _is_one(mine, golden):
        return SAME
    if limit is None:
        return errors.measure(_numeric(mine), _numeric(golden))
    if look is None:
        look = screening.first(mine, golden)
        is_unlike = look is not None and look.differences > 0
    quick = None if look is None else screening.quick(mine, golden, limit, look)
    return quick or errors.measure(_numeric(mine), _numeric(golden), is_unlike=is_unlike)


def _seen(pair: ArrayPair) -> TensorError | None:
    """Return what a first look has settled already, None where it has not."""
    if pair.look is not None and pair.limit is not None:
        return screening.agreement(pair.look, pair.limit, pair.mine.size)
    return SAME if pair.mine is pair.golden else None


def _is_one(mine: np.ndarray, golden: np.ndarray) -> bool:
    """Tell whether two arrays of one shape are the same memory."""
    if mine is golden:
        return True
    is_alike = mine.dtype == golden.dtype and mine.strides == golden.strides
    return is_alike and mine.ctypes.data == golden.ctypes.data


def _numeric(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.dtype == np.bool_ else array
