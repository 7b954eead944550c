"""One operator as a function: a session of onnxruntime, or ONNX's reference if onnxruntime has no kernel.

Tried in this order: the operator unchanged; in float32, for operators without a kernel for half types; with
fixed shapes and constant weights (some kernels need them at their creation); the reference. All but the first
are slower. The emulated device rounds in numpy around a kernel that has no casts inside.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from msdump.device import FloatStatus, overflows, rounded
from msdump.dtypes import BFLOAT16, DType
from msdump.errors import UnsupportedOpError, is_final
from msdump.execute import values
from msdump.execute.runtime import OrtValue, Run, Runtime, short
from msdump.execute.weights import Bound, Initializers, WeightStore, tells_overflow
from msdump.graph import CONTROL_FLOW, MINDSPORE_DOMAIN, Graph, Node, forget_pages, reads, subgraphs
from msdump.graph.kernel import (
    FLOAT16,
    FLOAT32,
    HALVES,
    ReferenceNode,
    Rounding,
    has_foreign_domain,
    keeps_types,
    onenode,
)

_log = logging.getLogger("msdump.execute")

_HALF_TYPES: Final = frozenset(onenode.type_text(dtype) for dtype in HALVES)

_VARIED_DOMAINS: Final = ("", MINDSPORE_DOMAIN)
"""Domains whose operators may run in other types or with fixed shapes."""

_MAY_BE_ABSENT: Final = CONTROL_FLOW | {"Optional", "Identity"}
"""Operators whose outputs may be optionals without a value."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled operator."""

    run: Run  # called with (values by feed name, output names, None); returns the outputs in order
    feeds: tuple[tuple[str, str], ...]  # (feed name, value of the graph) for everything that must be fed
    # (output name, position among the node's outputs) for everything that comes back
    outputs: tuple[tuple[str, int], ...]
    has_status: bool = False  # whether the kernel also gives the device's overflow status, as ``STATUS``

    @property
    def results(self) -> list[str]:
        """Names of everything that comes back."""
        return onenode.result_names(self.outputs, has_status=self.has_status)


RoundingsOf = Callable[[Node], Sequence[Rounding] | None]
"""Returns how each original operator of a node computes; None: as the model says."""


def as_the_model_says(_node: Node) -> None:
    """Return no roundings: CPU and GPU."""


