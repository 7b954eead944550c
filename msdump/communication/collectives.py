"""The collectives on arrays, over any transport, and the reductions of tensors of several ranks.

Ranks exchange headers before tensors, so that all of them refuse calls or models that do not fit.

A large AllReduce goes block by block: each rank gets one block of all ranks, joins them in rank order, and
sends the result to the others.

Integers and float types of four bytes and more are joined in their own type, the smaller float types in
float32, and rounded once, when all ranks are in: ``round(((r0 + r1) + r2) + r3)``. The order is that of the
ranks in the group, so every rank and every transport gets the same bits. ``max`` and ``min`` keep NaN.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.communication.transport import CallPlace, Transport
from msdump.communication.world import World
from msdump.errors import RankError
from msdump.graph import IN_MEMORY, Collective, CollectiveCall, Graph
from msdump.plan import Context, DumpPlan
from msdump.threads import new_lock

_log = logging.getLogger("msdump.communication")

HEADER_BYTES: Final = 4096
_SHORT: Final = 60  # characters of a name in a header that would be too long
_MOST_TENSORS: Final = 512  # characters of types and shapes; more of them become a digest


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digests of a rank's network, for comparison between ranks."""

    source: str = ""  # file of the model
    # the file's path with ``{rank}`` in place of the rank's number, once per occurrence. Files that share
    # such a pattern are parts of one model and may have different operators
    families: tuple[str, ...] = ()
    operators: str = ""  # digest of the operators' names and types
    settings: str = ""  # digest of the dump configuration and of the device
    settings_source: str = ""  # file of the dump configuration


@dataclass(frozen=True, slots=True)
class CallHeader:
    """A rank's call of a collective: ``op`` is the reduction, ``peer`` the root of a Broadcast, else 0."""

    kind: str
    operator: str
    op: str
    peer: int
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    network: Fingerprint

    def packed(self) -> np.ndarray:
        """Serialize the header to ``HEADER_BYTES`` bytes."""
        data = pickle.dumps(self)
        if len(data) > HEADER_BYTES:
            network = replace(
                self.network,
                source=self.network.source[-_SHORT:],
                families=tuple(family[-_SHORT:] for family in self.network.families[:3]),
                settings_source=self.network.settings_source[-_SHORT:],
            )
            data = pickle.dumps(replace(self, operator=self.operator[-_SHORT:], network=network))
        packed = np.zeros(HEADER_BYTES, np.uint8)
        packed[: len(data)] = np.frombuffer(data, np.uint8)
        return packed

    @property
    def call(self) -> tuple[object, ...]:
        """Fields that must be equal on all ranks."""
        return self.kind, self.op, self.peer, self.dtypes, self.shapes

    def __str__(self) -> str:
        """Name collective, tensors and operator."""
        kind = f"{self.kind}({self.op})" if self.op else self.kind
        tensors = ", ".join(
            f"{dtype}[{','.join(map(str, shape))}]"
            for dtype, shape in zip(self.dtypes, self.shapes, strict=True)
        )
        root = f" from root {self.peer}" if self.peer else ""
        return f"{kind} of {tensors}{root} in {self.operator}"


def _header(
    call: CollectiveCall, operator: str, arrays: list[np.ndarray], network: Fingerprint
) -> CallHeader:
    """Return the header of a call."""
    has_op = call.kind in {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER}
    types = tuple(dtypes.from_numpy(array.dtype).title for array in arrays)
    shapes = tuple(array.shape for array in arrays)
    if len(repr((types, shapes))) > _MOST_TENSORS:  # the same decision on all ranks: their tensors agree
        types, shapes = (f"{len(arrays)} tensors, digest {_digest((types, shapes))}",), ((),)
    return CallHeader(
        kind=str(call.kind),
        operator=operator,
        op=call.op if has_op else "",
        peer=call.peer if call.kind is Collective.BROADCAST else 0,
        dtypes=types,
        shapes=shapes,
        network=network,
    )


