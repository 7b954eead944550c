"""The .pb file of a graph."""

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump import dtypes
from msdump.graph import ValueType
from msdump.graph.files import ir_proto
from tests.world import completed

F32 = "float32"

# x (Float32, 2) -> ReLU -> y as graph 3, byte by byte: tag, length, content
RELU = bytes.fromhex(
    "0801"  # ir_version 1
    "22 c8 01"  # graph
    "0a 3b"  # node
    "  0a 05  0a 01 78  10 00"  # input x by a data edge
    "  12 01 31"  # name 1
    "  1a 04 52 65 4c 55"  # op_type ReLU
    "  22 07 44 65 66 61 75 6c 74"  # scope Default
    "  32 0c  08 0e  12 08  08 0b  12 04  0a 02  08 02"  # output_type tensor, Float32, (2)
    "  42 10 44 65 66 61 75 6c 74 2f 52 65 4c 55 2d 6f 70 30"  # full_name Default/ReLU-op0
    "  4a 00"  # no source_address
    "0a 4b"  # node
    "  0a 05  0a 01 31  10 00"  # input 1
    "  12 01 32"  # name 2
    "  1a 09 4d 61 6b 65 54 75 70 6c 65"  # op_type MakeTuple
    "  22 07 44 65 66 61 75 6c 74"  # scope Default
    "  32 12  08 1f  1a 0e  0a 0c  08 0e  12 08  08 0b  12 04  0a 02  08 02"  # tuple of a tensor
    "  42 15 44 65 66 61 75 6c 74 2f 4d 61 6b 65 54 75 70 6c 65 2d 6f 70 30"  # Default/MakeTuple-op0
    "  4a 00"
    "12 0d 6b 65 72 6e 65 6c 5f 67 72 61 70 68 33"  # name kernel_graph3
    "1a 11"  # parameter x
    "  0a 01 78"
    "  12 0c  08 0e  12 08  08 0b  12 04  0a 02  08 02"
    "22 17"  # output 2
    "  0a 01 32"
    "  12 12  08 1f  1a 0e  0a 0c  08 0e  12 08  08 0b  12 04  0a 02  08 02"
    "32 01 33"  # root_name 3
)


def decoded_model(data):
    """Return the ModelProto of a .pb file."""
    return ir_proto._classes()["ModelProto"].FromString(data)


@pytest.fixture
def relu_graph(make_node, make_graph):
    """Return the smallest graph."""
    return make_graph([make_node("Relu", primitive="ReLU")], {"x": (F32, 2), "y": (F32, 2)})


def test_bytes(relu_graph):
    """A graph is written byte for byte as the field table says."""
    assert ir_proto.encode(relu_graph, 3).hex(" ") == RELU.hex(" ")


def test_nodes_refer_to_numbers_parameters_and_constants(make_node, make_graph):
    """Inputs name statements by number, parameters by name and constants by cst and number."""
    first = make_node("Add", ("x", "w"), ("a",))
    second = make_node("Mul", ("a", "", "k"), ("y",))
    graph = make_graph(
        [first, second], weights={"w": np.zeros(1, np.float32)}, constants={"k": np.zeros((), np.float32)}
    )

    decoded = decoded_model(ir_proto.encode(graph, 0)).graph

    assert [node.name for node in decoded.node] == ["1", "2", "3"]
    assert [[edge.name for edge in node.input] for node in decoded.node] == [["x", "w"], ["1", "cst1"], ["2"]]
    assert {edge.type for node in decoded.node for edge in node.input} == {0}
    assert [parameter.name for parameter in decoded.parameters] == ["w", "x"]
    assert [output.name for output in decoded.outputs] == ["3"]


def test_constants_are_named_like_their_files(make_node, make_graph):
    """Constants are cst1, cst2, ... with the full names Default_data-0, ...; tensors without contents."""
    split = make_node("Split", ("x",), ("y", "z"))
    graph = make_graph([split], outputs=("z",), constants={"k": np.ones((2, 3), np.int64)})

    constants = decoded_model(ir_proto.encode(graph, 0)).graph.const_vals

    assert [(named.key, named.full_name) for named in constants] == [
        ("cst1", "Default_data-0"),
        ("cst2", "Default_data-1"),
    ]
    tensor, index = (named.value for named in constants)
    assert (tensor.dtype, list(tensor.tensor_val.dims), tensor.tensor_val.data_type) == (14, [2, 3], 5)
    assert not tensor.tensor_val.HasField("tensor_content")
    assert (index.dtype, index.int_val) == (5, 1)


