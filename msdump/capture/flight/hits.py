"""What hits do: they are logged, counted, they release the history, and they may end the run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msdump.capture.flight.history import HistorySink
from msdump.capture.flight.note import HistoryNote
from msdump.errors import WatchHitError
from msdump.iterations import IterationSet
from msdump.plan import DumpPlan, OnHit
from msdump.threads import new_lock
from msdump.watch.watch import Finding, Hit, Undecided

_log = logging.getLogger("msdump.capture")

_MOST_LINES: Final = 1000  # warnings of one process about hits; the rest is counted


def stop_error(hit: Hit) -> WatchHitError:
    """Return the error that ends a run at a hit."""
    tensor = hit.subject
    message = f"{tensor.io}.{tensor.slot}: {hit}"
    return WatchHitError(hit.rule.name, tensor.name, hit.moment.iteration, message)


class HitLog:
    """The hits of all networks of a configuration; any thread may use it.

    Attributes:
        iterations: Those in which a rule hit.
    """

    def __init__(self, plan: DumpPlan, history: HistorySink | None, note: HistoryNote | None) -> None:
        """Start with no hit.

        Args:
            plan: What hits do.
            history: The steps that a hit releases, None where none are kept.
            note: Notes what was written, None without a history.
        """
        self._on_hit = plan.watch.on_hit
        self._source = plan.source
        self._history = history
        self._note = note
        self._lock = new_lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._undecided: set[tuple[str, str]] = set()
        self._lines = 0
        self.iterations = IterationSet(())

    def take(self, findings: Sequence[Finding]) -> Hit | None:
        """Log what was found at an operator, and release the history; return the first hit.

        Raises:
            DumpWriteError: The steps that it releases could not be written.
        """
        hits = [finding for finding in findings if isinstance(finding, Hit)]
        with self._lock:
            for finding in findings:
                if isinstance(finding, Undecided):
                    self._warn_of(finding)
                else:
                    self._tell(finding)
        if hits and self._on_hit is not OnHit.LOG:
            self._release(hits[0])
        return hits[0] if hits else None

    def _release(self, hit: Hit) -> None:
        if self._history is None:
            return
        written = self._history.release()
        if written and self._note is not None:
            reason = f"watch rule {hit.rule.name!r} hit at {hit.subject.name}: {hit}"
            self._note.released(reason, hit.moment.iteration, written)

    def _tell(self, hit: Hit) -> None:
        """Warn of a hit: the first one of a rule at an operator, then the tenth, the hundredth, ..."""
        self.iterations = self.iterations.including(hit.moment.iteration)
        key = (hit.rule.name, hit.subject.name)
        self._counts[key] += 1
        count = self._counts[key]
        if str(count).strip("0") != "1" or self._lines >= _MOST_LINES:
            return
        self._lines += 1
        often = f" ({count} times so far)" if count > 1 else ""
        _log.warning(
            "watch rule %r hit in iteration %d: %s %s.%d: %s%s",
            *(hit.rule.name, hit.moment.iteration, hit.subject.name),
            *(hit.subject.io, hit.subject.slot, hit, often),
        )

    def _warn_of(self, undecided: Undecided) -> None:
        key = (undecided.rule.name, undecided.reason)
        if key not in self._undecided:
            self._undecided.add(key)
            tensor = undecided.subject
            _log.warning(
                "watch rule %r cannot be checked at %s %s.%d: %s",
                *(undecided.rule.name, tensor.name, tensor.io, tensor.slot, undecided.reason),
            )

    def close(self) -> None:
        """Log how often each rule hit, where more happened than was told."""
        with self._lock:
            totals: Counter[str] = Counter()
            for (rule, _), count in self._counts.items():
                totals[rule] += count
            for rule, count in totals.items():
                operators = sum(1 for name, _ in self._counts if name == rule)
                if count > operators:
                    _log.warning(
                        "%s: watch rule %r hit %d times at %d operators", self._source, rule, count, operators
                    )
            self._counts.clear()
