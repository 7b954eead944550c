"""Stand-ins for file names that are too long, and the ``mapping.csv`` that tells what they stand for.

    {digits}.npy,{original name}

One line for each file, no header. The line stands before the file appears.
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
    """Tell whether a name has more than the 255 bytes that a file system allows."""
    return len(os.fsencode(name)) > LONGEST_NAME


class StandIns:
    """Finds stand-ins and writes their ``mapping.csv`` lines.

    Attributes:
        count: Number of ``mapping.csv`` files begun.
        bytes: Bytes of the lines written.
    """

    def __init__(self, files: Files, count: int = 0, size: int = 0) -> None:
        """Use the files that the stand-ins are for; go on counting from what was written before."""
        self._files = files
        self._taken: dict[str, dict[str, str]] = {}
        self.count = count
        self.bytes = size

    def name(self, directory: str, original: str) -> str:
        """Return the stand-in of a name, at most ten digits; the same name gets the same one.

        Raises:
            OSError: ``mapping.csv`` cannot be read or written.
        """
        taken = self._mapping(directory)
        stand_in = self._free(directory, original, taken)
        if stand_in not in taken:
            line = f"{stand_in},{original}\n".encode()
            self.count += self._files.append(directory, MAPPING, line, b"")
            self.bytes += len(line)
            taken[stand_in] = original
        return stand_in

    def _free(self, directory: str, original: str, taken: dict[str, str]) -> str:
        suffix = Path(original).suffix
        suffix = suffix if suffix in _SUFFIXES else ""
        number = zlib.crc32(original.encode())
        while True:
            stand_in = f"{number}{suffix}"
            owner = taken.get(stand_in)
            if owner == original or (owner is None and not self._files.exists(directory, stand_in)):
                return stand_in
            number = (number + 1) % _NUMBERS

    def _mapping(self, directory: str) -> dict[str, str]:
        taken = self._taken.get(directory)
        if taken is None:
            if len(self._taken) >= _MOST_DIRECTORIES:
                del self._taken[next(iter(self._taken))]
            taken = self._taken[directory] = parse_mapping(self._files.read(directory, MAPPING))
        return taken


def parse_mapping(text: bytes) -> dict[str, str]:
    """Return original names by stand-in; a last line without line feed is torn and left out."""
    lines = text.decode(errors="surrogateescape").split("\n")[:-1]
    pairs = (line.rstrip("\r").partition(",") for line in lines)
    return {stand_in: original for stand_in, comma, original in pairs if comma}
