"""The working directory of a worker: that of the process that gives it work, as long as it works for it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final


class WorkingDirectory:
    """The working directory of this process, which threads share."""

    def __init__(self) -> None:
        """Begin where the process is."""
        self._users = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Be in a directory; a thread that needs another one waits until nobody needs this one.

        Raises:
            OSError: There is no such directory.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._users or Path(path).resolve() == Path.cwd())
            if not self._users:
                self._own = Path.cwd()
                os.chdir(path)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                if not self._users:
                    os.chdir(self._own)
                    self._changed.notify_all()


HERE: Final = WorkingDirectory()
"""That of this process."""
