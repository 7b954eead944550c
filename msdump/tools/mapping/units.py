"""A unit: some items that one worker works on in one go, and what it gives back."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msdump.errors import ToolError
from msdump.tools.mapping import versions, working_directory
from msdump.tools.return_codes import ReturnCode

LOG: Final = logging.getLogger("msdump")
"""The library's messages: what a worker logs is logged again where its results are taken."""


@dataclass(frozen=True, slots=True)
class WorkOrigin:
    """What a worker must have in common with the process that gives it work.

    Attributes:
        versions: Those of the process, from ``versions.here``; "": the worker is a child of it.
        directory: Working directory of the process; "": as before.
        paths: Files and directories that the worker must see.
        level: Least level of messages that are told.
    """

    versions: str = ""
    directory: str = ""
    paths: tuple[str, ...] = ()
    level: int = logging.WARNING

    @classmethod
    def here(cls, paths: tuple[str, ...], *, is_child: bool) -> WorkOrigin:
        """Return those of this process for its workers."""
        level = LOG.getEffectiveLevel()
        return cls(level=level) if is_child else cls(versions.here(), str(Path.cwd()), paths, level)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the working directory.

        Raises:
            ToolError: This process has other versions, or does not see a path.
        """
        if self.versions and self.versions != versions.here():
            fault = (
                f"a worker has another version: {versions.here()} ({versions.place()}), not {self.versions}"
            )
            raise ToolError(ReturnCode.UNSUPPORTED, f"{fault}; install the same on both sides")
        for path in filter(None, (self.directory, *self.paths)):
            if not os.path.lexists(os.path.join(self.directory, path)):  # noqa: PTH118 - as it was given
                fault = f"a worker ({versions.place()}) does not see {path}"
                raise ToolError(ReturnCode.PATH, f"{fault}; workers need the file system that it is on")
        with working_directory.HERE.at(self.directory) if self.directory else contextlib.nullcontext():
            yield


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What a worker gives back.

    Attributes:
        results: Result of each item, up to the one that failed.
        error: What the item behind them raised, None where all were done.
        messages: Logger, level and text of each message that was logged, with the number of its item.
        seconds: How long it took.
    """

    results: tuple[Any, ...] = ()
    error: Exception | None = None
    messages: tuple[tuple[int, str, int, str], ...] = ()
    seconds: float = 0.0


def packed(work: Callable[[Any], Any], items: Sequence[Any]) -> bytes:
    """Return a function of a module and its arguments as they travel."""
    return pickle.dumps((work, tuple(items)), pickle.HIGHEST_PROTOCOL)


def run(origin: WorkOrigin, payload: bytes) -> UnitOutcome:
    """Work on a unit; runs in the worker.

    Args:
        origin: What the process says of itself that the results go to.
        payload: From ``packed``; unpacked only where the versions are the same.
    """
    began = time.perf_counter()
    results: list[Any] = []
    error: Exception | None = None
    with _heard(origin.level) as heard:
        try:
            with origin.entered():
                work, items = pickle.loads(payload)  # noqa: S301 - from the process that gives the work
                for item in items:
                    heard.item = len(results)
                    results.append(work(item))
        except Exception as raised:  # noqa: BLE001 - it is raised where the results are taken
            error = raised
    return UnitOutcome(tuple(results), error, tuple(heard.messages), time.perf_counter() - began)


@dataclass
class _Listener(logging.Handler):
    """Keeps what one thread logs: a worker may have several that work on units."""

    level: int
    item: int = 0
    messages: list[tuple[int, str, int, str]] = field(default_factory=list)
    _thread: int = field(default_factory=threading.get_ident)

    def __post_init__(self) -> None:
        super().__init__(self.level)

    __hash__ = object.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.messages.append((self.item, record.name, record.levelno, record.getMessage()))


@contextlib.contextmanager
def _heard(level: int) -> Iterator[_Listener]:
    listener = _Listener(level)
    LOG.setLevel(min(level, LOG.level or level))
    LOG.addHandler(listener)
    try:
        yield listener
    finally:
        LOG.removeHandler(listener)
