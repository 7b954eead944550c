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
    """Arguments of a collective node."""

    kind: Collective
    group: str = WORLD_GROUP  # name of the group of ranks that takes part
    op: str = REDUCTIONS[0]  # how AllReduce and ReduceScatter join the ranks' elements
    count: int = 0  # number of ranks that the model was made for, 0 where it does not say
    peer: int = 0  # rank in the group that a tensor comes from (Broadcast, Receive) or goes to (Send)
    tag: int = 0  # distinguishes tensors that one rank sends to the same other rank
    split_axis: int = 0  # axis that AlltoAll cuts and ReduceScatter scatters
    concat_axis: int = 0  # axis along which AlltoAll and AllGather join
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
    """Return the arguments of a collective node, else None; GraphError for an attribute that is wrong."""
    kind = collective(node.domain, node.op_type)
    if kind is None:
        return None
    inputs, outputs = len(node.inputs), len(node.outputs)
    if kind is Collective.BROADCAST:
        fits = inputs == outputs >= 1
    elif kind is Collective.RECEIVE:  # inputs of Receive only order it behind other operators
        fits = outputs == 1
    else:
        fits = inputs == 1 and (outputs == 1 or (kind is Collective.SEND and outputs == 0))
    if not fits or (kind is not Collective.RECEIVE and "" in node.inputs):
        raise GraphError(f"{_title(node)}: {inputs} inputs and {outputs} outputs do not fit {kind}")
    fields = {name: _field(node, *field) for name, field in (_GROUP | _FIELDS[kind]).items()}
    return CollectiveCall(kind, **fields)


def _field(node: Node, names: tuple[str, ...], read: Callable[[Any], Any], default: Any) -> Any:
    """Return the value of the first of some attributes that a node has, checked by ``read``, or a default."""
    value = next((node.attributes[name] for name in names if name in node.attributes), default)
    try:
        return read(value)
    except (TypeError, ValueError, FormatError) as error:
        raise GraphError(f"{_title(node)}: attribute {names[0]!r} = {value!r}: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be a text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("must be a number from 0")
    return value


def _reduction(value: Any) -> str:
    reduction = _text(value).lower()
    if reduction not in REDUCTIONS:
        raise ValueError(f"must be one of {', '.join(REDUCTIONS)}")
    return reduction


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple) or not all(isinstance(size, int) and size >= 0 for size in value):
        raise ValueError("must be a list of dimensions from 0")
    return value


def _dtype(value: Any) -> DType:
    return dtypes.from_name(value) if isinstance(value, str) else dtypes.from_onnx(value)


COUNTS: Final = ("rank_size", "group_size", "split_count")
"""Attributes of collectives that hold a number of ranks or parts."""

_Field = tuple[tuple[str, ...], Callable[[Any], Any], Any]
_GROUP: Final[dict[str, _Field]] = {
    "group": (("group",), lambda value: _text(value) or WORLD_GROUP, WORLD_GROUP)
}
_OP: Final[dict[str, _Field]] = {"op": (("op", "reduction"), _reduction, REDUCTIONS[0])}
_COUNT: Final[dict[str, _Field]] = {"count": (COUNTS, _number, 0)}
_TAG: Final[dict[str, _Field]] = {"tag": (("sr_tag",), _number, 0)}

_FIELDS: Final[Mapping[Collective, dict[str, _Field]]] = {
    Collective.ALL_REDUCE: _OP,
    Collective.ALL_GATHER: _COUNT | {"concat_axis": (("axis",), _number, 0)},
    Collective.REDUCE_SCATTER: _OP | _COUNT,
    Collective.BROADCAST: {"peer": (("root_rank",), _number, 0)},
    Collective.ALL_TO_ALL: _COUNT
    | {"split_axis": (("split_dim",), _number, 0), "concat_axis": (("concat_dim",), _number, 0)},
    Collective.SEND: {"peer": (("dest_rank",), _number, None)} | _TAG,
    Collective.RECEIVE: {"peer": (("src_rank",), _number, None)}
    | _TAG
    | {"shape": (("shape",), _sizes, None), "dtype": (("dtype",), _dtype, None)},
}
"""By field of CollectiveCall: names of its attribute, a function that checks the value, and the default."""


def _title(node: Node) -> str:
    return f"node {node.name!r} ({node.op_type})"
