"""Computes a node by ONNX's reference implementation, where the runtime has no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.callees import callees


class ReferenceNode:
    """A node that ONNX's reference evaluator computes on numpy arrays."""

    def __init__(self, graph: Graph, node: Node, values: tuple[str, ...]) -> None:
        """Build the evaluator.

        Args:
            graph: The node's graph, for opsets and functions.
            node: The node.
            values: Names of the values that will be given, outer-scope names included.

        Raises:
            Exception: The reference has no implementation of the operator.
        """
        # its schemas take 20 ms to read, which most networks need not pay
        from onnx.reference import ReferenceEvaluator

        outputs = [name for name in node.outputs if name]
        protos = [part.proto for part in node.members]
        message = helper.make_graph(
            protos,
            "node",
            [helper.make_empty_tensor_value_info(name) for name in values],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
        model = helper.make_model(
            message,
            opset_imports=opsets,
            ir_version=graph.ir_version,
            functions=callees(protos, graph.proto.functions),
        )
        self._evaluator = ReferenceEvaluator(model)
        self.outputs = tuple(outputs)

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the used outputs: arrays, lists of arrays, or None."""
        with np.errstate(all="ignore"):  # onnxruntime does not warn of a division by zero either
            return list(self._evaluator.run(list(self.outputs), dict(values)))
