"""Single operators of a graph, each on the values that the caller gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import ExecutionError
from msdump.execute import values
from msdump.execute.kernels import Kernel, KernelFactory, RoundingsOf, as_the_model_says
from msdump.execute.runtime import OrtValue, Runtime, cpu_runtime, failure
from msdump.execute.weights import WeightCopies, WeightStore
from msdump.graph import WITH_MEMORY, Graph, Node, collective_call, reads, uses_float_status
from msdump.graph.kernel import has_foreign_domain
from msdump.observer import Array

MOST_PACKED: Final = 16 << 20
"""Most bytes of weights in kept kernels."""

_MOST_KEPT: Final = 1024
"""Most operators with kept kernels; a session without weights takes some tens of kilobytes."""


class OperatorRunner:
    """Runs single operators of one graph; the same inputs give the bits that a run of the network gives.

    Weights that are not given are the graph's, as initializers like in a run. Control flow runs as one
    operator of onnxruntime. Kernels of the first operators are cached by the types of given values, as
    operators that ran again in one run of a network do so in the next one.
    """

    def __init__(
        self,
        graph: Graph,
        roundings: RoundingsOf = as_the_model_says,
        copies: WeightCopies | None = None,
        *,
        on: Runtime | None = None,
        around: Graph | None = None,
        is_quiet: bool = False,
        is_bounded: bool = True,
    ) -> None:
        """Compile nothing yet: a kernel is made when its operator first runs.

        Args:
            graph: The graph, or a body in it.
            roundings: The emulated device's arithmetic, ``Ascend.roundings``; by default as the model says.
            copies: Values and copies that runners of the same model share of its weights.
            on: The runtime of the operators; None: the CPU's.
            around: The graph around a body.
            is_quiet: Do not warn where ONNX's reference computes an operator.
            is_bounded: Keep kernels up to a number and to bytes of weights; else all until ``forget``.
        """
        self._is_quiet, self._is_bounded = is_quiet, is_bounded
        self._kept: set[str] = set()
        self._packed = 0
        self.graph = graph
        self._copies = copies or WeightCopies()
        self._roundings = roundings
        self._runtime = on or cpu_runtime()
        self._distant = graph.outer & around.outer if around is not None else frozenset[str]()
        self._factories: dict[frozenset[str], tuple[KernelFactory, WeightStore]] = {}
        self._kernels: dict[str, dict[tuple[tuple[str, str], ...], Kernel]] = {}

    def needed(self, node: Node) -> tuple[str, ...]:
        """Return the names of all values that an operator reads, except weights: they must be given."""
        return tuple(name for name in reads(node) if name not in self.graph.weights)

    def run(self, node: Node, given: Mapping[str, Any]) -> tuple[Array, ...]:
        """Run an operator once.

        Args:
            node: An operator of the graph, fused ones included; see ``is_repeatable``.
            given: Inputs by the names of values: arrays, lists of arrays (sequences), None (absent
                optionals). A weight in ``given`` replaces the graph's and is rounded like it.

        Returns:
            An array for each output of the node, a list of arrays for a sequence; None for an unused one, and
            for a map.

        Raises:
            ExecutionError: The operator refuses these inputs, or one that it needs is not given.
            UnsupportedOpError: Nothing can run it.
        """
        read, weights = reads(node), self.graph.weights
        missing = next((name for name in read if name not in given and name not in weights), None)
        if missing is not None:
            raise ExecutionError(node.operator.full_name, f"its input {missing!r} is not given")
        try:
            fed = {name: self._value(name, given[name]) for name in read if name in given}
            return self._outputs(node, *self._applied(node, fed))
        except Exception as error:
            shown = [item if isinstance(item, np.ndarray) else None for item in map(given.get, node.inputs)]
            raise failure(node.operator.full_name, shown, error) from error
        finally:
            if self._is_bounded and not self._keeps(node):
                self.forget(node)

    def _keeps(self, node: Node) -> bool:
        if node.name not in self._kept:
            weights = self.graph.weights
            packed = sum(weights[name].nbytes for name in reads(node) if name in weights)
            if len(self._kept) >= _MOST_KEPT or self._packed + packed > MOST_PACKED:
                return False
            self._kept.add(node.name)
            self._packed += packed
        return True

    def forget(self, node: Node) -> None:
        """Drop the kernels of an operator, and with them their packed copies of weights."""
        self._kernels.pop(node.name, None)
        for factory, _ in self._factories.values():
            factory.forget(node)

    def _made(self, store: WeightStore) -> tuple[KernelFactory, WeightStore]:
        factory = KernelFactory(
            self.graph, store, self._runtime, self._roundings, self._distant, is_quiet=self._is_quiet
        )
        return factory, store

    def _value(self, name: str, item: Any) -> OrtValue | None:
        if isinstance(item, np.ndarray) and not item.flags.aligned:
            return values.owned(item)  # kernels need aligned tensors; views of dump files are not
        return values.from_python(item, self.graph.type_of(name).dtype or dtypes.DTYPES[0])

    def _applied(self, node: Node, fed: Mapping[str, OrtValue | None]) -> tuple[Kernel, Any]:
        replaced = frozenset(fed) & self.graph.weights.keys() - self.graph.changeable
        kernels = self._kernels.setdefault(node.name, {})
        if replaced and has_foreign_domain(
            node
        ):  # a custom kernel may need constants: given weights become initializers
            arrays = {name: values.to_array(fed[name]) for name in replaced}
            factory, weights = self._made(WeightStore({**self.graph.weights, **arrays}))
            kernels = {}
        else:
            if replaced not in self._factories:
                # a weight in the store would become an initializer, in place of the given value
                arrays = {name: array for name, array in self.graph.weights.items() if name not in replaced}
                self._factories[replaced] = self._made(WeightStore(arrays, self._copies))
            factory, weights = self._factories[replaced]
        # absent optionals and maps have no type text
        kinds = tuple((name, "" if value is None else values.kind_of(value)) for name, value in fed.items())
        if kinds not in kernels:
            kernels[kinds] = factory.make(node, fed)
        kernel = kernels[kinds]
        feeds = {inner: fed[name] if name in fed else weights.value(name) for inner, name in kernel.feeds}
        try:
            return kernel, kernel.run(feeds, kernel.results, None)
        except Exception as error:  # noqa: BLE001 - the runtime's classes vary
            return kernel, factory.rescue(node, fed, error)

    @staticmethod
    def _outputs(node: Node, kernel: Kernel, results: Any) -> tuple[Array, ...]:
        outputs: list[Any] = [None] * len(node.outputs)
        # not strict: a kernel may return the overflow status after the node's outputs
        for (_, position), value in zip(kernel.outputs, results):  # noqa: B905 - see execute.program
            item = values.to_python(value)
            outputs[position] = item if isinstance(item, (np.ndarray, list)) else None
        return tuple(outputs)


def is_repeatable(node: Node) -> bool:
    """Return whether an operator gives the same outputs whenever it gets the same inputs.

    False for random numbers, collectives, and operators that lower or read the device's overflow status.
    """
    return not (
        collective_call(node) is not None
        or uses_float_status(node.domain, node.op_type)
        or any(part.op_type in WITH_MEMORY for part in node.members)
    )
