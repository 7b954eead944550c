"""An operator computed by ONNX's reference implementation, with the emulated device's arithmetic in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from msdump.device.precision import overflows, rounded
from msdump.dtypes import DType
from msdump.execute import values
from msdump.execute.runtime import OrtValue
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import FLOAT16, FLOAT32, HALVES, MOVES, Rounding
from msdump.graph.kernel.reference import ReferenceNode

_HALVES = frozenset(dtype.numpy for dtype in HALVES)


class ReferenceRun:
    """Runs one node in ONNX's reference; called as the runtime's kernels are."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        reference: ReferenceNode,
        weights: Mapping[str, np.ndarray],
        roundings: Sequence[Rounding] | None,
    ) -> None:
        """Set the node, its weights and its arithmetic.

        Args:
            graph: The node's graph.
            node: The node.
            reference: What computes it.
            weights: The weights that it reads.
            roundings: How each original operator of the node computes; None: as the model says.
        """
        self._reference = reference
        self._weights = weights
        self._declared = tuple(graph.type_of(name).dtype for name in node.outputs if name)
        self._emulation = None if roundings is None else _Emulation(node, self._declared, roundings)

    def __call__(
        self, fed: Mapping[str, OrtValue], _names: list[str], _options: None
    ) -> list[OrtValue | None]:
        """Return the outputs, and behind them the overflow status where the rounding reports it."""
        inputs = {**self._weights, **{name: values.to_python(value) for name, value in fed.items()}}
        results = (self._emulation or _plain)(self._compute, inputs)
        return [kept(item) for item in results]

    def _compute(self, inputs: Mapping[str, Any]) -> list[Any]:
        results = self._reference.run(inputs)
        return [_undoubled(item, declared) for item, declared in zip(results, self._declared, strict=True)]


Compute = Callable[[Mapping[str, Any]], list[Any]]


def _plain(compute: Compute, inputs: Mapping[str, Any]) -> list[Any]:
    return compute(inputs)


class _Emulation:
    """The device's casts around one operator in numpy; the runtime's kernels have them in their models."""

    def __init__(self, node: Node, declared: Sequence[DType | None], roundings: Sequence[Rounding]) -> None:
        self._moves = node.op_type in MOVES
        self._declared = declared
        self._first, self._writes = roundings[0], roundings[-1]
        # in reverse: of several parts that read a value the first one's rounding is kept
        parts = reversed(list(zip(node.members, roundings, strict=True)))
        self._reads = {name: rounding for part, rounding in parts for name in part.inputs}

    def __call__(self, compute: Compute, inputs: Mapping[str, Any]) -> list[Any]:
        flags: list[bool] = []
        had_half = next((item.dtype for item in inputs.values() if _is_half(item)), None)
        results = compute({name: self._read(name, item, flags) for name, item in inputs.items()})
        written = list(self._written(results, None if self._moves else had_half, flags))
        return [*written, np.float32(any(flags))] if self._first.reports else written

    def _read(self, name: str, item: Any, flags: list[bool]) -> Any:
        if _is_half(item) and not self._moves:
            return item.astype(FLOAT32.numpy)
        rounding = self._reads.get(name, self._first)  # outer values of subgraphs are no inputs
        return _narrowed(item, rounding.reads, rounding, flags)

    def _written(self, results: Sequence[Any], had_half: np.dtype | None, flags: list[bool]) -> Iterator[Any]:
        for item, declared in zip(results, self._declared, strict=True):
            if self._moves:
                yield item
            elif had_half is None or (declared is not None and declared not in HALVES):
                yield _narrowed(item, self._writes.writes, self._writes, flags)
            else:
                yield _halved(item, declared, had_half, self._writes, flags)


def _undoubled(item: Any, declared: DType | None) -> Any:
    """Return a result in float32 where the model declares it so: numpy's scalars make some float64."""
    if declared is FLOAT32 and isinstance(item, np.ndarray | np.generic) and item.dtype == np.float64:
        return item.astype(FLOAT32.numpy)
    return item


def _is_half(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype in _HALVES


def _is_float32(item: Any) -> bool:
    return isinstance(item, np.ndarray | np.generic) and item.dtype == FLOAT32.numpy


def _narrowed(item: Any, dtype: DType, rounding: Rounding, flags: list[bool]) -> Any:
    """Return a float32 array with the values of a smaller type; anything else as it is."""
    if dtype is FLOAT32 or not _is_float32(item):
        return item
    return _in_type(np.asarray(item), dtype, rounding, flags).astype(FLOAT32.numpy)


def _halved(
    item: Any, declared: DType | None, had_half: np.dtype, rounding: Rounding, flags: list[bool]
) -> Any:
    """Return a float32 result of float16 or bfloat16 inputs in the type that the model says."""
    dtype = declared or next(each for each in HALVES if each.numpy == had_half)
    return _in_type(np.asarray(item), dtype, rounding, flags) if _is_float32(item) else item


def _in_type(array: np.ndarray, dtype: DType, rounding: Rounding, flags: list[bool]) -> np.ndarray:
    saturates = rounding.saturates and dtype is FLOAT16  # bfloat16 has float32's range: nothing to clamp
    flags.append(saturates and overflows(array))
    return rounded(array, dtype, saturates=saturates)


def kept(item: Any) -> OrtValue | None:
    """Return a runtime value that owns its memory, copied from an array that may be freed afterwards."""
    if isinstance(item, (list, tuple, dict)) or item is None:
        return values.from_python(item)
    return values.owned(np.asarray(item))
