"""Files whose writing is seen in the trace of the process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msdump.record import Buffer
from msdump.store.write.buffers import size_of
from msdump.store.write.files import FILE_MODE, Files
from msdump.tracing.recording import Trace


class TracedFiles:
    """Files that go where others put them, each with a span in a trace."""

    def __init__(self, files: Files, trace: Trace) -> None:
        """Put files by others.

        Args:
            files: The others.
            trace: Gets the spans.
        """
        self._files = files
        self._trace = trace

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a new file; FileExistsError where the name is taken."""
        with self._trace.span("write", name, directory=directory, bytes=size_of(buffers)):
            self._files.create(directory, name, buffers)

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a file, in place of an older one of the name."""
        with self._trace.span("write", name, directory=directory, bytes=size_of(buffers)):
            self._files.replace(directory, name, buffers)

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer], mode: int = FILE_MODE) -> int:
        """Make a file as ``replace`` does from pieces, each written before the next; return its bytes."""
        with self._trace.span("write", name, directory=directory):
            return self._files.stream(directory, name, pieces, mode)

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        """Add whole rows to a file, the header first where other titles hold; tell whether it was new."""
        with self._trace.span("write", name, directory=directory, bytes=len(rows)):
            return self._files.append(directory, name, rows, header)

    def exists(self, directory: str, name: str) -> bool:
        """Tell whether a name is taken."""
        return self._files.exists(directory, name)

    def read(self, directory: str, name: str) -> bytes:
        """Return the contents of a file, nothing where there is none."""
        return self._files.read(directory, name)

    def close(self) -> None:
        """Release what is held open; later calls open it again."""
        self._files.close()
