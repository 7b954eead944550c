"""How far tensors are from golden ones: what a first look does not settle, threads measure side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from msdump.statistics.compiled import address
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
    """Return how far the two of each pair are apart, as ``measured`` does; threads share the pairs."""
    found = {position: error for position, pair in enumerate(pairs) if (error := _seen(pair)) is not None}
    unsettled = [position for position in range(len(pairs)) if position not in found]

    def measure(share: list[int]) -> None:
        found.update(zip(share, measured([pairs[position] for position in share]), strict=True))

    spread(measure, shares(unsettled, lambda position: pairs[position].mine.size, _PART))
    return [found[position] for position in range(len(pairs))]


def measured(pairs: Sequence[ArrayPair]) -> list[TensorError]:
    """Return how far the two of each pair are apart; this thread alone takes them."""
    are_one = [not _is_unlike(pair.look) and _is_one(pair.mine, pair.golden) for pair in pairs]
    unseen = [
        position
        for position, pair in enumerate(pairs)
        if not are_one[position] and pair.look is None and pair.limit is not None
    ]
    looks = dict(zip(unseen, screening.firsts([pairs[position][:2] for position in unseen]), strict=True))
    return [
        SAME if is_one else _measured(pair, looks.get(position, pair.look))
        for position, (pair, is_one) in enumerate(zip(pairs, are_one, strict=True))
    ]


def _measured(pair: ArrayPair, look: Distance | None) -> TensorError:
    """Return how far two tensors are apart that are not one, by a first look where that is enough."""
    mine, golden, limit, _ = pair
    quick = None if look is None or limit is None else screening.quick(mine, golden, limit, look)
    return quick or errors.measure(_numeric(mine), _numeric(golden), is_unlike=_is_unlike(look))


def _is_unlike(look: Distance | None) -> bool:
    """Tell whether a first look says that bits differ."""
    # NaN tells nothing of bits, nor does 0: of equal numbers one may be -0
    return look is not None and look.differences > 0


def distance(mine: np.ndarray, golden: np.ndarray, limit: float | None = None) -> TensorError:
    """Return how far two tensors of one shape are apart; arguments as of ``ArrayPair``."""
    return measured((ArrayPair(mine, golden, limit),))[0]


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
    return is_alike and address(mine) == address(golden)


def _numeric(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.dtype == np.bool_ else array
