"""Bytes that every rank gives to all others, beside the collectives of a network."""

from __future__ import annotations

import numpy as np

from msdump.communication.waiting import CallPlace
from msdump.communication.world import World
from msdump.threads import new_lock


def shared(world: World, channel: str, data: bytes, place: CallPlace) -> dict[int, bytes]:
    """Give bytes to all ranks, and return what each of them gave, by rank in order.

    Args:
        world: All ranks, seen from this one.
        channel: Tells exchanges apart that may go on at the same time; no group's name.
        data: What this rank gives.
        place: Where the rank is, for messages.

    Raises:
        RankError: Another rank does not take part.
    """
    mine, others = world.identity.rank, _others(world)
    if not others:
        return {mine: data}
    transport = world.transport(place)
    size = np.array([len(data)], np.int64)
    sizes = {rank: np.zeros(1, np.int64) for rank in others}
    with world.keep(channel, new_lock):
        sends = [(rank, size.view(np.uint8)) for rank in others]
        transport.exchange(channel, sends, [(rank, sizes[rank].view(np.uint8)) for rank in others], place)
        received = {rank: np.zeros(int(sizes[rank][0]), np.uint8) for rank in others}
        content = np.frombuffer(data, np.uint8)
        sends = [(rank, content) for rank in others if data]
        transport.exchange(channel, sends, [parcel for parcel in received.items() if parcel[1].size], place)
    given = {rank: array.tobytes() for rank, array in received.items()} | {mine: data}
    return {rank: given[rank] for rank in sorted(given)}


def _others(world: World) -> list[int]:
    return [rank for rank in range(world.identity.size) if rank != world.identity.rank]
