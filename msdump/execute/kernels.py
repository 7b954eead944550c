"""One operator as something that runs: a cached session, or ONNX's reference where there is none."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import STRING
from msdump.errors import UnsupportedOpError
from msdump.execute import bfloat16, values
from msdump.execute.fallback import ReferenceRun, kept
from msdump.execute.runtime import OrtValue, Runtime, public_value, short
from msdump.execute.shortage import shortage
from msdump.execute.weights import WeightStore
from msdump.graph import legacy, onenode
from msdump.graph.emulation import FLOAT16, FLOAT32, HALVES, STATUS, Rounding
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.graph.reference import ReferenceNode
from msdump.graph.weights import forget_pages
from msdump.graph.wire import SMALL_BYTES

_log = logging.getLogger("msdump.execute")

Run = Callable[[Mapping[str, OrtValue], list[str], None], Any]

_PACKED_SLOTS: Final[Mapping[str, frozenset[int]]] = {
    "MatMul": frozenset({0, 1}),
    "Gemm": frozenset({0, 1}),
    "LSTM": frozenset({1, 2}),
    "GRU": frozenset({1, 2}),
    "RNN": frozenset({1, 2}),
    "MatMulInteger": frozenset({1}),
}
"""Inputs of which the runtime's kernel keeps a packed copy when they are initializers."""

_BOUND_OPS: Final = frozenset(
    {*_PACKED_SLOTS, "ConvTranspose", "ConvInteger", "QLinearConv", "QLinearMatMul"}
)
"""Operators that are faster, or only possible, with their weights as initializers."""

_HALF_TYPES: Final = frozenset(onenode.type_text(dtype) for dtype in HALVES)

_MAY_BE_ABSENT: Final = frozenset({"If", "Loop", "Scan", "Optional", "Identity", "SequenceMap"})
"""Operators whose outputs may be optionals without a value."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled operator.

    Attributes:
        run: Called with (values by feed name, output names, None); returns the outputs in order.
        feeds: (feed name, value of the graph) for everything that must be fed.
        outputs: (output name, position among the node's outputs) for everything that comes back.
        has_status: Whether the kernel also gives the device's overflow status, as ``STATUS``.
    """

    run: Run
    feeds: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, int], ...]
    has_status: bool = False


RoundingsOf = Callable[[Node], Sequence[Rounding] | None]
"""Tells how each original operator of a node computes; None: as the model says."""


