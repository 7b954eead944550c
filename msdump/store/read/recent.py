"""Files of tensors that are read several times within a short while."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msdump.store.read import mapped
from msdump.threads import new_lock

_MOST_BYTES: Final = 1 << 24  # outputs are read again by who reads them: a few operators later at most


class RecentFiles:
    """The bytes of the files that were read last, as many as a processor's cache holds; for any thread.

    Memory that is used again and again costs a fraction of memory that is new for every file.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: OrderedDict[str, memoryview] = OrderedDict()
        self._bytes = 0
        self._lock = new_lock()

    def load(self, path: str) -> memoryview:
        """Return the bytes of a file, read-only.

        Raises:
            DumpReadError: It cannot be read.
        """
        with self._lock:
            if path in self._held:
                self._held.move_to_end(path)
                return self._held[path]
        view = mapped.load(path)
        with self._lock:
            if path not in self._held:
                self._held[path] = view
                self._bytes += len(view)
            while self._bytes > _MOST_BYTES and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= len(oldest)
        return view
