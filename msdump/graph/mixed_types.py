"""Operators with inputs of different types where ONNX wants one type, as half-done conversions leave them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import defs

from msdump.graph.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class MixedTypes:
    """An operator with different types in inputs that ONNX's schema binds to one type variable.

    Attributes:
        node: The operator.
        variable: Name of the type variable, such as T.
        inputs: Element types of these inputs by name.
    """

    node: Node
    variable: str
    inputs: Mapping[str, str]

    def __str__(self) -> str:
        """Return operator, inputs and types in a sentence."""
        types = ", ".join(f"{name!r} {dtype}" for name, dtype in self.inputs.items())
        return (
            f"{self.node.operator.full_name} ({self.node.op_type}) mixes types: {types}; ONNX has one type"
            f" {self.variable} for these inputs, and onnxruntime refuses the model: insert a Cast"
        )


def mixed_types(graph: Graph) -> Iterator[MixedTypes]:
    """Yield the operators with mixed input types, also in branches and loops."""
    for inner in graph.walk():
        for node in inner.nodes:
            dtypes = [inner.type_of(name).dtype for name in node.inputs if name]
            if all(dtype is dtypes[0] for dtype in dtypes):  # the quick way past most operators
                continue
            variables = _variables(node.op_type, graph.opsets.get(node.domain, 1), node.domain)
            variables += variables[-1:] * (len(node.inputs) - len(variables))
            bound: dict[str, dict[str, str]] = {}
            for name, variable in zip(node.inputs, variables, strict=False):
                dtype = inner.type_of(name).dtype
                if dtype is not None and variable:
                    bound.setdefault(variable, {})[name] = dtype.name
            for variable, inputs in bound.items():
                if len({*inputs.values()}) > 1:
                    yield MixedTypes(node, variable, inputs)


@functools.lru_cache(maxsize=1024)
def _variables(op_type: str, version: int, domain: str) -> tuple[str, ...]:
    """Return the type variable of each formal input, "" for none; the last one may stand for many inputs."""
    if not defs.has(op_type, version, domain):
        return ()
    schema = defs.get_schema(op_type, version, domain)
    names = {each.type_param_str for each in schema.type_constraints}
    return tuple(
        each.type_str if each.type_str in names and each.is_homogeneous else "" for each in schema.inputs
    )
