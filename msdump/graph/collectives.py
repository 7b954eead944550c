"""Collectives: operators that exchange tensors between ranks, with their arguments checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import FormatError, GraphError
from msdump.graph.graph import MINDSPORE_DOMAIN, WORLD_GROUP, Node


class Collective(StrEnum):
    """An operator that exchanges tensors between ranks, by MindSpore's name."""

    ALL_REDUCE = "AllReduce"
    ALL_GATHER = "AllGather"
    REDUCE_SCATTER = "ReduceScatter"
    BROADCAST = "Broadcast"
    ALL_TO_ALL = "AlltoAll"
    SEND = "Send"
    RECEIVE = "Receive"


HCOM_NAMES: Final[Mapping[str, Collective]] = {
    "HcomAllReduce": Collective.ALL_REDUCE,
    "HcomAllGather": Collective.ALL_GATHER,
    "HcomReduceScatter": Collective.REDUCE_SCATTER,
    "HcomBroadcast": Collective.BROADCAST,
    "HcomAllToAll": Collective.ALL_TO_ALL,
    "HcomSend": Collective.SEND,
    "HcomReceive": Collective.RECEIVE,
}
"""GE's names, which compiled graphs show."""

NAMES: Final[Mapping[str, Mapping[str, Collective]]] = {
    MINDSPORE_DOMAIN: {str(kind): kind for kind in Collective},
    "com.microsoft": {
        "AllReduce": Collective.ALL_REDUCE,
        "AllGather": Collective.ALL_GATHER,
        "AllToAll": Collective.ALL_TO_ALL,
    },
}
"""MindSpore's and onnxruntime's names by domain."""

REDUCTIONS: Final = ("sum", "max", "min", "prod")
"""Values of ``op`` (GE: ``reduction``)."""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """Arguments of a collective node.

    Attributes:
        group: Name of the group of ranks that takes part.
        op: How AllReduce and ReduceScatter join the ranks' elements.
        count: Number of ranks that the model was made for, 0 where it does not say.
        peer: Rank in the group that a tensor comes from (Broadcast, Receive) or goes to (Send).
        tag: Distinguishes tensors that one rank sends to the same other rank.
        split_axis: Axis that AlltoAll cuts and ReduceScatter scatters.
        concat_axis: Axis along which AlltoAll and AllGather join.
    """

    kind: Collective
    group: str = WORLD_GROUP
    op: str = REDUCTIONS[0]
    count: int = 0
    peer: int = 0
    tag: int = 0
    split_axis: int = 0
    concat_axis: int = 0
    dtype: DType | None = None
    shape: tuple[int, ...] = ()


def collective(domain: str, op_type: str) -> Collective | None:
    """Return the collective of an operator, None for any other operator.

    MindSpore's lie in the domain ``mindspore.ops``, onnxruntime's in ``com.microsoft``; GE's names count in
    every domain.

    >>> str(collective("mindspore.ops", "AllReduce")), str(collective("com.microsoft", "AllToAll"))
    ('AllReduce', 'AlltoAll')
    >>> str(collective("ge", "HcomSend")), collective("", "AllReduce")
    ('Send', None)
    """
    return NAMES.get(domain, {}).get(op_type) or HCOM_NAMES.get(op_type)


def collective_call(node: Node) -> CollectiveCall | None:
    """Return the arguments of a collective node, None for any other node.

    Raises:
        GraphError: An attribute is missing, or has a value that it cannot have.
    """
    kind = collective(node.domain, node.op_type)
    if kind is None:
        return None
    attributes = _Attributes(node.attributes, f"node {node.name!r} ({node.op_type})")
    _check_arity(node, kind, attributes)
    group = attributes.text(("group",), WORLD_GROUP) or WORLD_GROUP
    return CollectiveCall(kind, group, **_READERS[kind](attributes))


@dataclass(frozen=True, slots=True)
class _Attributes:
    """The attributes of a node; each has one of several names."""

    values: Mapping[str, Any]
    node: str

    def text(self, names: tuple[str, ...], default: str) -> str:
        value = self._value(names, default)
        if not isinstance(value, str):
            raise GraphError(f"{self.node}: attribute {names[0]!r} = {value!r}: a text is expected")
        return value

    def number(self, names: tuple[str, ...], default: int | None = None) -> int:
        value = self._value(names, default)
        if not isinstance(value, int) or value < 0:
            raise GraphError(f"{self.node}: attribute {names[0]!r} = {value!r}: a number from 0 is expected")
        return value

    def op(self) -> str:
        value = self.text(("op", "reduction"), REDUCTIONS[0]).lower()
        if value not in REDUCTIONS:
            raise GraphError(f"{self.node}: attribute 'op' = {value!r}: {', '.join(REDUCTIONS)} are allowed")
        return value

    def sizes(self) -> tuple[int, ...]:
        value = self._value(("shape",), None)
        if not isinstance(value, tuple) or not all(isinstance(size, int) and size >= 0 for size in value):
            raise GraphError(f"{self.node}: attribute 'shape' = {value!r}: dimensions from 0 are expected")
        return value

    def dtype(self) -> DType:
        value = self._value(("dtype",), None)
        try:
            return dtypes.from_name(value) if isinstance(value, str) else dtypes.from_onnx(value)
        except FormatError as error:
            raise GraphError(f"{self.node}: attribute 'dtype' = {value!r}: {error}") from error

    def _value(self, names: tuple[str, ...], default: Any) -> Any:
        return next((self.values[name] for name in names if name in self.values), default)


COUNTS: Final = ("rank_size", "group_size", "split_count")
"""Attributes of collectives that hold a number of ranks or parts."""

_READERS: Final[Mapping[Collective, Callable[[_Attributes], dict[str, Any]]]] = {
    Collective.ALL_REDUCE: lambda read: {"op": read.op()},
    Collective.ALL_GATHER: lambda read: {
        "count": read.number(COUNTS, 0),
        "concat_axis": read.number(("axis",), 0),
    },
    Collective.REDUCE_SCATTER: lambda read: {"op": read.op(), "count": read.number(COUNTS, 0)},
    Collective.BROADCAST: lambda read: {"peer": read.number(("root_rank",), 0)},
    Collective.ALL_TO_ALL: lambda read: {
        "count": read.number(COUNTS, 0),
        "split_axis": read.number(("split_dim",), 0),
        "concat_axis": read.number(("concat_dim",), 0),
    },
    Collective.SEND: lambda read: {
        "peer": read.number(("dest_rank",)),
        "tag": read.number(("sr_tag",), 0),
    },
    Collective.RECEIVE: lambda read: {
        "peer": read.number(("src_rank",)),
        "tag": read.number(("sr_tag",), 0),
        "shape": read.sizes(),
        "dtype": read.dtype(),
    },
}
"""Readers of each collective's attributes, by field of CollectiveCall."""


def _check_arity(node: Node, kind: Collective, attributes: _Attributes) -> None:
    inputs, outputs = len(node.inputs), len(node.outputs)
    if kind is Collective.BROADCAST:
        fits = inputs == outputs >= 1
    elif kind is Collective.RECEIVE:  # inputs only order it behind other operators
        fits = outputs == 1
    else:
        fits = inputs == 1 and (outputs == 1 or (kind is Collective.SEND and outputs == 0))
    if not fits or (kind is not Collective.RECEIVE and "" in node.inputs):
        raise GraphError(f"{attributes.node}: {inputs} inputs and {outputs} outputs do not fit {kind}")
