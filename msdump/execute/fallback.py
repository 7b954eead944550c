"""Fallbacks for operators that onnxruntime cannot run, or cannot run correctly, in an ordinary session.

A session with fixed shapes and weights, for kernels that need them at its creation; the emulated device's
casts in numpy around a kernel; ONNX's reference evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump.device import overflows, rounded
from msdump.dtypes import BFLOAT16, DType
from msdump.execute import values
from msdump.execute.runtime import OrtValue, Run, Runtime
from msdump.execute.weights import Bound
from msdump.graph import Graph, Node, subgraphs
from msdump.graph.kernel import FLOAT16, FLOAT32, HALVES, Rounding, has_foreign_domain, keeps_types, onenode

_CAST_SINCE: Final = 13  # the first opset with a Cast to bfloat16


class Pinned:
    """Sessions of one node with fixed input shapes and constant weights, one for each set of shapes.

    A Scan must know the shapes of its body's outputs, some function operators the shapes of their inputs, and
    a dilated convolution the sizes that decide its padding (``auto_pad`` SAME). The runtime infers a shape
    that depends on a weight only if the weight is a constant of the model.
    """

    def __init__(
        self, graph: Graph, node: Node, weights: Bound, runtime: Runtime, roundings: Sequence[Rounding] | None
    ) -> None:
        self._graph = graph
        self._node = node
        self._roundings = roundings
        self._runtime = runtime
        self._weights = weights
        self._sessions: dict[Any, tuple[Run, onenode.NodeModel]] = {}

    def session(self, fed: Mapping[str, OrtValue]) -> tuple[Run, onenode.NodeModel]:
        """Return the session for the shapes of the values."""
        shapes = {name: tuple(value.shape()) for name, value in fed.items() if value.is_tensor()}
        key = tuple(shapes.items())
        if key not in self._sessions:
            types = {name: values.kind_of(value) for name, value in fed.items()}
            arrays, rounded = self._weights.arrays, self._weights.rounded
            embedded = {name: arrays[name] for name in arrays if name not in fed or name in rounded}
            bindings = onenode.Bindings(types, shapes, embedded, {}, rounded=rounded)
            model = onenode.build(self._graph, self._node, bindings, self._runtime.limits, self._roundings)
            # the runtime lacks kernels of the oldest opsets; the version converter needs fixed shapes
            is_old = self._graph.opsets.get("", onenode.OLDEST_OPSET) < onenode.OLDEST_OPSET
            data = onenode.modern_model(model.data) if is_old else model.data
            if any("SAME" in str(part.attributes.get("auto_pad")) for part in self._node.members):
                data = onenode.with_stated_pads(data)
            session = self._runtime.session(data, has_memory=model.has_memory)
            self._sessions[key] = (session.run_with_ort_values, model)
        return self._sessions[key]

    def __call__(self, fed: Mapping[str, OrtValue], _names: list[str], _options: None) -> Any:
        """Run the session for the shapes of the values."""
        run, model = self.session(fed)
        feeds = {inner: fed[name] for inner, name in model.feeds}
        return run(feeds, onenode.result_names(model.outputs, has_status=model.has_status), None)


_HALVES = frozenset(dtype.numpy for dtype in HALVES)

Compute = Callable[[Mapping[str, Any]], list[Any]]
"""Takes arrays by the names of values, and returns the outputs that are used."""


class ReferenceRun:
    """Runs one node, by default in ONNX's reference; called as the runtime's kernels are."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        reference: Compute,
        weights: Mapping[str, np.ndarray],
        roundings: Sequence[Rounding] | None,
    ) -> None:
        self._reference = reference
        self._weights = weights
        self._declared = tuple(graph.type_of(name).dtype for name in node.outputs if name)
        self._emulation = None if roundings is None else _Emulation(node, self._declared, roundings)

    def __call__(
        self, fed: Mapping[str, OrtValue], _names: list[str], _options: None
    ) -> list[OrtValue | None]:
        """Return the outputs and, if the device's arithmetic reports overflows, the overflow status last."""
        inputs = {**self._weights, **{name: values.to_python(value) for name, value in fed.items()}}
        emulation = self._emulation
        results = self._compute(inputs) if emulation is None else emulation(self._compute, inputs)
        return [kept(item) for item in results]

    def _compute(self, inputs: Mapping[str, Any]) -> list[Any]:
        results = self._reference(inputs)
        return [_undoubled(item, declared) for item, declared in zip(results, self._declared, strict=True)]


