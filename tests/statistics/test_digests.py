"""MD5 of several messages at once: that of hashlib, however long they are and however many."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.statistics import compiled, digests
from msdump.statistics.digests import Message, find_md5, md5_of

OCTETS = np.random.default_rng(3).integers(0, 256, 1 << 16, np.uint8)


def spans(lengths):
    """Return messages of some lengths, at odd addresses too."""
    return [OCTETS[place : place + length].data for place, length in enumerate(lengths)]


def expected(messages):
    """Return what hashlib finds of messages."""
    return [hashlib.md5(message, usedforsecurity=False).hexdigest() for message in messages]


@given(st.lists(st.integers(0, 300), max_size=60))
def test_several_messages_have_the_digests_of_each(lengths):
    """Lanes that end at different blocks take the next message and mix nothing up."""
    messages = spans(lengths)
    assert md5_of(messages) == expected(messages)


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 40_000])
def test_lengths_beside_the_bounds_of_blocks(count, length):
    """The padding takes one block more where the length does not fit behind the message."""
    messages = spans([length] * count)
    assert md5_of(messages) == expected(messages)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_messages_know_their_digests(monkeypatch, is_compiled):
    """Each is read once for its MD5, with or without the compiled pass, in any order of sizes."""
    if not is_compiled:
        monkeypatch.setattr(digests, "COMPILED", None)
    elif digests.COMPILED is None:
        pytest.skip("this installation has no compiled pass")
    reads = []
    octets = spans([5, 70, 0, 4000])
    messages = [Message(lambda each=each: reads.append(each) or each) for each in octets]

    find_md5(messages)

    assert [message.md5 for message in messages] == expected(octets)
    assert len(reads) == len(octets)
    sha1 = [hashlib.sha1(each, usedforsecurity=False).hexdigest() for each in octets]
    assert [message.sha1 for message in messages] == sha1


@pytest.mark.parametrize("byte_order", ["big", "little"])
def test_the_compiled_pass_is_used_where_it_can_be(monkeypatch, byte_order):
    """Words are read as they lie in memory, so a machine that puts the high byte first takes hashlib."""
    monkeypatch.setattr(digests.sys, "byteorder", byte_order)
    is_there = byte_order == "little" and compiled.KERNEL is not None
    assert (digests.load(compiled.LIBRARY) is not None) is is_there
    assert digests.load(Path("nowhere.so")) is None