class KernelFactory:
    """Makes the kernels of one network."""

    def __init__(
        self,
        graph: Graph,
        weights: WeightStore,
        runtime: Runtime,
        roundings: RoundingsOf,
        distant: Container[str] = frozenset(),
    ) -> None:
        """Keep what every kernel of the network shares.

        Args:
            graph: The graph.
            weights: Its weights.
            runtime: What runs the kernels.
            roundings: The emulated device's arithmetic.
            distant: Weights of a body that the graph around it takes from outside as well.
        """
        self._graph = graph
        self._weights = weights
        self._runtime = runtime
        self._roundings = roundings
        self._distant = distant
        self._spares: dict[tuple[str, str], Kernel] = {}

    def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Compile an operator for the types of its present inputs.

        Args:
            node: The operator.
            fed: Its non-weight inputs, outer-scope values of subgraphs included.

        Raises:
            UnsupportedOpError: Neither the runtime nor ONNX's reference can run it.
            Exception: Memory or threads ran out.
        """
        if node.op_type == "OptionalHasElement" and not node.domain:
            return _has_element(node)
        if any(self._may_be_absent(name, value) for name, value in fed.items()):
            return self._absence_kernel(node)
        return self._present_kernel(node, fed)

    def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
        """Run an operator whose kernel refuses the values of this run; the next run tries the kernel again.

        Some kernels find out late that they lack a case: a Scan without static shapes,
        a Mod of floats. A case that ONNX's reference refuses as well is the network's fault.

        Args:
            node: The operator.
            fed: Its non-weight inputs, outer-scope values of subgraphs included.
            reason: Why the kernel failed.

        Raises:
            Exception: Nothing else can run the operator either.
        """
        if node.domain or shortage(reason):
            raise reason
        try:
            return _applied(self._spare(node, "pinned", lambda: self._pinned_kernel(node, fed)), fed)
        except Exception as error:
            if shortage(error):
                raise
            _log.debug("node %r with pinned shapes: %s", node.name, short(error))
        spare = self._spare(node, "reference", lambda: self._reference_kernel(node, fed, reason))
        return _applied(spare, fed)

    def _spare(self, node: Node, way: str, make: Callable[[], Kernel]) -> Kernel:
        key = (node.name, way)
        if key not in self._spares:
            self._spares[key] = make()
        return self._spares[key]

    def _may_be_absent(self, name: str, value: OrtValue | None) -> bool:
        return (
            value is None
            or self._graph.type_of(name).kind == "optional"
            or values.kind_of(value).startswith("optional")
        )

    def _absence_kernel(self, node: Node) -> Kernel:
        """Return a kernel for inputs that some runs lack: the runtime cannot be fed an absent one."""
        names = reads(node)

        def run(fed: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> Any:
            absent = ",".join(name for name, value in fed.items() if value is None)
            return _applied(self._spare(node, absent, lambda: self._present_kernel(node, fed)), fed)

        feeds = tuple((name, name) for name in names)
        return Kernel(run, feeds, _used_outputs(node), _tells(self._roundings(node)))

    def _present_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        try:
            return self._session_kernel(node, fed, self._roundings(node))
        except Exception as error:
            if shortage(error):
                raise
            first = error
        if not node.domain and "is not a registered function/op" not in str(first):
            for way in (self._widened_kernel, self._pinned_kernel):
                try:
                    return way(node, fed)
                except Exception as error:
                    if shortage(error):
                        raise
                    _log.debug("node %r, %s: %s", node.name, way.__name__, short(error))
        return self._reference_kernel(node, fed, first)

    def _widened_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Compute in float32 what the runtime has no float16 or bfloat16 kernel for."""
        types = [values.kind_of(value) for value in fed.values() if value is not None]
        if not any(kind in _HALF_TYPES for kind in types):
            raise NotImplementedError("no input is of a half type")
        return self._session_kernel(node, fed, [Rounding()] * len(node.members))

    def _session_kernel(
        self, node: Node, fed: Mapping[str, OrtValue | None], roundings: Sequence[Rounding] | None
    ) -> Kernel:
        bound = {name: self._bound_array(node, name, roundings) for name in self._bound(node)}
        absent = frozenset(name for name, value in fed.items() if value is None)
        present = self._all_fed(node, fed, bound).items()
        bindings = onenode.Bindings(
            types={name: values.kind_of(value) for name, value in present if name not in absent},
            shapes={},
            embedded={name: array for name, array in bound.items() if _is_small(array)},
            shared={name: array for name, array in bound.items() if not _is_small(array)},
            absent=absent,
            rounded={
                name: _saturates_inputs(node, name, roundings) and self._weights.overflows(name)
                for name in bound
                if bound[name] is not self._weights.array(name)
            },
        )
        outside = bfloat16.read_by(self._graph, node, roundings)
        inside = bfloat16.left(roundings) if outside and roundings is not None else roundings
        model = onenode.build(self._graph, node, bindings, self._runtime.limits, inside)
        session = self._runtime.session(model.data, self._shared_values(node, model, bound))
        for _, name in model.shared:
            if name in self._packed(node):
                forget_pages(bound[name])
        run = session.run_with_ort_values
        if any(values.is_map(value) for value in fed.values()):
            run = _taking_maps(session.run)
        rounded = {inner for inner, name in model.feeds if name in outside}
        if rounded:
            run = bfloat16.rounding_before(run, rounded)
        return Kernel(_checked(node, run), model.feeds, model.outputs, model.has_status)

    def _bound_array(self, node: Node, name: str, roundings: Sequence[Rounding] | None) -> np.ndarray:
        """Return a weight in the type that the operator reads, rounded once and for all."""
        array = self._weights.array(name)
        if roundings is None or node.domain:
            return array
        dtype = dtypes.from_numpy(array.dtype)
        rounding = roundings[_readers(node, name)[0]]
        reads = rounding.read_type(dtype)
        if reads in HALVES:
            return self._weights.rounded(name, reads, saturates=rounding.saturates)
        return array

    def _all_fed(
        self, node: Node, fed: Mapping[str, OrtValue | None], bound: Container[str]
    ) -> dict[str, OrtValue | None]:
        names = [name for name in reads(node) if name in self._weights]
        weights = (name for name in names if name not in bound and name not in fed)
        return {**fed, **{name: self._weights.value(name) for name in weights}}

    def _bound(self, node: Node) -> tuple[str, ...]:
        """Return the weights that the session gets as initializers; of a fused operator those of one part."""
        free = self._graph.overridable
        names = dict.fromkeys(name for name in node.inputs if name in self._weights and name not in free)
        readers = {name: _readers(node, name) for name in names}
        parts = list(self._computing(node))
        single = {name: parts[found[0]] for name, found in readers.items() if len(found) == 1}
        return tuple(
            name for name, part in single.items() if self._binds(*part) and not self._is_distant(name, *part)
        )

    def _is_distant(self, name: str, part: Node, rounding: Rounding | None) -> bool:
        """Tell whether the runtime would not pack a weight: it looks for weights one graph out, no further.

        A kernel without a packed copy may differ in the last bit from one that has it. Weights
        that are rounded become initializers all the same, once and not in every run.
        """
        is_rounded = rounding is not None and rounding.reads in HALVES
        return name in self._distant and part.op_type in _PACKED_SLOTS and not is_rounded

    def _computing(self, node: Node) -> Iterator[tuple[Node, Rounding | None]]:
        roundings = self._roundings(node)
        return zip(node.members, roundings or (None,) * len(node.members), strict=True)

    @staticmethod
    def _binds(part: Node, rounding: Rounding | None) -> bool:
        """Tell whether an operator's weights become initializers.

        Those of a convolution do where they are rounded, once and not in every run. Elsewhere they
        are fed, so that equal convolutions share one session and its threads.
        """
        if part.op_type in _BOUND_OPS or part.domain:
            return True
        return part.op_type == "Conv" and rounding is not None and rounding.reads is not FLOAT32

    @staticmethod
    def _packed(node: Node) -> frozenset[str]:
        return frozenset(
            name
            for part in node.members
            for slot, name in enumerate(part.inputs)
            if slot in _PACKED_SLOTS.get(part.op_type, ()) and not part.domain
        )

    def _shared_values(
        self, node: Node, model: onenode.NodeModel, bound: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        packed = self._packed(node)
        return {
            inner: self._shared_value(name, bound[name], is_packed=name in packed)
            for inner, name in model.shared
        }

    def _shared_value(self, name: str, array: np.ndarray, *, is_packed: bool) -> Any:
        if array is not self._weights.array(name):
            return public_value(array)
        return self._weights.packable(name) if is_packed else self._weights.public(name)

    def _pinned_kernel(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        pinned = _Pinned(self._graph, node, self._weights, self._runtime, self._roundings(node))
        names = tuple(fed)
        _, model = pinned.session(fed)
        feeds = tuple((name, name) for name in names)
        return Kernel(_checked(node, pinned), feeds, _used_outputs(node), model.has_status)

    def _reference_kernel(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Kernel:
        arrays = {name: self._weights.array(name) for name in reads(node) if name in self._weights}
        try:
            reference = ReferenceNode(self._graph, node, (*fed, *arrays))
        except Exception as error:
            if shortage(error):
                raise
            raise UnsupportedOpError(
                f"{self._graph.source}: node {node.name!r}: nothing can run {node.domain or 'ai.onnx'}"
                f".{node.op_type} (opset {self._graph.opsets.get(node.domain)}): {short(reason)}"
            ) from error
        warn = _warn_once(node, reason)
        roundings = self._roundings(node)
        compute = ReferenceRun(self._graph, node, reference, arrays, roundings)

        def run(fed: Mapping[str, OrtValue], names: list[str], options: None) -> list[OrtValue | None]:
            results = compute(fed, names, options)
            warn()
            return results

        feeds = tuple((name, name) for name in fed)
        return Kernel(run, feeds, _used_outputs(node), _tells(roundings))


class _Pinned:
    """Sessions of one node with its shapes and weights fixed, one for each set of shapes."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        weights: WeightStore,
        runtime: Runtime,
        roundings: Sequence[Rounding] | None,
    ) -> None:
        self._graph = graph
        self._node = node
        self._roundings = roundings
        self._runtime = runtime
        self._embedded = {name: weights.array(name) for name in reads(node) if name in weights}
        self._sessions: dict[Any, tuple[Run, onenode.NodeModel]] = {}

    def session(self, fed: Mapping[str, OrtValue]) -> tuple[Run, onenode.NodeModel]:
        """Return the session for the shapes of the values."""
        shapes = {name: tuple(value.shape()) for name, value in fed.items() if value.is_tensor()}
        key = tuple(shapes.items())
        if key not in self._sessions:
            types = {name: values.kind_of(value) for name, value in fed.items()}
            embedded = {name: array for name, array in self._embedded.items() if name not in fed}
            bindings = onenode.Bindings(types=types, shapes=shapes, embedded=embedded, shared={})
            model = onenode.build(self._graph, self._node, bindings, self._runtime.limits, self._roundings)
            is_old = self._graph.opsets.get("", legacy.OLDEST_OPSET) < legacy.OLDEST_OPSET
            data = legacy.modern(model.data) if is_old else model.data
            self._sessions[key] = (self._runtime.session(data).run_with_ort_values, model)
        return self._sessions[key]

    def __call__(self, fed: Mapping[str, OrtValue], _names: list[str], _options: None) -> Any:
        """Run the session for the shapes of the values."""
        run, model = self.session(fed)
        feeds = {inner: fed[name] for inner, name in model.feeds}
        return run(feeds, _result_names(model), None)


def _readers(node: Node, name: str) -> list[int]:
    """Return which parts of an operator read a value."""
    return [at for at, part in enumerate(node.members) if name in part.inputs]


def _is_small(array: np.ndarray) -> bool:
    return array.nbytes <= SMALL_BYTES or array.dtype == STRING.numpy or array.dtype.isbuiltin != 1


def _warn_once(node: Node, reason: Exception) -> Callable[[], None]:
    """Return what tells, the first time, that the reference took an operator over."""

    @functools.cache
    def warn() -> None:
        _log.warning(
            "%s: onnxruntime cannot run %s (%s); ONNX's reference implementation computes it, slowly",
            node.operator.full_name,
            node.op_type,
            short(reason),
        )

    return warn


def _used_outputs(node: Node) -> tuple[tuple[str, int], ...]:
    return tuple((name, slot) for slot, name in enumerate(node.outputs) if name)


def _applied(kernel: Kernel, fed: Mapping[str, OrtValue | None]) -> Any:
    """Run a kernel on values by their names in the graph."""
    feeds = {inner: fed[name] for inner, name in kernel.feeds}
    return kernel.run(feeds, _result_names(kernel), None)


def _result_names(kernel: Kernel | onenode.NodeModel) -> list[str]:
    return [name for name, _ in kernel.outputs] + [STATUS] * kernel.has_status


def _saturates_inputs(node: Node, name: str, roundings: Sequence[Rounding] | None) -> bool:
    """Tell whether an operator's inputs saturate, and the overflow status is to say so."""
    if roundings is None or not _tells(roundings):
        return False
    return roundings[_readers(node, name)[0]].reads is FLOAT16


def _tells(roundings: Sequence[Rounding] | None) -> bool:
    """Tell whether an operator's kernel is to give the device's overflow status."""
    return roundings is not None and any(rounding.reports for rounding in roundings)


def _taking_maps(run: Callable[[list[str], dict[str, Any], None], list[Any]]) -> Run:
    def taking(fed: Mapping[str, OrtValue], names: list[str], _options: None) -> list[OrtValue | None]:
        return [kept(item) for item in run(names, {name: values.public(v) for name, v in fed.items()}, None)]

    return taking


def _has_element(node: Node) -> Kernel:
    name = node.inputs[0] if node.inputs else ""

    def run(fed: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> list[OrtValue | None]:
        value = fed.get(name)
        return [kept(np.array(value is not None and value.has_value()))]

    return Kernel(run, ((name, name),) if name else (), ((node.outputs[0], 0),))


def _checked(node: Node, run: Run) -> Run:
    """Turn optionals without a value into None: the runtime crashes when one is fed to it."""
    if node.op_type not in _MAY_BE_ABSENT:
        return run

    def checked(fed: Mapping[str, OrtValue], names: list[str], options: None) -> list[OrtValue | None]:
        return [value if value.has_value() else None for value in run(fed, names, options)]

    return checked
