"""How ranks wait for each other: what each tells the others, and how long a wait may last."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msdump import env
from msdump.errors import InputError, RankError

_LONGEST: Final = 24 * 60 * 60  # seconds
_DEFAULT: Final = 120.0


def time_limit() -> float:
    """Return how many seconds a rank waits for another one: MSDUMP_COMMUNICATION_TIMEOUT, or 120.

    Raises:
        InputError: The variable is no number of seconds.
    """
    text = env.read(env.COMMUNICATION_TIMEOUT)
    if text is None:
        return _DEFAULT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST:  # also where it is no number at all (NaN)
        raise InputError(
            f"{env.COMMUNICATION_TIMEOUT} = {text!r}: seconds above 0, at most {_LONGEST}, are expected"
        )
    return seconds


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A collective that a rank is in.

    Attributes:
        operator: Full name of the operator.
        kind: The collective, ``AllReduce``.
        group: Name of its group.
    """

    operator: str
    kind: str
    group: str

    def __str__(self) -> str:
        """Name operator, collective and group."""
        return f"{self.kind} {self.operator} (group {self.group})"


@dataclass(slots=True)
class Board:
    """What one rank knows of the others; ranks that are threads share one.

    Attributes:
        failed: The first failure of the ranks: who failed, and why.
        is_stopped: Nobody goes on: Ctrl-C.
        ended: Ranks whose program has ended.
        waits: Where ranks wait, those of which it is known.
    """

    failed: tuple[int, str] | None = None
    is_stopped: bool = False
    ended: set[int] = field(default_factory=set)
    waits: dict[int, str] = field(default_factory=dict)


class Wait:
    """One wait of a rank for others: when it is over, and what ends it early.

    Attributes:
        place: The collective.
        rank: Who waits.
        began: When, in seconds of ``time.monotonic``.
    """

    def __init__(self, place: CallPlace, rank: int, board: Board, limit: float) -> None:
        """Begin to wait.

        Args:
            place: The collective.
            rank: Who waits.
            board: What is known of the others.
            limit: Seconds until the wait fails.
        """
        self.place = place
        self.rank = rank
        self.began = time.monotonic()
        self._board = board
        self._limit = limit

    @property
    def left(self) -> float:
        """Seconds until the wait fails."""
        return self.began + self._limit - time.monotonic()

    def check(self, missing: Iterable[int]) -> None:
        """Go on waiting, unless there is no point in it.

        Args:
            missing: The ranks that are waited for.

        Raises:
            RankError: A rank failed, one that is waited for has ended, or the time is over.
        """
        board = self._board
        if board.is_stopped:
            raise self.error("interrupted")
        if board.failed is not None:
            culprit, reason = board.failed
            raise self.error(f"rank {culprit} failed: {reason}", culprit)
        awaited = sorted(set(missing))
        for rank in awaited:
            if rank in board.ended:
                raise self.error(f"rank {rank} has ended its program and never comes here", rank)
        if awaited and self.left <= 0:
            where = "; ".join(f"rank {rank} {self._whereabouts(rank)}" for rank in awaited)
            message = f"rank {self.rank} has waited {self._limit:g} s here: {where}"
            raise self.error(message, awaited[0] if len(awaited) == 1 else None)

    def error(self, message: str, culprit: int | None = None) -> RankError:
        """Return the error that ends the wait."""
        return RankError(
            self.place.operator, f"{self.place.kind} of group {self.place.group}: {message}", culprit
        )

    def _whereabouts(self, rank: int) -> str:
        return f"waits in {self._board.waits[rank]}" if rank in self._board.waits else "is in no collective"
