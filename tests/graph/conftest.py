"""Graphs made by hand."""

import numpy as np
import pytest

from msdump import dtypes
from msdump.graph import Graph, Node, Value, ValueType
from msdump.record import OperatorRef


def _type(spec):
    """Turn ``("float32", 1, "n")`` into a tensor type; None, a ValueType and an array also do."""
    if spec is None or isinstance(spec, ValueType):
        return spec or ValueType(kind="")
    if isinstance(spec, np.ndarray):
        return ValueType(dtypes.from_numpy(spec.dtype), spec.shape)
    name, *shape = spec
    return ValueType(dtypes.from_name(name), None if shape == [...] else tuple(shape))


@pytest.fixture(scope="session")
def make_node():
    """Return a maker of nodes: op_type, inputs, outputs, attributes; the rest by keyword."""

    def make(
        op_type, inputs=("x",), outputs=("y",), attributes=None, *, primitive="", scope="Default", **fields
    ):
        primitive = primitive or op_type
        return Node(
            name=fields.get("name", op_type.lower()),
            op_type=op_type,
            domain=fields.get("domain", ""),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=attributes or {},
            operator=OperatorRef(primitive, f"{scope}/{primitive}-op{fields.get('number', 0)}"),
            source=fields.get("source", ()),
            proto=None,
        )

    return make


@pytest.fixture(scope="session")
def make_graph():
    """Return a maker of graphs: nodes, type specs by value name; weights, constants and opsets."""

    def make(nodes, types=None, *, inputs=("x",), outputs=("y",), weights=None, constants=None, opset=20):
        constants = constants or {}
        weights = (weights or {}) | constants
        declared = {name: _type(spec) for name, spec in {**(types or {}), **weights}.items()}
        unknown = ValueType(kind="")
        return Graph(
            source="<ModelProto>",
            name="hand",
            nodes=tuple(nodes),
            inputs=tuple(Value(name, declared.get(name, unknown)) for name in inputs),
            outputs=tuple(Value(name, declared.get(name, unknown)) for name in outputs),
            weights=weights,
            constants=tuple(constants),
            overridable=frozenset(),
            types=declared,
            opsets={"": opset},
            ir_version=10,
            proto=None,
        )

    return make
