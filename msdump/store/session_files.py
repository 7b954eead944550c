"""Files that a session of onnxruntime writes where it makes values.

A node ``Save`` behind a value's producer (``statistics/kernel/saving.h``) writes it while caches hold it, in
the thread that computes: nothing runs on before the file is complete. Operators so stay in one session where
each of them had to run alone, and no value leaves it. What goes wrong fails the session; the operators then
run one by one, and whoever writes their files tells the reason.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from msdump import reading
from msdump.device import Blocks, formats
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.statistics import insession
from msdump.store.clock import Clock

_MOST_TERMS: Final = 15
_MOST_DIMENSIONS: Final = 8
_PARTS: Final = {"whole": 0, "block": 1, "place": 2}
_MISSING: Final = -1


class _Term(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("axis", "part", "length", "ends"))


class SessionLayout(ctypes.Structure):
    """How values of one rank are laid out: a device format as the compiled library reads it.

    The library (``statistics/kernel/layout.h``) follows an index rule of ``device.blocks`` from the shape
    that a value has in a run. It does not know formats whose conversion is more than one rule.
    """

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rank", "keeps", "count")),
        ("terms", _Term * _MOST_TERMS),
        ("dimensions", ctypes.c_int64 * _MOST_DIMENSIONS),
    )


@functools.lru_cache(maxsize=256)
def layout(format_name: str, rank: int, c0: int) -> SessionLayout | None:
    """Return how a session lays out values in a format, None where it cannot.

    Args:
        format_name: Name of a format that changes something.
        rank: Number of the dimensions of the values.
        c0: Length of the innermost blocks.
    """
    stages = formats.find(format_name).stages
    if len(stages) != 1 or not isinstance(stages[0], Blocks):
        return None
    is_vector = format_name == formats.FRACTAL_NZ and rank == 1
    try:
        dimensions = [_MISSING, 0] if is_vector else _dimensions(format_name, rank)
    except FormatError:
        return None
    axes = stages[0].terms(len(dimensions), c0)
    terms = [
        _Term(axis, _PARTS[part], length, (axis, part, length) == merged[-1])
        for merged in axes
        for axis, part, length in merged
    ]
    if len(dimensions) > _MOST_DIMENSIONS or len(terms) > _MOST_TERMS or axes[-1][-1].part != "place":
        return None
    return SessionLayout(rank, c0 if is_vector else 0, len(terms), tuple(terms), tuple(dimensions))


def _dimensions(format_name: str, rank: int) -> list[int]:
    """Return for each axis that a rule starts from the dimension of the values."""
    numbered = formats.padded(format_name, tuple(range(2, rank + 2)))
    return [_MISSING if number == 1 else number - 2 for number in numbered]


_UNTOUCHED, _WRITTEN, _EMPTY, _SEEN = range(4)
# of what became of a value, behind the state; what is the session's own stands last
_BYTES, _TIME, _FIELDS = 1, 2, 5
# places in a run: the last time that a file got, files, their bytes, values without elements
_LAST, _FILES, _SIZE, _NONE = range(5, 9)
_WAITING: Final = 9
"""Place of the number of values that wait, and behind it of their slots."""


class NameParts(NamedTuple):
    """The name of a file before and behind its timestamp."""

    head: bytes
    tail: bytes


class WantedFile(NamedTuple):
    """What a session writes of a value.

    Attributes:
        name: The file's name.
        dtype: Type of the value's elements.
        saved: Type of the file's.
        held: The smaller type in which the device holds float32; None: as it is.
        saturates: Whether values are kept within that type's range.
        layout: The order of the elements in the file; None: that of the value.
    """

    name: NameParts
    dtype: DType
    saved: DType
    held: DType | None = None
    saturates: bool = False
    layout: SessionLayout | None = None


def takes(dtype: DType | None) -> bool:
    """Tell whether a session can write values of a type."""
    return insession.takes(dtype) and sys.byteorder == "little"


class _Wanted(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("head", "tail")),
        *((name, ctypes.c_int64) for name in ("type", "held", "saved", "saturates")),
        ("layout", ctypes.POINTER(SessionLayout)),
    )


def _wanted(file: WantedFile | None) -> _Wanted:
    if file is None:
        return _Wanted()
    held = 0 if file.held is None else file.held.onnx
    layout = None if file.layout is None else ctypes.pointer(file.layout)
    return _Wanted(*file.name, file.dtype.onnx, held, file.saved.onnx, file.saturates, layout)


class _Room:
    """Where a session reads where the files of a run go, and writes what becomes of them."""

    __slots__ = ("addresses", "kinds", "outcomes", "run")

    def __init__(self, count: int, wanted: int) -> None:
        """Reserve room for a number of values, whose files an address tells of."""
        self.run = array("q", bytes(array("q").itemsize * (_WAITING + 1 + count)))
        self.outcomes = np.zeros((count, _FIELDS), np.int64)
        self.kinds = insession.room_for_kinds(count)
        parts = (self.outcomes.ctypes.data, ctypes.addressof(self.kinds))
        self.addresses = np.array([self.run.buffer_info()[0], wanted, *parts], np.int64)

    def begin(self, place: SessionPlace, last: int) -> None:
        """Prepare a run, of which nothing is known yet."""
        self.run[: _WAITING + 1] = array("q", (*map(int, place), last, 0, 0, 0, 0))
        self.outcomes.fill(0)


class WantedFiles:
    """What a session writes of a segment's values: the same in every run."""

    __slots__ = ("_files", "_wanted", "room")

    def __init__(self, files: Sequence[WantedFile | None]) -> None:
        """Keep the files.

        Args:
            files: Of each value in the order of slots; None: it gets none.
        """
        self._files = files
        self._wanted = (_Wanted * len(files))(*map(_wanted, files))
        self.room = _Room(len(files), ctypes.addressof(self._wanted))

    def __len__(self) -> int:
        """Return the number of the values."""
        return len(self._files)

    def name(self, slot: int, time: int) -> bytes:
        """Return the name of a file; its value gets one."""
        file = self._files[slot]
        assert file is not None, "a value without a file has no name"
        return b"%s%d%s" % (file.name.head, time, file.name.tail)


