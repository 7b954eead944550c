"""What ranks hold of a tensor that they should share: who holds something else than most."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Final

import numpy as np

ALONE: Final = "one rank alone holds it, so that there is nothing that it could agree with"
"""Why a rule that compares ranks cannot be checked where nobody else holds the tensor."""

DIGEST_BYTES: Final = 16


def digest(array: np.ndarray) -> bytes:
    """Return what arrays of the same shape, type and bits have in common, in 16 bytes.

    >>> digest(np.float32([1, 2])) == digest(np.float32([1, 2])), digest(np.int32([1])) == digest(np.int32(1))
    (True, False)
    """
    found = hashlib.blake2b(f"{array.shape} {array.dtype} ".encode(), digest_size=DIGEST_BYTES)
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()


def disagreeing(held: Mapping[int, Hashable]) -> dict[int, str]:
    """Return the ranks that hold something else than most, each with a sentence that says so.

    Of two ranks that disagree nobody can say which is right: the later one is returned.

    >>> disagreeing({0: "a", 1: "b", 2: "a"}), disagreeing({0: "a", 1: "b"}), disagreeing({0: "a", 1: "a"})
    ({1: 'rank 1 holds something else than rank 0, 2'}, {1: 'rank 1 holds something else than rank 0'}, {})

    Args:
        held: What tells whether two ranks hold the same, by rank in order.
    """
    common = Counter(held.values()).most_common(1)[0][0]
    others = ", ".join(str(rank) for rank, each in held.items() if each == common)
    return {
        rank: f"rank {rank} holds something else than rank {others}"
        for rank, each in held.items()
        if each != common
    }
