"""Files of a dump: large ones mapped into memory, small ones copied; JSON, lists and tables of text."""

from __future__ import annotations

import json
import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msdump import reading
from msdump.encode import npy
from msdump.errors import DAMAGED, DumpReadError, cause_of
from msdump.store import ORDER_HEADER
from msdump.threads import SignalSafeWeakSet

_log = logging.getLogger("msdump.store")

_MOST_DIGITS: Final = 400  # of a number: float64 has up to 309 before the point; int() takes quadratic time
_SHOWN: Final = 40  # characters of a text in a message


def read_bytes(path: str) -> bytes:
    """Return the contents of a file; DumpReadError if it cannot be read."""
    try:
        return reading.read_bytes(path)
    except OSError as error:
        raise DumpReadError(path, cause_of(error)) from error


def digest(path: str) -> bytes:
    """Return a digest of the contents of a file; DumpReadError if it cannot be read."""
    import hashlib

    return hashlib.sha1(read_bytes(path), usedforsecurity=False).digest()


def modified(path: str) -> int:
    """Return when a file was written, microseconds since the epoch; DumpReadError if it is gone."""
    try:
        return Path(path).stat().st_mtime_ns // 1000
    except OSError as error:
        raise DumpReadError(path, cause_of(error)) from error


def read_json(path: str) -> Any:
    """Return the value of a JSON file; DumpReadError, with the byte, if it cannot be read or is not JSON."""
    data = read_bytes(path)
    try:
        text = data.decode()
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise DumpReadError(path, "not UTF-8 text", error.start) from error
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())  # the library counts characters
        raise DumpReadError(path, f"not JSON: {error.msg}", offset) from error
    except RecursionError as error:
        raise DumpReadError(path, "the JSON is nested too deeply") from error
    except ValueError as error:  # also a number with too many digits for Python
        raise DumpReadError(path, f"not JSON that can be read: {error}") from error


def read_execution_order(path: str) -> tuple[str, ...]:
    """Return the full names of operators in execution order; DumpReadError for a file without its header."""
    lines = [*read_lines(path)]
    if not lines or lines[0] != ORDER_HEADER:
        first = lines[0][:_SHOWN] if lines else ""
        raise DumpReadError(path, f"the first line is {first!r}, not {ORDER_HEADER!r}", 0)
    return tuple(lines[1:])


def read_iterations_run(path: str) -> tuple[int, ...]:
    """Return the numbers of a graph's dumped iterations, oldest first, repeats of later runs included.

    Raises:
        DumpReadError: The file cannot be read or holds something else than numbers.
    """
    numbers = []
    for offset, line in read_rows(path):
        if not (line.isascii() and line.isdigit()):
            raise DumpReadError(path, f"{line[:_SHOWN]!r} is not the number of an iteration", offset)
        try:
            numbers.append(integer(line))
        except ValueError as error:
            raise DumpReadError(path, str(error), offset) from error
    return tuple(numbers)


def integer(text: str) -> int:
    """Return a decimal number; ValueError if it has more digits than any number of a dump."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(
            f"a number of {len(text):,} digits ({text[:12]}...); at most {_MOST_DIGITS} are read"
        )
    return int(text)


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a text that are not empty; DumpReadError if the file cannot be read."""
    return (line for _, line in _split(path, read_bytes(path)))


def read_rows(path: str) -> Iterator[tuple[int, str]]:
    """Yield the byte offset and text of every row of a file that grows by rows.

    A row without a line feed is no row: a program that was killed while it wrote left half of it, and the
    last number may lack digits.
    """
    data = read_bytes(path)
    if ends_in_half_a_row(data):
        _log.log(DAMAGED, "%s: %s", path, HALF_A_ROW)
    return _split(path, data[: data.rfind(b"\n") + 1])


HALF_A_ROW: Final = "the last row has no line feed and is left out: the program was killed"


def ends_in_half_a_row(data: bytes) -> bool:
    """Return whether the bytes of a file that grows by rows end without a line feed."""
    return bool(data) and not data.endswith(b"\n")


def _split(path: str, data: bytes) -> Iterator[tuple[int, str]]:
    offset = 0
    # bytes are split, not text: str.splitlines also breaks at characters that names may hold, such as U+2028
    for line in data.splitlines(keepends=True):
        try:
            text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DumpReadError(path, "not UTF-8 text", offset + error.start) from error
        if text:
            yield offset, text
        offset += len(line)


_MAPPED: Final = 1 << 20  # bytes; reading a smaller file costs less than mapping
_MOST_MAPS: Final = 512  # each map holds a file descriptor; most systems allow 1024

_MAPS: Final = SignalSafeWeakSet[mmap.mmap]()


def load_file(path: str) -> memoryview:
    """Return the bytes of a file, read-only, mapped if it is large; DumpReadError if it cannot be read."""
    try:
        with reading.OpenDescriptor(path) as (fd, size):
            # a map keeps a descriptor of its own, until the last view of it ends
            if size < _MAPPED or len(_MAPS) >= _MOST_MAPS:
                return memoryview(_whole(fd, size))
            mapped = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DumpReadError(path, cause_of(error)) from error
    _MAPS.add(mapped)
    return memoryview(mapped)


def _whole(fd: int, size: int) -> bytes:
    """Return the bytes of an open file; reading one more than its size shows whether it grows."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while pieces[-1]:
        pieces.append(os.read(fd, size + 1))
    return b"".join(pieces)


_PREFIX: Final = 4096  # bytes in which the header of nearly every .npy file ends


def read_npy_header(path: str) -> npy.Header:
    """Return the header of a .npy file without its elements; DumpReadError if the file is damaged."""
    try:
        with reading.OpenDescriptor(path) as (fd, size):
            data = os.read(fd, _PREFIX)
            missing = npy.header_size(data, path) - len(data)
            data += os.read(fd, missing) if missing > 0 else b""
    except DumpReadError:
        raise
    except OSError as error:
        raise DumpReadError(path, cause_of(error)) from error
    header = npy.read_header(data, path)
    npy.check_size(header, size, path)
    return header
