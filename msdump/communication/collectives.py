"""The collectives on arrays, written once for all transports.

A large AllReduce goes block by block: each rank gets one block of all ranks, joins them in rank order, and
hands the result to the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.communication import agreement, reductions
from msdump.communication.agreement import HEADER_BYTES, CallHeader, Fingerprint
from msdump.communication.transport import Parcel, Transport
from msdump.communication.waiting import CallPlace
from msdump.communication.world import World
from msdump.errors import RankError
from msdump.graph.collectives.calls import Collective, CollectiveCall
from msdump.threads import new_lock

Empty = Callable[[tuple[int, ...], np.dtype], np.ndarray]
"""Returns an array that a result is written to, by its shape and element type."""

_SMALL: Final = 1 << 16
"""Bytes up to which each rank joins all elements itself: one exchange instead of two."""

_BLOCK: Final = 1 << 22
"""Bytes that a rank joins at a time."""


class Collectives:
    """The collectives of one network on one rank."""

    def __init__(self, world: World, network: Fingerprint) -> None:
        """Join a rank with what its network is.

        Args:
            world: All ranks, seen from this one; nobody is spoken to before the first call.
            network: What the network is, for comparison with those of other ranks.
        """
        self._world = world
        self._network = network
        self._compared: set[tuple[int, ...]] = set()

    def run(
        self, call: CollectiveCall, operator: str, arrays: Sequence[np.ndarray], empty: Empty
    ) -> list[np.ndarray]:
        """Take part in a collective; return the results.

        Args:
            call: What is asked for.
            operator: Full name of the operator.
            arrays: Its inputs.
            empty: Makes the results.

        Raises:
            RankError: The ranks do not agree, or one of them does not come.
            InputError: There is no such group.
        """
        member = self._member(call, operator)
        if any(array.dtype.hasobject for array in arrays):
            raise RankError(operator, "texts cannot go from rank to rank")
        parts = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
        mine = agreement.header(call, operator, parts, self._network)
        # what goes by one channel must not mix where several networks run in threads of a rank
        with self._world.keep(member.channel, new_lock):
            if call.kind is Collective.SEND:
                return member.send(parts[0], mine, empty)
            if call.kind is Collective.RECEIVE:
                return member.receive(self._network, empty)
            self._agree(member, mine)
            return _ALGORITHMS[call.kind](member, parts, empty)

    def _member(self, call: CollectiveCall, operator: str) -> _Member:
        ranks, rank = self._world.groups.ranks(call.group), self._world.identity.rank
        place = CallPlace(operator, str(call.kind), call.group)
        if rank not in ranks:
            raise RankError(
                operator, f"rank {rank} is not in group {call.group!r}, which holds {list(ranks)}"
            )
        if call.count not in {0, len(ranks)}:
            raise RankError(
                operator,
                f"the model was made for {call.count} ranks, and group {call.group!r} has {len(ranks)}",
            )
        # a group of one rank speaks to nobody, and needs no transport
        transport = self._world.transport(place) if len(ranks) > 1 else _Alone()
        return _Member(transport, ranks, ranks.index(rank), call, place)

    def _agree(self, member: _Member, mine: CallHeader) -> None:
        headers = member.headers(mine)
        agreement.check(member.ranks[member.index], headers, member.place)
        if member.ranks not in self._compared:
            self._compared.add(member.ranks)
            agreement.warn_of_settings(headers)

    def failed(self, reason: str) -> None:
        """Tell the other ranks that the network's run failed on this one."""
        self._world.fail(reason)


