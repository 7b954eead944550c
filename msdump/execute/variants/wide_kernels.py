"""A whole network in float64: kernels that compute every operator as float64 defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from msdump.execute import values
from msdump.execute.kernels import Kernel, KernelFactory
from msdump.execute.operators.float64.evaluator import Float64Runner
from msdump.execute.runtime import OrtValue
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads

_TENSORS: Final = frozenset({"tensor", ""})
"""Kinds of values that are tensors, as far as that is known."""


class Float64Kernels(KernelFactory):
    """Makes kernels for ``Program`` that hold every floating point value in float64.

    Inputs and weights are widened as they are; sequences and optionals keep their types.
    """

    joins = False

    def __init__(self, graph: Graph, *arguments: Any, **options: Any) -> None:
        """Set the graph; see ``KernelFactory``."""
        super().__init__(graph, *arguments, **options)
        self._wide = Float64Runner(graph)

    def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Return the kernel of an operator.

        Args:
            node: The operator.
            fed: What it reads but weights that no run changes.
        """
        types = [self._graph.type_of(name).kind for name in node.outputs]
        arrays = [values.to_python(value) for value in fed.values()]
        if not (all(isinstance(array, np.ndarray) for array in arrays) and _TENSORS.issuperset(types)):
            return super().make(node, fed)
        outputs = tuple((name, slot) for slot, name in enumerate(node.outputs) if name)

        def run(given: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> Any:
            arrays = {name: values.to_python(value) for name, value in given.items()}
            results = self._wide.run(node, arrays)
            written = (results[slot] for _, slot in outputs)
            return [None if array is None else values.owned(array) for array in written]

        return Kernel(run, tuple((name, name) for name in reads(node) if name in fed), outputs)

    def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
        """Fail: there is no other way in float64.

        Raises:
            Exception: The reason.
        """
        del node, fed
        raise reason
