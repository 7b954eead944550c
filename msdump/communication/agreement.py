"""Headers that ranks exchange before tensors, so that all of them refuse calls or models that do not fit."""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.communication.transport import CallPlace
from msdump.errors import RankError
from msdump.graph import IN_MEMORY, Collective, CollectiveCall, Graph
from msdump.plan import Context, DumpPlan

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


def header(call: CollectiveCall, operator: str, arrays: list[np.ndarray], network: Fingerprint) -> CallHeader:
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


def unpacked(data: np.ndarray) -> CallHeader:
    """Deserialize a header that ``CallHeader.packed`` made."""
    header: CallHeader = pickle.loads(data.tobytes())  # noqa: S301 - of a rank of the same program
    return header


def check(mine: int, headers: Mapping[int, CallHeader], place: CallPlace) -> None:
    """Compare the call of one rank (``mine``) with the calls of all ranks of its group.

    Raises:
        RankError: The ranks call different collectives, pass different tensors, or run different models.
    """
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


def warn_of_settings(headers: Mapping[int, CallHeader]) -> None:
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
