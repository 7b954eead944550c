"""What ranks tell each other before they exchange tensors, so that all of them refuse what does not fit."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.communication.waiting import CallPlace
from msdump.errors import RankError
from msdump.graph.collectives.calls import Collective, CollectiveCall

_log = logging.getLogger("msdump.communication")

HEADER_BYTES: Final = 4096
_SHORT: Final = 60  # characters of a name in a header that would be too long
_MOST_TENSORS: Final = 512  # characters that tell types and shapes; of more tensors a digest stands there

_POINT_TO_POINT: Final = frozenset({Collective.SEND, Collective.RECEIVE})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What the network of a rank is, for comparison with those of other ranks.

    Attributes:
        source: Where the model comes from.
        families: The file's path with ``{rank}`` for the rank's number, for each place where it stands: files
            that have one in common are parts of one model, and may differ.
        operators: Digest of the operators, their names and types.
        settings: Digest of the dump configuration and of where the network runs.
        settings_source: Where the dump configuration comes from.
    """

    source: str = ""
    families: tuple[str, ...] = ()
    operators: str = ""
    settings: str = ""
    settings_source: str = ""


@dataclass(frozen=True, slots=True)
class CallHeader:
    """What a rank tells the others of its call.

    Attributes:
        kind: The collective; of a Receive what it expects to come, a Send.
        operator: Full name of the operator.
        op: The reduction, "" without one.
        peer: The root of a Broadcast, else 0.
        dtypes: Element type of each tensor.
        shapes: Dimensions of each tensor.
        network: What the rank's network is.
    """

    kind: str
    operator: str
    op: str
    peer: int
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    network: Fingerprint

    def packed(self) -> np.ndarray:
        """Return the header as bytes of a fixed number."""
        data = json.dumps(asdict(self)).encode()
        if len(data) > HEADER_BYTES:
            data = json.dumps(asdict(self._with_short_names())).encode()
        packed = np.zeros(HEADER_BYTES, np.uint8)
        packed[: len(data)] = np.frombuffer(data, np.uint8)
        return packed

    def _with_short_names(self) -> CallHeader:
        """Return the header with the ends of names; what is compared stays."""
        network = replace(
            self.network,
            source=self.network.source[-_SHORT:],
            families=tuple(family[-_SHORT:] for family in self.network.families[:3]),
            settings_source=self.network.settings_source[-_SHORT:],
        )
        return replace(self, operator=self.operator[-_SHORT:], network=network)

    @property
    def call(self) -> tuple[object, ...]:
        """What must be the same on all ranks."""
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


def header(call: CollectiveCall, operator: str, arrays: list[np.ndarray], network: Fingerprint) -> CallHeader:
    """Return the header of a call."""
    has_op = call.kind in {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER}
    types = tuple(dtypes.from_numpy(array.dtype).title for array in arrays)
    shapes = tuple(array.shape for array in arrays)
    told = repr((types, shapes))
    if len(told) > _MOST_TENSORS:  # on every rank alike, since only the tensors decide
        types, shapes = (f"{len(arrays)} tensors, digest {_digest(told)}",), ((),)
    return CallHeader(
        kind=str(call.kind),
        operator=operator,
        op=call.op if has_op else "",
        peer=call.peer if call.kind is Collective.BROADCAST else 0,
        dtypes=types,
        shapes=shapes,
        network=network,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def unpacked(data: np.ndarray) -> CallHeader:
    """Return the header of bytes."""
    fields = json.loads(data.tobytes().rstrip(b"\0"))
    fields["dtypes"] = tuple(fields["dtypes"])
    fields["shapes"] = tuple(tuple(shape) for shape in fields["shapes"])
    network = fields["network"]
    network["families"] = tuple(network["families"])
    return CallHeader(**{**fields, "network": Fingerprint(**network)})


def check(mine: int, headers: Mapping[int, CallHeader], place: CallPlace) -> None:
    """Compare the calls of the ranks of a group.

    Args:
        mine: The rank that compares.
        headers: The header of each rank.
        place: Where the rank is.

    Raises:
        RankError: They are different collectives, of different tensors, or of different models.
    """
    own = headers[mine]
    for rank, other in sorted(headers.items()):
        if other.call != own.call:
            low, high = sorted((mine, rank))
            told = f"rank {low} calls {headers[low]}, rank {high} {headers[high]}"
            raise RankError(place.operator, f"the ranks of group {place.group} do not agree: {told}")
        if place.kind not in _POINT_TO_POINT:
            _check_models(place, (mine, own.network), (rank, other.network))


def _check_models(place: CallPlace, one: tuple[int, Fingerprint], two: tuple[int, Fingerprint]) -> None:
    (_, first), (_, second) = low, high = sorted((one, two), key=lambda each: each[0])
    if first.operators != second.operators and set(first.families).isdisjoint(second.families):
        raise RankError(
            place.operator,
            f"the ranks run different models: rank {low[0]} {first.source}, rank {high[0]} {second.source};"
            " give all of them one, or files named alike but for the rank (rank0.onnx, rank1.onnx)",
        )


def warn_of_settings(headers: Mapping[int, CallHeader]) -> None:
    """Log which ranks do, where they dump by different configurations or run on different devices."""
    by_settings: dict[str, list[int]] = {}
    for rank, each in sorted(headers.items()):
        by_settings.setdefault(each.network.settings, []).append(rank)
    if len(by_settings) < 2:  # noqa: PLR2004 - all the same
        return
    told = "; ".join(
        f"rank {', '.join(map(str, ranks))}: {headers[ranks[0]].network.settings_source or 'no dump'}"
        for ranks in by_settings.values()
    )
    _log.warning("the ranks have different dump configurations or devices: %s", told)
