"""What ranks hold of the tensors that they should share, compared at the end of a step."""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.communication.sharing import shared
from msdump.communication.waiting import CallPlace
from msdump.communication.world import current
from msdump.errors import RankError
from msdump.graph.operator_types import WORLD_GROUP
from msdump.watch.known import exactly
from msdump.watch.ranks import ALONE, DIGEST_BYTES, digest, disagreeing
from msdump.watch.rules import WatchRule
from msdump.watch.subjects import WatchedTensor
from msdump.watch.watch import Finding, Hit, Sighting, Undecided

_KIND: Final = "comparison of ranks"
_NUMBER: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """What this rank holds of a tensor.

    Attributes:
        subject: The tensor.
        moment: When it was seen.
        rules: The rules that compare it.
        digest: What tells whether another rank holds the same.
    """

    subject: WatchedTensor
    moment: Sighting
    rules: Sequence[WatchRule]
    digest: bytes


class RankComparison(threading.local):
    """The tensors of the step that this thread is in, and those of the same step on the other ranks."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: dict[bytes, HeldTensor] = {}
        self._is_given_up = False

    def begin(self) -> None:
        """Begin a step."""
        self._held.clear()

    def add(
        self,
        place: Hashable,
        subject: WatchedTensor,
        moment: Sighting,
        rules: Sequence[WatchRule],
        array: np.ndarray,
    ) -> None:
        """Take in a tensor of the step.

        Args:
            place: Tells tensors of the same operator and slot apart, such as those of two graphs.
            subject: The tensor.
            moment: When it was seen.
            rules: The rules that compare it.
            array: Its elements.
        """
        looking = [rule for rule in rules if moment.iteration in rule.target.iterations]
        if looking:
            key = _key(place, subject, moment)
            self._held[key] = HeldTensor(subject, moment, looking, digest(array))

    def findings(self, network: int, iteration: int) -> tuple[list[Finding], str]:
        """Give the other ranks what this one holds, and compare what they give.

        Args:
            network: Number of the network among those of its configuration, the same on all ranks.
            iteration: Number of the iteration.

        Returns:
            What was found on this rank, and a sentence where another rank holds something else than this
            one and most, else "".

        Raises:
            RankError: The other ranks cannot be asked, or are elsewhere; later steps compare nothing.
        """
        if self._is_given_up:
            return [], ""
        held, self._held = self._held, {}
        world = current()
        place = CallPlace(f"the end of iteration {iteration}", _KIND, WORLD_GROUP)
        try:
            given = shared(world, f"watch {network}", _packed(iteration, held), place)
        except RankError:
            self._is_given_up = True  # who did not come once is not waited for again
            raise
        told = {rank: _unpacked(data) for rank, data in given.items()}
        elsewhere = [rank for rank, (number, _) in told.items() if number != iteration]
        if elsewhere:
            self._is_given_up = True
            message = f"rank {elsewhere[0]} is in iteration {told[elsewhere[0]][0]}"
            raise RankError(place.operator, message, elsewhere[0])
        return _compared(world.identity.rank, held, {rank: digests for rank, (_, digests) in told.items()})


def _compared(
    rank: int, held: Mapping[bytes, HeldTensor], told: Mapping[int, Mapping[bytes, bytes]]
) -> tuple[list[Finding], str]:
    """Return what was found on a rank, and who else is apart, given the digests of all ranks by tensor."""
    findings: list[Finding] = []
    elsewhere = ""
    for key, tensor in held.items():
        holding = {each: digests[key] for each, digests in told.items() if key in digests}
        apart = disagreeing(holding)
        for rule in tensor.rules:
            if len(holding) == 1:
                findings.append(Undecided(rule, tensor.subject, tensor.moment, ALONE))
            elif rank in apart:
                count = exactly(len(apart))
                findings.append(Hit(rule, rule.limits[0], tensor.subject, tensor.moment, count, apart[rank]))
        if apart and rank not in apart and not elsewhere:
            subject = tensor.subject
            elsewhere = f"{subject.name} {subject.io}.{subject.slot}: {next(iter(apart.values()))}"
    return findings, elsewhere


def _key(place: Hashable, subject: WatchedTensor, moment: Sighting) -> bytes:
    text = repr((place, subject.name, str(subject.io), subject.slot, moment.pass_number))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _packed(iteration: int, held: Mapping[bytes, HeldTensor]) -> bytes:
    """Return the number of an iteration and the digests of its tensors as bytes.

    >>> _unpacked(_packed(3, {}))
    (3, {})
    """
    parts = (key + tensor.digest for key, tensor in held.items())
    return b"".join((_NUMBER.pack(iteration), *parts))


def _unpacked(data: bytes) -> tuple[int, dict[bytes, bytes]]:
    (iteration,) = _NUMBER.unpack_from(data)
    starts = range(_NUMBER.size, len(data), 2 * DIGEST_BYTES)
    middles = ((start, start + DIGEST_BYTES) for start in starts)
    return iteration, {data[start:end]: data[end : end + DIGEST_BYTES] for start, end in middles}
