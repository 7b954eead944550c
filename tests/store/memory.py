"""Files and a sink that live in memory."""

import errno
import os

from msdump.plan import OnWriteError
from msdump.store.write import Budget, SyncSink
from msdump.store.write.rows import last_titles


class MemoryFiles:
    """Files kept in a dictionary."""

    def __init__(self) -> None:
        """Start without files."""
        # contents by absolute path, in the order in which the files appeared
        self.contents: dict[str, bytes] = {}
        self.failure: OSError | None = None  # raised by the next calls that write, None for none

    def create(self, directory: str, name: str, buffers) -> int:
        """Make a new file; return its bytes; FileExistsError where the name is taken."""
        if self.exists(directory, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.replace(directory, name, buffers)
        return len(self.contents[f"{directory}/{name}"])

    def replace(self, directory: str, name: str, buffers) -> None:
        """Make a file, in place of an older one of the name."""
        self._check()
        self.contents[f"{directory}/{name}"] = b"".join(buffers)

    def stream(self, directory: str, name: str, pieces, mode: int = 0) -> int:
        """Make a file as ``replace`` does from pieces; return its bytes."""
        del mode
        data = b"".join(pieces)
        self.replace(directory, name, (data,))
        return len(data)

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        """Add whole rows to a file, the header first where other titles hold; tell whether it was new."""
        self._check()
        path = f"{directory}/{name}"
        older = self.contents.get(path, b"")
        has_titles = not header or header == last_titles(older, header)
        self.contents[path] = older + (rows if has_titles else header + rows)
        return not older

    def exists(self, directory: str, name: str) -> bool:
        """Tell whether a name is taken."""
        return f"{directory}/{name}" in self.contents

    def read(self, directory: str, name: str) -> bytes:
        """Return the contents of a file, nothing where there is none."""
        return self.contents.get(f"{directory}/{name}", b"")

    def close(self) -> None:
        """Do nothing: the files stay."""

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


class MemorySink(SyncSink):
    """Keeps everything in memory; fails as a disk would where ``failure`` is set."""

    def __init__(
        self, on_write_error: OnWriteError = OnWriteError.RAISE, budget: Budget | None = None
    ) -> None:
        """Start with no files."""
        self.files = MemoryFiles()
        super().__init__(on_write_error, budget, self.files)
