"""Arrays beside each other, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.tools.judge import bits

_LENGTH = 1000


def _unaligned(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1)


def _strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2)[::2]


@pytest.mark.parametrize("is_native", [True, False], ids=["memcmp", "numpy"])
@pytest.mark.parametrize("lay", [np.copy, _unaligned, _strided])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1", "?", "c8"])
def test_one_element_decides_wherever_arrays_lie(
    dtype: str, lay: object, *, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays are the same until one bit of one element is another one."""
    if not is_native:
        monkeypatch.setattr(bits, "_COMPARE", None)
    array = np.arange(_LENGTH).astype(dtype)
    other = lay(array)  # type: ignore[operator]
    assert True is bits.are_same(array, other)
    changed = array.copy()
    changed.view("u1")[-1] ^= 1
    assert False is bits.are_same(changed, other)


@pytest.mark.parametrize("is_native", [True, False], ids=["memcmp", "numpy"])
@pytest.mark.parametrize(
    ("expected", "one", "other"),
    [(True, [np.nan], [np.nan]), (False, [0.0], [-0.0]), (True, [], [])],
    ids=["NaN", "zeros", "nothing"],
)
def test_bits_count_and_not_numbers(
    *, expected: bool, one: list[float], other: list[float], is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal NaN are the same, zeros of two signs are not."""
    if not is_native:
        monkeypatch.setattr(bits, "_COMPARE", None)
    assert expected is bits.are_same(np.float32(one), np.float32(other))
