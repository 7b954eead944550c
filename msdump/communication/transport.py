"""How arrays get from rank to rank: the protocol that threads and MPI both keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from msdump.communication.waiting import CallPlace

MOST_POSTED: Final = 16
"""Tensors on the way from one rank to another one that nobody has received: then the sender waits."""

Parcel = tuple[int, np.ndarray]
"""A rank, and the bytes that go to it or come from it: a contiguous array of uint8."""


class Transport(Protocol):
    """Sends and receives of one rank.

    What goes from one rank to another one on one channel arrives in the order in which it was sent. Every
    call ends with a RankError when the time is over, or when the ranks that are waited for cannot come.
    """

    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Send arrays and fill others; returns when all of them may be used again.

        Args:
            channel: Tells exchanges apart that may go on at the same time.
            sends: What goes to which rank.
            receives: What is filled by which rank.
            place: Where the rank is, for messages.

        Raises:
            RankError: Another rank does not take part.
        """

    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Send a copy of an array without waiting until it is received.

        Raises:
            RankError: Too many earlier ones are not received in time.
        """

    def fail(self, reason: str) -> None:
        """Tell all other ranks that this one has failed: their waits end."""

    def end(self) -> None:
        """Tell all other ranks that this one has ended, and settle what is still under way."""