def _unpacked(data: np.ndarray) -> CallHeader:
    """Deserialize a header that ``CallHeader.packed`` made."""
    header: CallHeader = pickle.loads(data.tobytes())  # noqa: S301 - of a rank of the same program
    return header


def _check_calls(mine: int, headers: Mapping[int, CallHeader], place: CallPlace) -> None:
    """Compare one rank's call (``mine``) with the calls of its group; RankError if calls or models differ."""
    for rank in sorted(headers):
        low, high = sorted((mine, rank))
        first, second = headers[low], headers[high]
        if first.call != second.call:
            fault = f"rank {low} calls {first}, rank {high} {second}"
            raise RankError(place.operator, f"the ranks of group {place.group} do not agree: {fault}")
        one, two = first.network, second.network
        if one.operators != two.operators and set(one.families).isdisjoint(two.families):
            raise RankError(
                place.operator,
                f"the ranks run different models: rank {low} {one.source}, rank {high} {two.source};"
                " give all ranks one file, or files named alike except for the rank (rank0.onnx, rank1.onnx)",
            )


def _warn_of_settings(headers: Mapping[int, CallHeader]) -> None:
    """Log the ranks of each dump configuration and device if they differ."""
    by_settings: dict[str, list[int]] = {}
    for rank, each in sorted(headers.items()):
        by_settings.setdefault(each.network.settings, []).append(rank)
    if len(by_settings) < 2:  # noqa: PLR2004 - all the same
        return
    listed = "; ".join(
        f"rank {', '.join(map(str, ranks))}: {headers[ranks[0]].network.settings_source or 'no dump'}"
        for ranks in by_settings.values()
    )
    _log.warning("the ranks have different dump configurations or devices: %s", listed)


def fingerprint(graph: Graph, plan: DumpPlan | None, context: Context, rank: int) -> Fingerprint:
    """Return the digests of a network, without its weights and the device's number, which differ by rank."""
    operators = [
        (node.domain, node.op_type, node.operator.full_name) for each in graph.walk() for node in each.nodes
    ]
    where = {name: value for name, value in asdict(context).items() if name != "device_id"}
    settings = (sorted(where.items()), b"" if plan is None else plan.source_bytes)
    return Fingerprint(
        source=graph.source,
        families=() if graph.source == IN_MEMORY else families(graph.source, rank),
        operators=_digest(operators),
        settings=_digest(settings),
        settings_source="" if plan is None else plan.source,
    )


def families(source: str, rank: int) -> tuple[str, ...]:
    """Return the path of a file with ``{rank}`` in the place of the rank's number, for each such place.

    >>> families("models/rank1.onnx", 1), families("v1/stage_1.onnx", 1)
    (('models/rank{rank}.onnx',), ('v{rank}/stage_1.onnx', 'v1/stage_{rank}.onnx'))
    >>> families("rank10.onnx", 1)
    ()
    """
    places = re.finditer(rf"(?<!\d){rank}(?!\d)", source)
    return tuple(f"{source[: place.start()]}{{rank}}{source[place.end() :]}" for place in places)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


_JOINS: Final[Mapping[str, Callable[..., Any]]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}

_OWN: Final = frozenset(
    {"float32", "float64"} | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
)
_WIDENED: Final = frozenset(
    {"float16", "bfloat16"} | {row.name for row in dtypes.DTYPES if row.name.startswith("float8")}
)