class _Alone:
    """The transport of a group of one rank, which sends to nobody."""

    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Do nothing: there is nobody to send to."""
        del channel
        if sends or receives:
            raise RankError(place.operator, f"{place.kind} of group {place.group}: there is one rank alone")

    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Refuse to send.

        Raises:
            RankError: There is nobody to send to.
        """
        self.exchange(channel, [send], [], place)

    def fail(self, reason: str) -> None:
        """Tell nobody."""

    def end(self) -> None:
        """Tell nobody."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A rank in a collective.

    Attributes:
        transport: Sends and receives.
        ranks: The ranks of the group.
        index: Which of them this one is.
        call: What is asked for.
        place: The same for messages.
    """

    transport: Transport
    ranks: tuple[int, ...]
    index: int
    call: CollectiveCall
    place: CallPlace

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def channel(self) -> str:
        """What keeps the exchanges of a group, and tensors of different tags, apart."""
        if self.call.kind in {Collective.SEND, Collective.RECEIVE}:
            return f"{self.call.group}/{self.call.tag}"
        return self.call.group

    @property
    def others(self) -> Iterator[int]:
        """Indices of the other ranks."""
        return (index for index in range(self.count) if index != self.index)

    def headers(self, mine: CallHeader) -> dict[int, CallHeader]:
        """Exchange headers with the group; return them by rank."""
        packed = mine.packed()
        received = {index: np.zeros(HEADER_BYTES, np.uint8) for index in self.others}
        self.exchange(dict.fromkeys(self.others, packed), received)
        others = {self.ranks[index]: agreement.unpacked(data) for index, data in received.items()}
        return {self.ranks[self.index]: mine, **others}

    def exchange(self, sends: Mapping[int, np.ndarray], receives: Mapping[int, np.ndarray]) -> None:
        """Send to some members and receive from some; nothing is sent of empty arrays."""
        parcels = [
            [(self.ranks[index], _bytes(array)) for index, array in arrays.items() if array.size]
            for arrays in (sends, receives)
        ]
        self.transport.exchange(self.channel, parcels[0], parcels[1], self.place)

    def peer(self) -> int:
        """Return the rank that a tensor goes to or comes from.

        Raises:
            RankError: The group has no such rank.
        """
        if self.call.peer >= self.count:
            raise RankError(
                self.place.operator,
                f"{self.place.kind}: group {self.call.group!r} has no rank {self.call.peer}, only 0 to"
                f" {self.count - 1}",
            )
        return self.ranks[self.call.peer]

    def send(self, array: np.ndarray, mine: CallHeader, empty: Empty) -> list[np.ndarray]:
        """Send a tensor to one rank, and go on before it is received; return the tensor."""
        channel, peer = self.channel, self.peer()
        self.transport.post(channel, (peer, mine.packed()), self.place)
        if array.size:
            self.transport.post(channel, (peer, _bytes(array)), self.place)
        return [_copied(array, empty)]

    def receive(self, network: Fingerprint, empty: Empty) -> list[np.ndarray]:
        """Receive the tensor of one rank."""
        assert self.call.dtype is not None
        out = empty(self.call.shape, self.call.dtype.numpy)
        channel, peer = self.channel, self.peer()
        told = np.zeros(HEADER_BYTES, np.uint8)
        self.transport.exchange(channel, [], [(peer, told)], self.place)
        sent, own = agreement.unpacked(told), agreement.header(self.call, self.place.operator, [out], network)
        if (sent.dtypes, sent.shapes) != (own.dtypes, own.shapes):
            raise RankError(
                self.place.operator,
                f"rank {self.ranks[self.index]} expects {own}, rank {peer} sent {sent}",
            )
        if out.size:
            self.transport.exchange(channel, [], [(peer, _bytes(out))], self.place)
        return [out]

    def refuse(self, message: str) -> RankError:
        """Return the error of tensors that the collective cannot take."""
        return RankError(self.place.operator, f"{self.place.kind} of {self.count} ranks: {message}")


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _copied(array: np.ndarray, empty: Empty) -> np.ndarray:
    out = empty(array.shape, array.dtype)
    out[...] = array
    return out


def _check_reducible(member: _Member, array: np.ndarray) -> None:
    name = dtypes.from_numpy(array.dtype).name
    if name not in reductions.REDUCIBLE:
        raise member.refuse(f"tensors of {name} cannot be reduced")


