"""A graph compiled to a list of operators, and the loop that runs them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from msdump import dtypes
from msdump.device.memory import lifetimes
from msdump.errors import ExecutionError, UnsupportedOpError
from msdump.execute import values
from msdump.execute.kernels import Kernel, KernelFactory, RoundingsOf, Run
from msdump.execute.runtime import OrtValue, runtime, short
from msdump.execute.weights import WeightStore
from msdump.graph.emulation import STATUS
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads

Array = np.ndarray | None
"""A tensor; None for an absent input, an unused output, or a value that is no tensor."""


class Observer(Protocol):
    """What wants to see operators run."""

    @property
    def watched(self) -> Sequence[bool]:
        """By node position: whether the observer is called for it."""

    wants_inputs: bool
    wants_outputs: bool

    def ran(
        self, position: int, inputs: Sequence[Array], outputs: Sequence[Array], *, saturated: bool
    ) -> None:
        """Take the tensors of an operator that has just run; views, valid while they are referenced.

        ``saturated`` is the emulated device's overflow status.
        """

    def failed(self, position: int, inputs: Sequence[Array]) -> None:
        """Take the inputs of an operator that has just failed."""


@dataclass(slots=True)
class _Operator:
    """One operator of the program; the runtime's part is made when it first runs.

    Attributes:
        node: The node.
        feeds: (feed name, slot) of everything that is fed.
        names: Output names of the kernel.
        results: Slot of each output.
        dead: Slots that nobody reads after this operator.
        run: The kernel's function, None before the first run.
    """

    node: Node
    dead: tuple[int, ...]
    feeds: tuple[tuple[str, int], ...] = ()
    names: list[str] = field(default_factory=list)
    results: tuple[int, ...] = ()
    run: Run | None = None


def _as_the_model_says(_node: Node) -> None:
    """Round nothing: CPU and GPU."""


class Program:
    """A network that runs operator by operator.

    Every value stands in a slot of a list; it is dropped after its last use, so
    memory peaks where the runtime's own does.

    The loops never ask the runtime's vector of outputs for one more item than it
    has (as a strict zip would): its end is a C++ exception of some 25 microseconds.
    """

    def __init__(self, graph: Graph, roundings: RoundingsOf = _as_the_model_says) -> None:
        """Lay out the slots; kernels are compiled while the first run reaches them.

        Args:
            graph: The graph.
            roundings: The emulated device's arithmetic.
        """
        self.graph = graph
        self._weights = WeightStore(graph.weights)
        self._factory = KernelFactory(graph, self._weights, runtime(), roundings)
        self._slots = {name: slot for slot, name in enumerate(_value_names(graph))}
        self._status = len(self._slots)
        self._initial: list[OrtValue | None] = [None] * (self._status + 1)
        self._operators = [
            _Operator(node, tuple(self._slots[name] for name in dead))
            for node, dead in zip(graph.nodes, lifetimes(graph).dead, strict=True)
        ]

    def run(self, feeds: Mapping[str, OrtValue | None], observer: Observer | None = None) -> list[Any]:
        """Run the network.

        Args:
            feeds: A value for every graph input (and any overridden initializer).
            observer: Called after each operator that it watches, before the next one starts.

        Returns:
            The graph outputs: arrays, lists of arrays, or None.

        Raises:
            ExecutionError: An operator failed; it is named.
            UnsupportedOpError: An operator that nothing can run.
        """
        current = self._initial.copy()
        for name, value in feeds.items():
            current[self._slots[name]] = value
        if observer is None:
            self._loop(current)
        else:
            self._observed_loop(current, observer)
        return [self._output(value.name, current, feeds) for value in self.graph.outputs]

    def _loop(self, current: list[OrtValue | None]) -> None:
        for operator in self._operators:
            run = operator.run or self._compile(operator, current)
            try:
                outputs = run({name: current[slot] for name, slot in operator.feeds}, operator.names, None)
            except Exception as error:  # noqa: BLE001 - the runtime's classes vary
                outputs = self._rescued(operator.node, current, error)
            for slot, value in zip(operator.results, outputs):  # noqa: B905 - see the class
                current[slot] = value
            for slot in operator.dead:
                current[slot] = None

    def _observed_loop(self, current: list[OrtValue | None], observer: Observer) -> None:
        for position, operator in enumerate(self._operators):
            current[self._status] = None
            run = operator.run or self._compile(operator, current)
            try:
                outputs = run({name: current[slot] for name, slot in operator.feeds}, operator.names, None)
            except Exception as error:  # noqa: BLE001 - the runtime's classes vary
                outputs = self._rescued(operator.node, current, error, observer, position)
            for slot, value in zip(operator.results, outputs):  # noqa: B905 - see the class
                current[slot] = value
            if observer.watched[position]:
                self._show(operator.node, position, current, observer)
            for slot in operator.dead:
                current[slot] = None

    def _show(self, node: Node, position: int, current: list[OrtValue | None], observer: Observer) -> None:
        status = current[self._status]
        observer.ran(
            position,
            [self._tensor(name, current) for name in node.inputs] if observer.wants_inputs else (),
            [self._tensor(name, current) for name in node.outputs] if observer.wants_outputs else (),
            saturated=status is not None and bool(status.numpy()),
        )

    def _compile(self, operator: _Operator, current: list[OrtValue | None]) -> Run:
        node = operator.node
        kernel = self._factory.make(node, self._fed(node, current))
        self._place_weights(kernel, current)
        operator.feeds = tuple((name, self._slots[value]) for name, value in kernel.feeds)
        operator.names = [name for name, _ in kernel.outputs] + [STATUS] * kernel.has_status
        results = tuple(self._slots[node.outputs[position]] for _, position in kernel.outputs)
        operator.results = results + (self._status,) * kernel.has_status
        operator.run = kernel.run
        return kernel.run

    def _fed(self, node: Node, current: list[OrtValue | None]) -> dict[str, OrtValue | None]:
        return {
            name: current[self._slots[name]]
            for name in reads(node)
            if name not in self._weights or current[self._slots[name]] is not None
        }

    def _rescued(
        self,
        node: Node,
        current: list[OrtValue | None],
        error: Exception,
        observer: Observer | None = None,
        position: int = 0,
    ) -> Any:
        try:
            return self._factory.rescue(node, self._fed(node, current), error)
        except Exception:  # noqa: BLE001 - the first reason is the one to tell
            if observer is not None:
                observer.failed(position, [self._tensor(name, current) for name in node.inputs])
            raise self._failure(node, current, error) from error

    def _place_weights(self, kernel: Kernel, current: list[OrtValue | None]) -> None:
        for _, name in kernel.feeds:
            slot = self._slots[name]
            if name in self._weights and self._initial[slot] is None:
                self._initial[slot] = self._weights.value(name)
                current[slot] = current[slot] if current[slot] is not None else self._initial[slot]

    def _tensor(self, name: str, current: list[OrtValue | None]) -> Array:
        if not name:
            return None
        value = current[self._slots[name]]
        if value is None:
            return self._weights.array(name) if name in self._weights else None
        if not isinstance(value, values.Native):
            return value if isinstance(value, np.ndarray) else None
        return values.to_array(value) if value.is_tensor() else None

    def _output(self, name: str, current: list[OrtValue | None], feeds: Mapping[str, Any]) -> Any:
        result = values.to_python(current[self._slots[name]])
        if name in feeds and isinstance(result, np.ndarray):
            return result.copy()  # it lies in the caller's memory, which the value does not keep alive
        if name in self._weights and name not in feeds:
            return self._weights.array(name)
        return result

    def _failure(self, node: Node, current: list[OrtValue | None], error: Exception) -> Exception:
        if isinstance(error, UnsupportedOpError):
            return error
        shown = ", ".join(_describe(self._tensor(name, current)) for name in node.inputs)
        return ExecutionError(node.operator.full_name, f"{short(error)} (inputs: {shown})")


def _value_names(graph: Graph) -> Iterator[str]:
    names = dict.fromkeys(value.name for value in graph.inputs)
    names |= dict.fromkeys(graph.weights)
    for node in graph.nodes:
        names |= dict.fromkeys(filter(None, node.outputs))
    yield from names


def _describe(array: Array) -> str:
    if array is None:
        return "none"
    return f"{dtypes.from_numpy(array.dtype).name}{list(array.shape)}"