class KernelFactory:
    """Compiles the operators of one network to kernels."""

    # whether kernels of the class may be replaced by a session of several operators
    joins: ClassVar[bool] = True

    def __init__(
        self,
        graph: Graph,
        weights: WeightStore,
        runtime: Runtime,
        roundings: RoundingsOf,
        distant: Container[str] = frozenset(),
        *,
        float_status: FloatStatus | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Set the parts that all kernels of the network share.

        Args:
            graph: The graph.
            weights: Its weights.
            runtime: The runtime of the kernels.
            roundings: The emulated device's arithmetic.
            distant: Weights of a body that belong to a graph at least two levels further out.
            float_status: The device's overflow register, raised by saturating kernels; None: never read.
            is_quiet: Do not warn where ONNX's reference computes an operator.
        """
        self._graph = graph
        self._weights = weights
        self._runtime = runtime
        self._roundings = roundings
        self._float_status = float_status
        self._is_quiet = is_quiet
        self._initializers = Initializers(weights, graph.changeable, distant)
        self._spares: dict[tuple[str, str], Kernel] = {}  # by node name and kind of fallback

    def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Compile an operator for the types of its inputs: ``fed`` holds all but weights, outer values too.

        Raises:
            UnsupportedOpError: Neither the runtime nor ONNX's reference can run it.
            Exception: Memory or threads ran out.
        """
        if node.op_type == "OptionalHasElement" and not node.domain:
            return _has_element(node)
        if any(
            value is None
            or self._graph.type_of(name).kind == "optional"
            or values.kind_of(value).startswith("optional")
            for name, value in fed.items()
        ):
            return self._optional_kernel(node)
        return self._noted(self._present_kernel(node, fed))

    def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
        """Run an operator once after its kernel refused the values of this run; raise if nothing can run it.

        Some kernels find out late that they lack a case: a Scan without static shapes, a Mod of floats, a
        ScatterElements of float16 in one of MindSpore's operators. A case that ONNX's reference refuses as
        well is the network's fault.
        """
        if is_final(reason) or node.domain not in _VARIED_DOMAINS:
            raise reason
        widened = ("widened", lambda: self._widened_kernel(node, fed))
        pinned = ("pinned", lambda: self._pinned_kernel(node, fed))
        for way, make in (widened, pinned) if node.domain else (pinned,):
            try:
                return _applied(self._spare(node, way, make), fed)
            except Exception as error:
                if is_final(error):
                    raise
                _log.debug("node %r, %s: %s", node.name, way, short(error))
        if node.domain:  # the reference implements only operators of ONNX's own domain
            raise reason
        spare = self._spare(node, "reference", lambda: self._reference_kernel(node, fed, reason))
        return _applied(spare, fed)

    def forget(self, node: Node) -> None:
        """Drop the kernels that the factory keeps of an operator."""
        for key in [key for key in self._spares if key[0] == node.name]:
            del self._spares[key]

    def _spare(self, node: Node, way: str, make: Callable[[], Kernel]) -> Kernel:
        key = (node.name, way)
        if key not in self._spares:
            self._spares[key] = self._noted(make())
        return self._spares[key]

    def _noted(self, kernel: Kernel) -> Kernel:
        """Make a kernel with an overflow output raise the factory's overflow register, if it has one."""
        status = self._float_status
        if status is None or not kernel.has_status:
            return kernel
        return replace(kernel, run=_noting(kernel.run, status))

    def _optional_kernel(self, node: Node) -> Kernel:
        """Return a kernel for inputs that may be absent (None) in a run.

        The runtime crashes when an absent optional is fed, so each set of absent inputs has a session of a
        model without these inputs.
        """
        names = reads(node)

        def run(fed: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> Any:
            absent = ",".join(name for name, value in fed.items() if value is None)
            return _applied(self._spare(node, absent, lambda: self._present_kernel(node, fed)), fed)

        feeds = tuple((name, name) for name in names)
        return Kernel(run, feeds, _used_outputs(node), tells_overflow(self._roundings(node)))

    def _present_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        try:
            return self._plain_kernel(node, fed)
        except Exception as error:
            if is_final(error):
                raise
            first = error
        # an operator unknown to the runtime has no kernel for other types or shapes either
        if node.domain in _VARIED_DOMAINS and "is not a registered function/op" not in str(first):
            for way in (self._widened_kernel, self._pinned_kernel):
                try:
                    return way(node, fed)
                except Exception as error:
                    if is_final(error):
                        raise
                    _log.debug("node %r, %s: %s", node.name, way.__name__, short(error))
        return self._reference_kernel(node, fed, first)

    def _widened_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Return a kernel that computes in float32, for operators without a float16 or bfloat16 kernel."""
        types = [values.kind_of(value) for value in fed.values() if value is not None]
        if not any(kind in _HALF_TYPES for kind in types):
            raise NotImplementedError("no input is of a half type")
        # a Rounding without arguments reads and writes float32
        return self._session_kernel(node, fed, [Rounding()] * len(node.members))

    def _plain_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Return the kernel of an operator in the types of its inputs."""
        roundings = self._roundings(node)
        if not is_rounded_outside(self._graph, node, roundings):
            return self._session_kernel(node, fed, roundings)
        bare = self._session_kernel(node, fed, roundings, has_casts=False)

        def compute(inputs: Mapping[str, Any]) -> list[Any]:
            given = {name: values.from_python(item) for name, item in inputs.items()}
            return [values.to_python(value) for value in _applied(bare, given)]

        # the session holds rounded weights; original ones beyond float16's range raise the overflow status
        beyond = self._initializers.of(node, roundings).beyond
        raising = {name: self._weights.array(name) for name in beyond}
        run = ReferenceRun(self._graph, node, compute, raising, roundings)
        feeds = tuple((name, name) for _, name in bare.feeds)
        return Kernel(run, feeds, bare.outputs, tells_overflow(roundings))

    def _session_kernel(
        self,
        node: Node,
        fed: Mapping[str, OrtValue | None],
        roundings: Sequence[Rounding] | None,
        *,
        has_casts: bool = True,
    ) -> Kernel:
        initializers = self._initializers.of(node, roundings)
        absent = frozenset(name for name, value in fed.items() if value is None)
        names = [name for name in reads(node) if name in self._weights]
        # an overridden weight is in ``fed`` already
        weights = (name for name in names if name not in initializers.arrays and name not in fed)
        present = {**fed, **{name: self._weights.value(name) for name in weights}}.items()
        bindings = onenode.Bindings(
            types={name: values.kind_of(value) for name, value in present if name not in absent},
            shapes={},
            embedded=initializers.embedded,
            shared=initializers.shared,
            absent=absent,
            rounded=initializers.rounded,
        )
        model = onenode.build(
            self._graph, node, bindings, self._runtime.limits, roundings if has_casts else None
        )
        shared = [self._initializers.shared(name, initializers.arrays[name]) for name in model.shared]
        session = self._runtime.session(model.data, shared, has_memory=model.has_memory)
        for array in shared:
            forget_pages(array)  # mostly packed
        run = session.run_with_ort_values
        if any(values.is_map(value) for value in fed.values()):
            run = _taking_maps(session.run)  # only the slower ``run`` takes maps, which are no OrtValues
        return Kernel(_checked(node, run), model.feeds, model.outputs, model.has_status)

    def _pinned_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        roundings = self._roundings(node)
        bound = self._initializers.of(node, roundings)
        weights = {name: self._weights.array(name) for name in reads(node) if name in self._weights}
        bound = replace(bound, arrays={**weights, **bound.arrays})
        pinned = Pinned(self._graph, node, bound, self._runtime, roundings)
        _, model = pinned.session(fed)
        feeds = tuple((name, name) for name in fed)
        return Kernel(_checked(node, pinned), feeds, _used_outputs(node), model.has_status)

    def _reference_kernel(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Kernel:
        names = (name for name in reads(node) if name in self._weights and name not in fed)
        arrays = {name: self._weights.array(name) for name in names}
        try:
            reference = ReferenceNode(self._graph, node, (*fed, *arrays))
        except Exception as error:
            if is_final(error):
                raise
            raise UnsupportedOpError(
                f"{self._graph.source}: node {node.name!r}: neither onnxruntime nor ONNX's "
                f"reference can run {node.domain or 'ai.onnx'}"
                f".{node.op_type} (opset {self._graph.opsets.get(node.domain)}): {short(reason)}"
            ) from error
        lacking = f"onnxruntime cannot run {node.op_type} ({short(reason)})"

        @functools.cache  # at the first call only
        def warn() -> None:
            if not self._is_quiet:
                slow = f"{lacking}; ONNX's reference implementation computes it, slowly"
                _log.warning("%s: %s", node.operator.full_name, slow)

        roundings = self._roundings(node)
        compute = ReferenceRun(self._graph, node, reference.run, arrays, roundings)

        def run(fed: Mapping[str, OrtValue], names: list[str], options: None) -> list[OrtValue | None]:
            results = compute(fed, names, options)
            # not before: if the reference fails, too, the network is at fault, not the runtime
            warn()
            return results

        feeds = tuple((name, name) for name in fed)
        return Kernel(run, feeds, _used_outputs(node), tells_overflow(roundings))


def _used_outputs(node: Node) -> tuple[tuple[str, int], ...]:
    return tuple((name, slot) for slot, name in enumerate(node.outputs) if name)


def _applied(kernel: Kernel, fed: Mapping[str, OrtValue | None]) -> Any:
    # kernels' models use canonical names, so that equal operators share a session
    feeds = {inner: fed[name] for inner, name in kernel.feeds}
    return kernel.run(feeds, kernel.results, None)


def _noting(run: Run, status: FloatStatus) -> Run:
    """Wrap a kernel's function: raise the overflow register if the output ``STATUS`` of a run is true."""

    def noting(fed: Mapping[str, OrtValue], names: list[str], options: None) -> Any:
        outputs = run(fed, names, options)
        saturated = outputs[len(names) - 1]
        if saturated.numpy():
            status.note_saturation()
        return outputs

    return noting


def _taking_maps(run: Callable[[list[str], dict[str, Any], None], list[Any]]) -> Run:
    """Adapt a session's ``run``, which takes Python maps, to the signature of ``Run``."""

    def taking(fed: Mapping[str, OrtValue], names: list[str], _options: None) -> list[OrtValue | None]:
        return [
            kept(item)
            for item in run(names, {name: values.public(value) for name, value in fed.items()}, None)
        ]

    return taking


def _has_element(node: Node) -> Kernel:
    """Return a kernel of OptionalHasElement in Python: the runtime's crashes on an absent optional."""
    name = node.inputs[0] if node.inputs else ""

    def run(fed: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> list[OrtValue | None]:
        value = fed.get(name)
        return [kept(np.array(value is not None and value.has_value()))]

    return Kernel(run, ((name, name),) if name else (), ((node.outputs[0], 0),))


def _checked(node: Node, run: Run) -> Run:
    """Wrap a kernel's function: absent optionals among the outputs become None (feeding them crashes)."""
    if node.op_type not in _MAY_BE_ABSENT:
        return run

    def checked(fed: Mapping[str, OrtValue], names: list[str], options: None) -> list[OrtValue | None]:
        return [value if value.has_value() else None for value in run(fed, names, options)]

    return checked


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