class SessionPlace(NamedTuple):
    """An open directory on a file system that has files without names.

    Attributes:
        directory: Its descriptor, which belongs to who asked for the place.
        mode: Permissions of files.
        sets_modes: Whether they are set once a file is open: a umask would narrow them.
        reserves: Whether room is reserved for a large file before it is written.
        is_unnamed: Whether a file's descriptor alone can be linked.
    """

    directory: int
    mode: int
    sets_modes: bool
    reserves: bool
    is_unnamed: bool = True


class SessionFiles:
    """The files of one run of a session; they can be asked about until the next run begins.

    Attributes:
        addresses: What the session is fed, the same in every run.
    """

    __slots__ = ("_clock", "_directory", "_kinds", "_outcomes", "_run", "_wanted", "addresses")

    def __init__(self, wanted: WantedFiles, place: SessionPlace, clock: Clock) -> None:
        """Prepare a run.

        Args:
            wanted: What the files are.
            place: Where they go; it is closed when the session has run.
            clock: Gives the last timestamp, and is told of those of the files.
        """
        room = wanted.room
        room.begin(place, clock.last)
        self._wanted = wanted
        self._directory = place.directory
        self._clock = clock
        self._run, self._outcomes, self._kinds = room.run, room.outcomes, room.kinds
        self.addresses = room.addresses

    def close(self) -> None:
        """Close the directory: the session has run, or has failed."""
        self._clock.pass_over(self._run[_LAST])
        reading.close(self._directory)  # its own: an interrupt may leave it open until another run goes on

    @property
    def written(self) -> tuple[int, int]:
        """Number of files and of their bytes."""
        return self._run[_FILES], self._run[_SIZE]

    @property
    def empty(self) -> int:
        """Number of values without elements, which get no file."""
        return self._run[_NONE]

    @property
    def seen(self) -> np.ndarray:
        """By slot, whether the session got so far that it was done with a value."""
        seen: np.ndarray = self._states != _UNTOUCHED
        return seen

    def stand_ins(self) -> list[np.ndarray | None]:
        """Return by slot an array of the type and shape of a value, whatever its elements; None: not seen."""
        seen, kinds = self.seen.tolist(), self._kinds.raw
        size = len(kinds) // len(seen)
        told = (kinds[slot * size :][:size] for slot, is_seen in enumerate(seen) if is_seen)
        arrays = iter(insession.stand_ins(b"".join(told)) or ())
        return [next(arrays) if is_seen else None for is_seen in seen]

    def remove(self, slot: int) -> None:
        """Remove the file of a value, where there is one: it will be written again."""
        if self._states[slot] == _WRITTEN:
            os.unlink(self._wanted.name(slot, int(self._outcomes[slot, _TIME])), dir_fd=self._run[0])
            self._run[_FILES] -= 1
            self._run[_SIZE] -= int(self._outcomes[slot, _BYTES])
        elif self._states[slot] == _EMPTY:
            self._run[_NONE] -= 1
        self._states[slot] = _UNTOUCHED

    @property
    def _states(self) -> np.ndarray:
        states: np.ndarray = self._outcomes[:, 0]
        return states
