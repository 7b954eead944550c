"""One node as a model of its own."""

import onnx
import pytest
from onnx import parser

from msdump import dtypes
from msdump.errors import GraphError, UnsupportedOpError
from msdump.graph import loader
from msdump.graph.kernel import onenode

LIMITS = onenode.RuntimeLimits(ir_version=10, opset=20)
FLOAT = "tensor(float)"


def graph_of(text, *, opset=20, ir_version=10):
    """Return a loaded graph of nodes in ONNX's text form."""
    return loader.load(parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>' + text))


def built(graph, position=0, **bindings):
    """Return the model of one node of a graph of float tensors."""
    node = graph.nodes[position]
    given = {"types": dict.fromkeys(node.inputs, FLOAT), "shapes": {}, "embedded": {}, "shared": {}}
    return onenode.build(graph, node, onenode.Bindings(**given | bindings), LIMITS)


VERSIONS = {
    "old": (2, 7, (4, 7)),
    "between": (8, 18, (8, 18)),
    "at the limit": (10, 20, (10, 20)),
    "newer, operator unchanged": (11, 22, (10, 20)),
}


@pytest.mark.parametrize(("ir_version", "opset", "expected"), VERSIONS.values(), ids=VERSIONS)
def test_versions_are_what_the_runtime_reads(ir_version, opset, expected):
    """IR version and opset are lowered to the runtime's; IR 4 is the least."""
    initial = "g (float[3] x) => (float[3] y) { y = Relu(x) }"
    graph = graph_of(initial, opset=opset, ir_version=ir_version)

    message = onnx.ModelProto.FromString(built(graph).data)

    assert expected == (message.ir_version, message.opset_import[0].version)


def test_operators_that_are_too_new_are_refused():
    """An operator too new for the runtime is refused with its name and the limit."""
    new = graph_of("g (float[3] x) => (float[3] y) { y = Swish(x) }", opset=24)
    changed = graph_of('g (float[3] x) => (int4[3] y) { y = Cast<to=22, round_mode="up">(x) }', opset=24)

    with pytest.raises(UnsupportedOpError, match=r"Swish of opset 24 is newer than .* \(opset 20\)"):
        built(new)
    with pytest.raises(UnsupportedOpError, match="Cast of opset 24 is newer than"):
        built(changed)


@pytest.mark.parametrize("row", dtypes.DTYPES, ids=lambda row: row.name)
def test_type_texts_round_trip(row):
    """The text of every element type is read back as that type, alone and nested."""
    text = onenode.type_text(row)

    assert row.onnx == onenode.type_proto(text).tensor_type.elem_type
    nested = onenode.type_proto(f"optional(seq({text}))").optional_type.elem_type.sequence_type
    assert row.onnx == nested.elem_type.tensor_type.elem_type


def test_map_types_are_read():
    """The type of a map has a key and a value type."""
    proto = onenode.type_proto("map(string,tensor(float))").map_type

    assert (8, 1) == (proto.key_type, proto.value_type.tensor_type.elem_type)


@pytest.mark.parametrize("text", ["", "float", "sparse(float)", "tensor(float", "tensor(float))x"])
def test_unknown_type_texts_are_refused(text):
    """A text that is no type is an error that shows it."""
    with pytest.raises(GraphError, match="unknown value type"):
        onenode.type_proto(text)


def test_an_absent_optional_is_made_inside():
    """An optional without a value is no input: the model makes it, of the declared type."""
    graph = graph_of("g (optional(seq(float[3])) x) => (bool y) { y = OptionalHasElement(x) }")

    model = built(graph, absent=frozenset({"x"}))

    message = onnx.ModelProto.FromString(model.data).graph
    assert () == model.feeds
    assert ["Optional", "OptionalHasElement"] == [node.op_type for node in message.node]
    assert message.node[0].attribute[0].tp.HasField("sequence_type")


def test_old_broadcasts_are_aligned():
    """The axis of an old Add becomes an Unsqueeze of the second operand; opset and attributes go."""
    graph = graph_of(
        "g (float[2,3,4] x, float[3] b) => (float[2,3,4] y) { y = Add<broadcast=1, axis=1>(x, b) }", opset=6
    )

    data = onenode.modern_model(built(graph, shapes={"x": (2, 3, 4), "b": (3,)}).data)

    message = onnx.ModelProto.FromString(data)
    assert ["Unsqueeze", "Add"] == [node.op_type for node in message.graph.node]
    assert [1] == list(message.graph.node[0].attribute[0].ints)
    assert 0 == len(message.graph.node[1].attribute)
    assert onenode.OLDEST_OPSET == message.opset_import[0].version