def reduce(op: str, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Join arrays element by element.

    >>> out = np.zeros(2, np.float16)
    >>> reduce("sum", [np.array(part, np.float16) for part in ([2048, 1], [1, 2], [1, 3])], out)
    >>> out.tolist()
    [2050.0, 6.0]
    """
    join, first = _JOINS[op], parts[0]
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are results like others
        if dtypes.from_numpy(out.dtype).name in _OWN:
            result = first
            for part in parts[1:-1]:
                result = join(result, part)
            if len(parts) > 1:
                join(result, parts[-1], out=out)
            else:
                out[:] = first
            return
        wide = first.astype(np.float32)
        for part in parts[1:]:
            join(wide, part.astype(np.float32), out=wide)
        out[:] = wide.astype(out.dtype)


Empty = Callable[[tuple[int, ...], np.dtype], np.ndarray]
"""Returns an array that a result is written to, by its shape and element type."""

_SMALL: Final = 1 << 16
"""Bytes up to which each rank joins all elements itself: one exchange instead of two."""

_BLOCK: Final = 1 << 22
"""Bytes that a rank joins at a time."""


class Collectives:
    """The collectives of one network on one rank."""

    def __init__(self, world: World, network: Fingerprint) -> None:
        """Communicate with no other rank before the first collective."""
        self._world = world
        self._network = network
        self._compared: set[tuple[int, ...]] = set()

    def run(
        self, call: CollectiveCall, operator: str, arrays: Sequence[np.ndarray], empty: Empty
    ) -> list[np.ndarray]:
        """Take part in a collective of an operator; return the results, which ``empty`` makes.

        Raises:
            RankError: The ranks do not agree, or one of them does not come.
            InputError: There is no such group.
        """
        ranks, rank = self._world.ranks(call.group), self._world.identity.rank
        place = CallPlace(operator, str(call.kind), call.group)
        if rank not in ranks:
            raise RankError(
                operator, f"rank {rank} is not in group {call.group!r}, which holds {list(ranks)}"
            )
        if call.count not in {0, len(ranks)}:
            raise RankError(
                operator,
                f"the model is made for {call.count} ranks, but group {call.group!r} has {len(ranks)}",
            )
        is_tagged = call.kind in {Collective.SEND, Collective.RECEIVE}
        channel = f"{call.group}/{call.tag}" if is_tagged else call.group
        transport = self._world.transport(place) if len(ranks) > 1 else None
        group = _Group(transport, ranks, ranks.index(rank), channel, place)
        if any(array.dtype.hasobject for array in arrays):
            raise RankError(operator, "tensors of text cannot be sent between ranks")
        parts = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
        mine = _header(call, operator, parts, self._network)
        # exchanges of one channel must not mix if several networks run in threads of a rank
        with self._world.keep(group.channel, new_lock):
            if call.kind is Collective.SEND:
                return _send(group, call.peer, parts[0], mine, empty)
            if call.kind is Collective.RECEIVE:
                return _receive(group, call, self._network, empty)
            packed = group.all_gather(mine.packed())
            headers = dict(zip(group.ranks, [_unpacked(each) for each in packed], strict=True))
            headers[group.ranks[group.index]] = mine  # with names that are not shortened
            _check_calls(group.ranks[group.index], headers, group.place)
            if group.ranks not in self._compared:
                self._compared.add(group.ranks)
                _warn_of_settings(headers)
            return [_ALGORITHMS[call.kind](group, call, part, empty) for part in parts]

    def failed(self, reason: str) -> None:
        """Report to the other ranks that the network's run failed on this rank."""
        self._world.fail(reason)


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of ranks, seen from the one at an index; exchanges of different channels do not mix.

    A group of one rank has no transport.
    """

    transport: Transport | None
    ranks: tuple[int, ...]
    index: int
    channel: str
    place: CallPlace

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def others(self) -> list[int]:
        """Indices of the other ranks."""
        return [index for index in range(self.count) if index != self.index]

    def exchange(self, sends: Mapping[int, np.ndarray], receives: Mapping[int, np.ndarray]) -> None:
        """Send arrays to ranks of the group and fill arrays from ranks; empty arrays are skipped."""
        sent, received = (
            [(self.ranks[index], _bytes(array)) for index, array in arrays.items() if array.size]
            for arrays in (sends, receives)
        )
        if sent or received:
            self.reach().exchange(self.channel, sent, received, self.place)

    def all_to_all(
        self, blocks: Sequence[np.ndarray], buffers: Sequence[np.ndarray] = ()
    ) -> list[np.ndarray]:
        """Send a contiguous block to each rank; return the received blocks, shaped as this rank's own block.

        If buffers are given, both they and the blocks are flat, and the buffers receive the blocks.
        """
        own = blocks[self.index]
        received = [
            buffers[index][: own.size] if buffers else np.empty_like(own) for index in range(self.count)
        ]
        received[self.index] = own
        self.exchange(
            {index: blocks[index] for index in self.others}, {index: received[index] for index in self.others}
        )
        return received

    def spread(self, arrays: Sequence[np.ndarray]) -> None:
        """Send the array of this rank to all others, and receive the other arrays from them."""
        self.exchange(
            dict.fromkeys(self.others, arrays[self.index]), {index: arrays[index] for index in self.others}
        )

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Send an array to all ranks; return all arrays in rank order."""
        return self.all_to_all([array] * self.count)

    def reach(self) -> Transport:
        """Return the transport; raise RankError in a group of one rank, which has none."""
        if self.transport is None:
            message = (
                f"{self.place.kind} of group {self.place.group}: there is only one rank; "
                "start several with mpirun or --ranks"
            )
            raise RankError(self.place.operator, message)
        return self.transport

    def rank(self, index: int) -> int:
        """Return the rank at an index of the group; raise RankError if the index is too large."""
        if index >= self.count:
            raise RankError(
                self.place.operator,
                f"{self.place.kind}: group {self.place.group!r} has no rank {index}, only 0 to"
                f" {self.count - 1}",
            )
        return self.ranks[index]

    def refuse(self, message: str) -> RankError:
        """Return the error of tensors that the collective cannot take."""
        return RankError(self.place.operator, f"{self.place.kind} of {self.count} ranks: {message}")


def _send(group: _Group, peer: int, array: np.ndarray, mine: CallHeader, empty: Empty) -> list[np.ndarray]:
    """Send a tensor to one rank without waiting for the receiver; return the tensor."""
    rank, transport = group.rank(peer), group.reach()
    transport.post(group.channel, (rank, mine.packed()), group.place)
    if array.size:
        transport.post(group.channel, (rank, _bytes(array)), group.place)
    return [_copied(array, empty)]


def _receive(group: _Group, call: CollectiveCall, network: Fingerprint, empty: Empty) -> list[np.ndarray]:
    assert call.dtype is not None
    out, rank = empty(call.shape, call.dtype.numpy), group.rank(call.peer)
    packed = np.zeros(HEADER_BYTES, np.uint8)
    group.reach().exchange(group.channel, [], [(rank, packed)], group.place)
    sent, own = _unpacked(packed), _header(call, group.place.operator, [out], network)
    if (sent.dtypes, sent.shapes) != (own.dtypes, own.shapes):
        message = f"rank {group.ranks[group.index]} expects {own}, rank {rank} sent {sent}"
        raise RankError(group.place.operator, message)
    group.exchange({}, {call.peer: out})
    return [out]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _copied(array: np.ndarray, empty: Empty) -> np.ndarray:
    out = empty(array.shape, array.dtype)
    out[...] = array
    return out


def _check_reducible(group: _Group, array: np.ndarray) -> None:
    name = dtypes.from_numpy(array.dtype).name
    if name not in _OWN | _WIDENED:
        raise group.refuse(f"tensors of {name} cannot be reduced")


def _all_reduce(group: _Group, call: CollectiveCall, array: np.ndarray, empty: Empty) -> np.ndarray:
    _check_reducible(group, array)
    out = empty(array.shape, array.dtype)
    data, result = array.reshape(-1), out.reshape(-1)
    if array.nbytes <= _SMALL or group.count == 1:
        reduce(call.op, group.all_gather(data), result)
        return out
    size = _BLOCK // array.itemsize
    buffers = [np.empty(size, array.dtype) for _ in group.ranks]
    for start in range(0, data.size, size * group.count):
        part = slice(start, start + size * group.count)
        blocks = _even_parts(data[part], group.count)
        results = _even_parts(result[part], group.count)
        reduce(call.op, group.all_to_all(blocks, buffers), results[group.index])
        group.spread(results)
    return out


def _even_parts(data: np.ndarray, count: int) -> list[np.ndarray]:
    borders = [data.size * index // count for index in range(count + 1)]
    return [data[start:stop] for start, stop in itertools.pairwise(borders)]


def _all_gather(group: _Group, call: CollectiveCall, array: np.ndarray, empty: Empty) -> np.ndarray:
    axis = _axis(group, array, call.concat_axis)
    return _joined(group.all_gather(array), axis, empty)


def _reduce_scatter(group: _Group, call: CollectiveCall, array: np.ndarray, empty: Empty) -> np.ndarray:
    _check_reducible(group, array)
    blocks = _cut(group, array, 0)
    out = empty(blocks[group.index].shape, array.dtype)
    reduce(call.op, [part.reshape(-1) for part in group.all_to_all(blocks)], out.reshape(-1))
    return out


def _broadcast(group: _Group, call: CollectiveCall, array: np.ndarray, empty: Empty) -> np.ndarray:
    group.rank(call.peer)
    if group.index == call.peer:
        group.exchange(dict.fromkeys(group.others, array), {})
        return _copied(array, empty)
    out = empty(array.shape, array.dtype)
    group.exchange({}, {call.peer: out})
    return out


def _all_to_all(group: _Group, call: CollectiveCall, array: np.ndarray, empty: Empty) -> np.ndarray:
    axis = _axis(group, array, call.concat_axis)
    return _joined(group.all_to_all(_cut(group, array, call.split_axis)), axis, empty)


def _axis(group: _Group, array: np.ndarray, axis: int) -> int:
    if axis >= array.ndim:
        raise group.refuse(f"a tensor of shape {array.shape} has no axis {axis}")
    return axis


def _cut(group: _Group, array: np.ndarray, axis: int) -> list[np.ndarray]:
    size = array.shape[_axis(group, array, axis)]
    if size % group.count:
        raise group.refuse(
            f"axis {axis} of shape {array.shape} cannot be split into {group.count} equal parts"
        )
    return [np.ascontiguousarray(part) for part in np.split(array, group.count, axis)]


def _joined(parts: Sequence[np.ndarray], axis: int, empty: Empty) -> np.ndarray:
    shape = list(parts[0].shape)
    shape[axis] *= len(parts)
    out = empty(tuple(shape), parts[0].dtype)
    np.concatenate(parts, axis, out=out)
    return out


_ALGORITHMS: Final[Mapping[Collective, Callable[[_Group, CollectiveCall, np.ndarray, Empty], np.ndarray]]] = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.ALL_GATHER: _all_gather,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.BROADCAST: _broadcast,
    Collective.ALL_TO_ALL: _all_to_all,
}


def shared(world: World, channel: str, data: bytes, place: CallPlace) -> dict[int, bytes]:
    """Gather bytes of all ranks, independently of a network's collectives; return them by rank, in order.

    Simultaneous exchanges need different channels; a channel may not be named like a group.

    Raises:
        RankError: Another rank does not take part.
    """
    ranks = tuple(range(world.identity.size))
    transport = world.transport(place) if len(ranks) > 1 else None
    group = _Group(transport, ranks, world.identity.rank, channel, place)
    with world.keep(channel, new_lock):
        sizes = group.all_gather(np.array([len(data)], np.int64))
        received = [np.empty(int(size[0]), np.uint8) for size in sizes]
        received[group.index] = np.frombuffer(data, np.uint8)
        group.spread(received)
    return {rank: array.tobytes() for rank, array in enumerate(received)}
