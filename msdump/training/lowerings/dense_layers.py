"""Dense layers of a network, which exporters cut into a transposition, a product and a sum.

MindSpore's ``nn.Dense`` and PyTorch's ``Linear`` keep their weight as (out, in). In ONNX such a layer over
more than two dimensions is Transpose of the weight, MatMul and Add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from msdump.graph.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A product with a weight, with a bias or the weight transposed.

    Attributes:
        product: The MatMul.
        last: The operator that writes the result: the sum, or the product.
        inputs: Names of input, weight and, where there is one, bias.
        parts: The operators in front of the last one.
        is_transposed: Whether the weight is (out, in).
    """

    product: Node
    last: Node
    inputs: tuple[str, ...]
    parts: tuple[Node, ...]
    is_transposed: bool


def dense_layers(graph: Graph) -> Mapping[str, DenseLayer]:
    """Return the dense layers of a network, by the name of the operator that writes the result."""
    users = Counter(name for node in graph.nodes for name in node.inputs)
    users.update(value.name for value in graph.outputs)
    producers = {name: node for node in graph.nodes for name in node.outputs if users[name] == 1}
    layers = [layer for node in graph.nodes if (layer := _layer(graph, node, producers)) is not None]
    covered = {part.name for layer in layers for part in layer.parts}
    return {layer.last.name: layer for layer in layers if layer.last.name not in covered}


def _layer(graph: Graph, last: Node, producers: Mapping[str, Node]) -> DenseLayer | None:
    """Return the layer that an operator ends."""
    product, bias = _product_and_bias(graph, last, producers)
    if product is None or not _shape(graph, last.outputs[0]) or len(_shape(graph, product.inputs[0])) < 2:  # noqa: PLR2004 - vectors
        return None
    x, weight = product.inputs
    parts: tuple[Node, ...] = () if product is last else (product,)
    turn = producers.get(weight)
    is_transposed = turn is not None and _is_transposed_weight(graph, turn)
    if turn is not None and is_transposed:
        weight, parts = turn.inputs[0], (turn, *parts)
    if len(_shape(graph, weight)) != 2 or not parts:  # noqa: PLR2004 - matrices
        return None
    return DenseLayer(product, last, (x, weight, *bias), parts, is_transposed)


def _product_and_bias(
    graph: Graph, last: Node, producers: Mapping[str, Node]
) -> tuple[Node | None, tuple[str, ...]]:
    if last.op_type == "MatMul" and not last.domain:
        return last, ()
    if last.operator.op_type == "BiasAdd" and last.op_type == "Add":
        for product, bias in zip(map(producers.get, last.inputs), reversed(last.inputs), strict=True):
            fits = _shape(graph, bias) == _shape(graph, last.outputs[0])[-1:]
            if product is not None and product.op_type == "MatMul" and fits:
                return product, (bias,)
    return None, ()


def _is_transposed_weight(graph: Graph, node: Node) -> bool:
    turns = list(node.attributes.get("perm", (1, 0))) == [1, 0]  # type: ignore[arg-type]
    return node.op_type == "Transpose" and node.inputs[0] in graph.weights and turns


def _shape(graph: Graph, name: str) -> tuple[int | str | None, ...]:
    return graph.type_of(name).shape or ()
