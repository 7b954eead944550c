"""Passes over the nodes of a step graph that MindSpore's compiler has: equal gradients, sums of sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import onnx

from msdump.graph import names, rename_values


def names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of all values that nodes read, in their bodies as well."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from names_read(attribute.g.node)


_LATER: Final = frozenset({"Cast", "OnesLike"})
"""Operators that MindSpore adds behind this pass: casts of kernels, ones of BCEWithLogitsLoss."""


def with_merged_gradients(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes without gradient operators that have type, attributes and inputs of an earlier one.

    Such are the gradients of two biases that are added to one tensor. Their readers read the earlier results.
    """
    kept, first = [], dict[bytes, onnx.NodeProto]()
    merged: dict[str, str] = {}
    for node in nodes:
        rename_values(node, merged)
        scope = names.metadata_of(node)[names.ONNXSCRIPT + "name_scopes"]
        if node.op_type in _LATER or not scope.startswith("['Gradients'"):
            kept.append(node)
            continue
        alike = onnx.NodeProto()
        alike.CopyFrom(node)
        for other in ("name", "output", "metadata_props"):
            alike.ClearField(other)
        earlier = first.setdefault(alike.SerializeToString(), node)
        if earlier is node:
            kept.append(node)
        else:
            merged.update(zip(node.output, earlier.output, strict=True))
    return kept


def with_merged_sums(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return nodes without each sum that one other sum alone reads, which has its operands instead.

    MindSpore's pass over AddN looks at the first operand of a sum and at the last one.
    """
    reads = Counter([*names_read(nodes), *outputs])
    sums = {node.output[0]: node for node in nodes if node.op_type == "Sum" and not node.domain}
    merged = set()
    for node in sums.values():
        for place in (0, -1):
            name = node.input[place]
            if name in sums and reads[name] == 1:
                merged.add(name)
                operands = list(node.input)
                operands[operands.index(name) : operands.index(name) + 1] = sums[name].input
                node.input[:] = operands
    return [node for node in nodes if node.op_type != "Sum" or node.output[0] not in merged]
