"""The note beside a dump: which steps the history wrote and why, and which ones it dropped."""

from __future__ import annotations

import importlib
import json
from typing import Any, Final

from msdump.capture.flight.history import HistorySink
from msdump.record import Artifact
from msdump.store.clock import CLOCK
from msdump.store.layouts import Key, PathKind
from msdump.store.write.sinks import Sink

_MOST_EVENTS: Final = 100


class HistoryNote:
    """Keeps the note of one rank up to date."""

    def __init__(self, path: str, rank: int, history: HistorySink, limits: tuple[int, int]) -> None:
        """Write nothing yet.

        Args:
            path: Root of the dump.
            rank: Number of the rank.
            history: The steps.
            limits: How many steps it keeps, and in how many bytes.
        """
        self._path = path
        self._rank = rank
        self._history = history
        self._limits = limits
        self._events: list[dict[str, Any]] = []
        self._event_count = 0

    def released(self, reason: str, iteration: int | None, written: tuple[int, ...]) -> None:
        """Note that steps were written, and why.

        Args:
            reason: Why.
            iteration: The iteration that went on, None between two.
            written: Numbers of the iterations that were written.
        """
        self._event_count += 1
        if len(self._events) < _MOST_EVENTS:
            event = {
                "time": CLOCK.seconds(),
                "iteration": iteration,
                "reason": reason,
                "written": list(written),
            }
            self._events.append(event)
        self.write(self._history)

    def write(self, sink: Sink) -> None:
        """Write the note as things are now."""
        account = self._history.account
        content = {
            "msdump": importlib.import_module("msdump").__version__,  # no room to import from
            "rank": self._rank,
            "history": self._limits[0],
            "history_bytes": self._limits[1],
            "released": self._events,
            "releases": self._event_count,
            "written": str(account.written),
            "dropped": {
                "replaced by newer steps": str(account.replaced),
                "for lack of memory": str(account.for_memory),
                "at the end of the program": str(account.at_end),
                "larger than history_bytes": str(account.torn),
            },
        }
        data = (json.dumps(content, indent=2) + "\n").encode()
        sink.replace(Artifact(self._path, Key(PathKind.HISTORY, self._rank).path, (data,)))
