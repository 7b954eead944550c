"""Files of tensors that torch.compile captured, with the fields that files of other dumps have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msdump.record import IO
from msdump.store import captured_names
from msdump.store.captured_names import CapturedTensorName
from msdump.store.names import TensorName

_TIME: Final = "%Y%m%d%H%M%S%f"
_MICROSECONDS: Final = 1_000_000


def tensor_names(file_names: Iterable[str]) -> Mapping[str, TensorName]:
    """Return the names of captured tensors' files as those of tensors; other files are left out.

    The operator type is what the node calls, ``aten.mm.default``, the operator the node, ``mm``. Tensors of a
    list count on: the slot is a tensor's number among all that the node reads or makes.

    >>> files = ["cat-aten.cat.default.INPUT.0.0.20240112093000000041.npy"]
    >>> files += ["cat-aten.cat.default.INPUT.0.1.20240112093000000042.npy"]
    >>> [(name.op_name, name.slot, name.timestamp) for name in tensor_names(files).values()]
    [('cat', 0, 1705051800000041), ('cat', 1, 1705051800000042)]
    """
    sides: defaultdict[tuple[str, IO], list[tuple[CapturedTensorName, str]]] = defaultdict(list)
    for file_name in file_names:
        captured = captured_names.parse(file_name)
        if captured is not None and captured.time is not None:
            sides[captured.node, captured.io].append((captured, file_name))
    return {
        file_name: _tensor_name(captured, slot)
        for side in sides.values()
        for slot, (captured, file_name) in enumerate(sorted(side, key=lambda each: each[0].place))
    }


def _tensor_name(captured: CapturedTensorName, slot: int) -> TensorName:
    return TensorName(captured.target, captured.node, _timestamp(captured.time or ""), captured.io, slot)


def _timestamp(time: str) -> int:
    try:
        moment = datetime.strptime(time, _TIME).replace(tzinfo=UTC)
    except ValueError:  # a name of digits that are no time
        return 0
    return int(moment.replace(microsecond=0).timestamp()) * _MICROSECONDS + moment.microsecond