def _all_reduce(member: _Member, arrays: Sequence[np.ndarray], empty: Empty) -> list[np.ndarray]:
    (array,) = arrays
    _check_reducible(member, array)
    out = empty(array.shape, array.dtype)
    data, result = array.reshape(-1), out.reshape(-1)
    if array.nbytes <= _SMALL or member.count == 1:
        parts = {index: np.empty_like(data) for index in member.others}
        member.exchange(dict.fromkeys(member.others, data), parts)
        parts[member.index] = data
        reductions.reduce(member.call.op, [parts[index] for index in range(member.count)], result)
        return [out]
    most = _BLOCK // array.itemsize * member.count
    buffers = {index: np.empty(_BLOCK // array.itemsize, array.dtype) for index in member.others}
    for start in range(0, data.size, most):
        stop = min(start + most, data.size)
        _all_reduce_part(member, data[start:stop], result[start:stop], buffers)
    return [out]


def _all_reduce_part(
    member: _Member, data: np.ndarray, result: np.ndarray, buffers: Mapping[int, np.ndarray]
) -> None:
    """Let each rank join one block of a part of the tensors, and hand it to all others."""
    borders = [data.size * index // member.count for index in range(member.count + 1)]
    blocks = [slice(*pair) for pair in itertools.pairwise(borders)]
    mine = blocks[member.index]
    parts = {index: buffers[index][: mine.stop - mine.start] for index in member.others}
    member.exchange({index: data[blocks[index]] for index in member.others}, parts)
    parts[member.index] = data[mine]
    reductions.reduce(member.call.op, [parts[index] for index in range(member.count)], result[mine])
    member.exchange(
        dict.fromkeys(member.others, result[mine]), {index: result[blocks[index]] for index in member.others}
    )


def _all_gather(member: _Member, arrays: Sequence[np.ndarray], empty: Empty) -> list[np.ndarray]:
    (array,) = arrays
    axis = _axis(member, array, member.call.concat_axis)
    parts = {index: np.empty_like(array) for index in member.others}
    member.exchange(dict.fromkeys(member.others, array), parts)
    parts[member.index] = array
    return [_joined(parts, axis, empty)]


def _reduce_scatter(member: _Member, arrays: Sequence[np.ndarray], empty: Empty) -> list[np.ndarray]:
    (array,) = arrays
    _check_reducible(member, array)
    blocks = _cut(member, array, 0)
    out = empty(blocks[member.index].shape, array.dtype)
    parts = {index: np.empty_like(blocks[member.index]) for index in member.others}
    member.exchange({index: blocks[index] for index in member.others}, parts)
    parts[member.index] = blocks[member.index]
    flat = [parts[index].reshape(-1) for index in range(member.count)]
    reductions.reduce(member.call.op, flat, out.reshape(-1))
    return [out]


def _broadcast(member: _Member, arrays: Sequence[np.ndarray], empty: Empty) -> list[np.ndarray]:
    member.peer()
    outputs = []
    for array in arrays:
        if member.index == member.call.peer:
            member.exchange(dict.fromkeys(member.others, array), {})
            outputs.append(_copied(array, empty))
        else:
            outputs.append(empty(array.shape, array.dtype))
            member.exchange({}, {member.call.peer: outputs[-1]})
    return outputs


def _all_to_all(member: _Member, arrays: Sequence[np.ndarray], empty: Empty) -> list[np.ndarray]:
    (array,) = arrays
    axis = _axis(member, array, member.call.concat_axis)
    blocks = _cut(member, array, member.call.split_axis)
    parts = {index: np.empty_like(blocks[index]) for index in member.others}
    member.exchange({index: blocks[index] for index in member.others}, parts)
    parts[member.index] = blocks[member.index]
    return [_joined(parts, axis, empty)]


def _axis(member: _Member, array: np.ndarray, axis: int) -> int:
    if axis >= array.ndim:
        raise member.refuse(f"a tensor of shape {array.shape} has no axis {axis}")
    return axis


def _cut(member: _Member, array: np.ndarray, axis: int) -> list[np.ndarray]:
    """Return the part of a tensor that each rank gets, each contiguous."""
    size = array.shape[_axis(member, array, axis)]
    if size % member.count:
        raise member.refuse(
            f"axis {axis} of shape {array.shape} cannot be cut into {member.count} equal parts"
        )
    return [np.ascontiguousarray(part) for part in np.split(array, member.count, axis)]


def _joined(parts: Mapping[int, np.ndarray], axis: int, empty: Empty) -> np.ndarray:
    ordered = [parts[index] for index in sorted(parts)]
    shape = list(ordered[0].shape)
    shape[axis] *= len(ordered)
    out = empty(tuple(shape), ordered[0].dtype)
    np.concatenate(ordered, axis, out=out)
    return out


_ALGORITHMS: Final[
    Mapping[Collective, Callable[[_Member, Sequence[np.ndarray], Empty], list[np.ndarray]]]
] = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.ALL_GATHER: _all_gather,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.BROADCAST: _broadcast,
    Collective.ALL_TO_ALL: _all_to_all,
}
