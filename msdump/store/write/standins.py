"""Stand-ins for file names that are too long, and the ``mapping.csv`` that lists what they stand for.

    {digits}.npy,{original name}

One line for each file, no header (the format of MindSpore and CANN). The line stands before the file
appears: a killed run leaves at most a line too many, never a file that nobody can name.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msdump.store.layouts import MAPPING

if TYPE_CHECKING:
    from msdump.store.write.files import Files

LONGEST_NAME: Final = 255
_SUFFIXES: Final = frozenset({".npy", ".json"})
_NUMBERS: Final = 1 << 32
_MOST_DIRECTORIES: Final = 8


def is_too_long(name: str) -> bool:
    """Tell whether a name has more than the 255 bytes that a file system allows.

    >>> is_too_long("x" * 255), is_too_long("é" * 128)
    (False, True)
    """
    return (len(name) if name.isascii() else len(os.fsencode(name))) > LONGEST_NAME


class StandIns:
    """Chooses stand-ins and writes their lines of ``mapping.csv``.

    Attributes:
        count: Number of ``mapping.csv`` files begun.
        bytes: Bytes of the lines written.
    """

    def __init__(self, files: Files, count: int = 0, size: int = 0) -> None:
        """Choose stand-ins for files.

        Args:
            files: The files; ``mapping.csv`` is written among them.
            count: Files of mappings that an earlier object has counted.
            size: Bytes that it has counted.
        """
        self._files = files
        self._mappings: dict[str, dict[str, str]] = {}  # original names by stand-in, by directory
        self.count = count
        self.bytes = size

    def name(self, directory: str, original: str) -> str:
        """Return the stand-in of a name, at most ten digits; the same name gets the same one.

        Raises:
            OSError: ``mapping.csv`` cannot be read or written.
        """
        mapping = self._mapping(directory)
        stand_in = self._free(directory, original, mapping)
        if stand_in not in mapping:
            line = f"{stand_in},{original}\n".encode()
            self.count += self._files.append(directory, MAPPING, line, b"")
            self.bytes += len(line)
            mapping[stand_in] = original
        return stand_in

    def _free(self, directory: str, original: str, mapping: dict[str, str]) -> str:
        suffix = Path(original).suffix
        suffix = suffix if suffix in _SUFFIXES else ""
        # a checksum, not a counter: the same name gets the same stand-in in every run
        number = zlib.crc32(original.encode())
        while True:
            stand_in = f"{number}{suffix}"
            owner = mapping.get(stand_in)
            if owner == original or (owner is None and not self._files.exists(directory, stand_in)):
                return stand_in
            number = (number + 1) % _NUMBERS

    def _mapping(self, directory: str) -> dict[str, str]:
        """Return the mapping of a directory; those of the directories used last are kept."""
        mapping = self._mappings.get(directory)
        if mapping is None:
            if len(self._mappings) >= _MOST_DIRECTORIES:
                del self._mappings[next(iter(self._mappings))]
            mapping = self._mappings[directory] = parse_mapping(self._files.read(directory, MAPPING))
        return mapping


def parse_mapping(text: bytes) -> dict[str, str]:
    r"""Return original names by stand-in; a last line without line feed is torn and left out.

    >>> parse_mapping(b"17.npy,Add.Default_Add-op0.0.0.1.output.0.npy\n18.npy,Add.Def")
    {'17.npy': 'Add.Default_Add-op0.0.0.1.output.0.npy'}
    """
    lines = text.decode(errors="surrogateescape").split("\n")[:-1]
    pairs = (line.rstrip("\r").partition(",") for line in lines)
    return {stand_in: original for stand_in, comma, original in pairs if comma}