def is_rounded_outside(graph: Graph, node: Node, roundings: Sequence[Rounding] | None) -> bool:
    """Return whether the inputs of an operator are rounded in numpy, not by Cast nodes in its model.

    True for operators outside of ONNX's own domains: some kernels of the runtime give zeros if a Cast makes
    their input. True for bfloat16 inputs in opsets without a Cast to bfloat16, unless parts of a fused
    operator read a value in different types, or a part reads another part's result as bfloat16, which is
    inside the kernel. False for operators with subgraphs.
    """
    if roundings is None or any(subgraphs(node.proto)):
        return False
    if has_foreign_domain(node):
        return any(each.reads is not FLOAT32 for each in roundings)
    if graph.opsets.get("", _CAST_SINCE) >= _CAST_SINCE:
        return False
    parts = list(zip(node.members, roundings, strict=True))
    narrow = {name for part, rounding in parts for name in part.inputs if rounding.reads is BFLOAT16} - {""}
    wide = {name for part, rounding in parts for name in part.inputs if rounding.reads is not BFLOAT16}
    inner = {name for part in node.parts for name in part.outputs}
    return bool(narrow) and narrow.isdisjoint(wide | inner)


class _Emulation:
    """The device's casts around one operator, in numpy; other kernels have Cast nodes in their models."""

    def __init__(self, node: Node, declared: Sequence[DType | None], roundings: Sequence[Rounding]) -> None:
        self._moves = keeps_types(node)
        self._declared = declared
        self._first, self._writes = roundings[0], roundings[-1]
        # in reverse: if several parts read a value, the rounding of the first part wins
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
        rounding = self._reads.get(name, self._first)  # the default: for values that only subgraphs read
        return _narrowed(item, rounding.reads, rounding, flags)

    def _written(self, results: Sequence[Any], had_half: np.dtype | None, flags: list[bool]) -> Iterator[Any]:
        for item, declared in zip(results, self._declared, strict=True):
            if self._moves:
                yield item
            elif had_half is None or (declared is not None and declared not in HALVES):
                yield _narrowed(item, self._writes.writes, self._writes, flags)
            else:
                dtype = declared or next(each for each in HALVES if each.numpy == had_half)
                yield _in_type(np.asarray(item), dtype, self._writes, flags) if _is_float32(item) else item


def _undoubled(item: Any, declared: DType | None) -> Any:
    """Return a result in float32 if the model declares float32: numpy turns some results into float64."""
    if declared is FLOAT32 and isinstance(item, np.ndarray | np.generic) and item.dtype == np.float64:
        return item.astype(FLOAT32.numpy)
    return item


def _is_half(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype in _HALVES


def _is_float32(item: Any) -> bool:
    return isinstance(item, np.ndarray | np.generic) and item.dtype == FLOAT32.numpy


def _narrowed(item: Any, dtype: DType, rounding: Rounding, flags: list[bool]) -> Any:
    """Round a float32 array to a smaller type's values, still as float32; return other values unchanged."""
    if dtype is FLOAT32 or not _is_float32(item):
        return item
    return _in_type(np.asarray(item), dtype, rounding, flags).astype(FLOAT32.numpy)


def _in_type(array: np.ndarray, dtype: DType, rounding: Rounding, flags: list[bool]) -> np.ndarray:
    saturates = rounding.saturates and dtype is FLOAT16  # bfloat16 has float32's range: nothing to clamp
    flags.append(saturates and overflows(array))
    return rounded(array, dtype, saturates=saturates)


def kept(item: Any) -> OrtValue | None:
    """Return a runtime value that owns its memory, copied from an array that may be freed afterwards."""
    if isinstance(item, (list, tuple, dict)) or item is None:
        return values.from_python(item)
    return values.owned(np.asarray(item))