# an attribute and its ValueProto: dtype, field, value
ATTRIBUTES = {
    "bool": (True, (1, "bool_val", True)),
    "int": (-3, (5, "int_val", -3)),
    "float": (0.5, (11, "float_val", 0.5)),
    "text": ("valid", (13, "str_val", "valid")),
    "bytes": (b"valid", (13, "str_val", "valid")),
    "subgraph": (SimpleNamespace(name="body", node=[]), (13, "str_val", "@body")),
}


@pytest.mark.parametrize(("value", "expected"), ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_scalar_attributes(make_node, make_graph, value, expected):
    """An attribute is stored in the field of its type."""
    graph = make_graph([make_node("Op", attributes={"a": value}, domain="d")])

    (attribute,) = decoded_model(ir_proto.encode(graph, 0)).graph.node[0].attribute

    dtype, field, content = expected
    assert attribute.name == "a"
    assert dtype == attribute.value.dtype
    assert content == getattr(attribute.value, field)


def test_tuple_and_tensor_attributes(make_node, make_graph):
    """A tuple is a list of values, a tensor its shape and type."""
    attributes = {"pads": (1, 2), "t": np.zeros((2, 1), np.float16)}
    graph = make_graph([make_node("Op", attributes=attributes, domain="d")])

    pads, tensor = (a.value for a in decoded_model(ir_proto.encode(graph, 0)).graph.node[0].attribute)

    assert (pads.dtype, [(v.dtype, v.int_val) for v in pads.values]) == (31, [(5, 1), (5, 2)])
    assert (tensor.dtype, tensor.tensor_val.data_type, list(tensor.tensor_val.dims)) == (14, 10, [2, 1])


# a type and its message: data_type, elem_type, dimensions
TYPES = {
    "unknown dimensions": (("int32", "n", None, 4), (14, 4, [-1, -1, 4])),
    "unknown rank": (("int32", ...), (14, 4, [])),
    "unknown element type": (ValueType(None, (2,)), (14, 0, [2])),
    "sequence": (ValueType(kind="sequence"), (31, 0, [])),
    "nothing": (None, (0, 0, [])),
}


@pytest.mark.parametrize(("known", "expected"), TYPES.values(), ids=TYPES)
def test_types(make_node, make_graph, known, expected):
    """The type of an output has its known parts."""
    graph = make_graph([make_node("Op")], {"y": known})

    output = decoded_model(ir_proto.encode(graph, 0)).graph.node[0].output_type

    shape = [dim.size for dim in output.tensor_type.shape.dim]
    assert expected == (output.data_type, output.tensor_type.elem_type, shape)


@st.composite
def chains(draw):
    """Draw the names, element types and shapes of a chain of operators."""
    sizes = st.one_of(st.integers(0, 2**40), st.none())
    names = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), min_size=1, unique=True)
    dtype = st.sampled_from([row.name for row in dtypes.DTYPES])
    return [(name, draw(dtype), draw(st.lists(sizes, max_size=4))) for name in draw(names)]


@given(chains(), st.integers(0, 1000))
def test_names_types_and_shapes_survive(make_node, make_graph, chain, graph_id):
    """decode(encode(graph)) has the names, element types and shapes of the graph."""
    nodes = [
        make_node("Op", (before,), (after,), primitive="Op", scope=f"Default/{before}")
        for (before, *_), (after, *_) in pairwise(chain)
    ]
    types = {name: (dtype, *shape) for name, dtype, shape in chain}
    graph = make_graph(nodes, types, inputs=(chain[0][0],), outputs=(chain[-1][0],))

    decoded = decoded_model(ir_proto.encode(graph, graph_id)).graph

    described = [*decoded.parameters, *decoded.node[:-1]]
    seen = [getattr(d, "output_type", None) or d.type for d in described]
    assert (decoded.name, decoded.root_name) == (f"kernel_graph{graph_id}", str(graph_id))
    assert [parameter.name for parameter in decoded.parameters] == [chain[0][0]]
    assert [node.operator.full_name for node in nodes] == [node.full_name for node in decoded.node[:-1]]
    assert [dtypes.from_name(dtype).ir for _, dtype, _ in chain] == [t.tensor_type.elem_type for t in seen]
    assert [[-1 if size is None else size for size in shape] for *_, shape in chain] == [
        [dim.size for dim in t.tensor_type.shape.dim] for t in seen
    ]


def test_protobuf_is_imported_when_needed():
    """Importing the module builds nothing: no descriptor library is loaded for it."""
    code = "import sys, msdump.graph.files.ir_proto; print('google.protobuf.descriptor_pool' in sys.modules)"

    done = completed(sys.executable, "-c", code, check=True)

    assert done.stdout == "False\n"
