"""Hashes of tensors: MD5 of several at once by the compiled pass (``compiled``), the others by hashlib.

A core can do more than the MD5 of one message, where every step waits for the one before: of sixteen at
once it takes four to seven times as many bytes. Without the compiled pass hashlib finds the same, one after
the other.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from msdump.statistics import compiled
from msdump.statistics.compiled import address

_DIGITS: Final = 32  # of an MD5


class Message:
    """What is hashed: the bytes of a tensor's elements.

    >>> Message(lambda: memoryview(b"abc")).md5
    '900150983cd24fb0d6963f7d28e17f72'
    """

    __slots__ = ("_md5", "octets")

    def __init__(self, octets: Callable[[], memoryview]) -> None:
        """Read nothing yet.

        Args:
            octets: Returns the bytes, which stay as they are: little endian, no element shares a byte.
        """
        self.octets = octets
        self._md5: str | None = None

    @property
    def md5(self) -> str:
        """The MD5 (RFC 1321) in lower-case hexadecimal digits."""
        if self._md5 is None:
            find_md5([self])
        assert self._md5 is not None
        return self._md5

    @md5.setter
    def md5(self, digits: str) -> None:
        self._md5 = digits

    @property
    def sha1(self) -> str:
        """The SHA-1 (RFC 3174) in lower-case hexadecimal digits."""
        import hashlib  # with OpenSSL behind it, for those alone who ask for hashes

        return hashlib.sha1(self.octets(), usedforsecurity=False).hexdigest()


def find_md5(messages: Sequence[Message]) -> None:
    """Find the MD5 of messages, several at once; any thread may call it, and others run meanwhile."""
    # the longest begin first: the others fill the lanes beside them
    ordered = sorted(((message.octets(), message) for message in messages), key=_size, reverse=True)
    for (_, message), digits in zip(ordered, md5_of([octets for octets, _ in ordered]), strict=True):
        message.md5 = digits


def _size(message: tuple[memoryview, Message]) -> int:
    return message[0].nbytes


def md5_of(messages: Sequence[memoryview]) -> list[str]:
    """Return the MD5 of messages, contiguous ones, in lower-case hexadecimal digits.

    >>> md5_of([memoryview(b""), memoryview(b"abc")])
    ['d41d8cd98f00b204e9800998ecf8427e', '900150983cd24fb0d6963f7d28e17f72']
    """
    if COMPILED is None or len(messages) == 1:
        import hashlib

        return [hashlib.md5(message, usedforsecurity=False).hexdigest() for message in messages]
    arrays = [np.frombuffer(message, np.uint8) for message in messages]
    given = array("Q", itertools.chain.from_iterable((address(data), data.size) for data in arrays))
    digests = ctypes.create_string_buffer(len(messages) * _DIGITS // 2)
    COMPILED(given.buffer_info()[0], len(messages), digests)
    digits = digests.raw.hex()
    return [digits[begin : begin + _DIGITS] for begin in range(0, len(digits), _DIGITS)]


def load(library: Path) -> Callable[..., None] | None:
    """Return the compiled pass over messages, None where this process has none that it can use."""
    loaded = compiled.open_library(library) if sys.byteorder == "little" else None
    if loaded is None:
        return None
    loaded.msdump_md5.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    loaded.msdump_md5.restype = None
    md5: Callable[..., None] = loaded.msdump_md5
    return md5


COMPILED = load(compiled.LIBRARY)
"""The compiled pass over messages of this installation, None where it has none."""
