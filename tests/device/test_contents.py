"""Bytes of the emulated device memory."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.device.contents import Contents
from msdump.device.memory import BASE


@pytest.fixture
def contents():
    """Give memory in which nothing was written."""
    return Contents()


def test_memory_is_zero_where_nothing_was_written(contents):
    """Bytes before, between and behind what was written are zero."""
    contents.write(BASE + 4, b"\x01\x02")

    assert b"\0\0\0\0\x01\x02\0\0" == contents.read(BASE, 8)
    assert bytes(3) == contents.read(BASE + 1000, 3)


def test_arrays_are_written_as_their_bytes(contents):
    """What a buffer holds is written, whatever the type of its elements."""
    array = np.array([1, -1], np.int32)

    contents.write(BASE, array)

    assert array.tobytes() == contents.read(BASE, 8)


def test_later_bytes_replace_earlier_ones(contents):
    """A write and a fill change what they reach and nothing else."""
    contents.write(BASE, b"abcdef")

    contents.fill(BASE + 1, 2, 0x5A)
    contents.write(BASE + 5, b"g")

    assert b"aZZdeg" == contents.read(BASE, 6)


def test_copies_stay_as_they_were(contents):
    """What was read does not change when the memory does."""
    contents.write(BASE, b"old")
    copy = contents.read(BASE, 3)

    contents.write(BASE, b"new")

    assert b"old" == copy


def test_nothing_is_written_and_read(contents):
    """Empty tensors have no bytes."""
    contents.write(BASE + 7, b"")

    assert b"" == contents.read(BASE + 7, 0)
