"""Models that cannot be read, and graphs of models that can."""

import contextlib

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

from msdump.errors import GraphError, UnsupportedIRVersionError
from msdump.graph import loader
from msdump.session import Network
from tests.world import GRAPHS

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
RELU = HEAD + "g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }"


def model_of(text, **initializers):
    """Return a parsed model with initializers."""
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in initializers.items())
    return model


FILES = {
    "text": (b"not a model at all, just text", "no protobuf message|no ONNX model|truncated"),
    "empty": (b"", "the file is empty; give an ONNX model"),
    "npy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}", "no protobuf message|no ONNX model|truncated"),
    "zip": (b"PK\x03\x04" + bytes(40), "no protobuf message|no ONNX model|truncated"),
    "other message": (onnx.TensorProto(name="t", dims=[1]).SerializeToString(), "not an ONNX model"),
    "no graph": (
        onnx.ModelProto(ir_version=10).SerializeToString(),
        "not an ONNX model: the message has no graph",
    ),
}


@pytest.mark.parametrize(("data", "message"), FILES.values(), ids=FILES)
def test_files_that_are_no_model(tmp_path, data, message):
    """A file that is no model is refused in one message that names it."""
    path = tmp_path / "m.onnx"
    path.write_bytes(data)

    with pytest.raises(GraphError, match=message) as caught:
        loader.load(path)

    assert str(caught.value).startswith(f"{path}: ")


def test_paths_that_are_no_file(tmp_path):
    """A missing file and a directory are refused by name."""
    with pytest.raises(GraphError, match=f"{tmp_path}/gone.onnx: the model cannot be read: No such file"):
        loader.load(tmp_path / "gone.onnx")
    with pytest.raises(GraphError, match=f"{tmp_path}: the model cannot be read: Is a directory"):
        loader.load(tmp_path)


@pytest.mark.parametrize("name", ["lenet", "if", "sequences", "int4"])
def test_models_truncated_anywhere(name):
    """A model that ends early is a GraphError wherever it ends."""
    data = (GRAPHS / f"{name}.onnx").read_bytes()
    stops = range(len(data)) if len(data) < 3000 else [*range(0, len(data), 97), len(data) - 1]

    for stop in stops:
        with pytest.raises(GraphError):
            loader.load(data[:stop])


@given(
    st.sampled_from(["if", "functions", "opset7", "sequences", "strings"]), st.randoms(use_true_random=False)
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_damaged_models_load_or_are_refused(name, generator):
    """A model with a few wrong bytes is a model still, or a GraphError; nothing else is raised."""
    data = bytearray((GRAPHS / f"{name}.onnx").read_bytes())
    for _ in range(generator.randrange(1, 5)):
        data[generator.randrange(len(data))] = generator.randrange(256)

    with contextlib.suppress(GraphError):
        graph = loader.load(bytes(data))
        assert "<ModelProto>" == graph.source


NEWER = {
    "IR version": (
        lambda m: setattr(m, "ir_version", 999),
        r"IR version 999 is newer than the installed onnx package supports \(\d+\); upgrade onnx",
    ),
    "opset": (
        lambda m: setattr(m.opset_import[0], "version", 999),
        r"opset 999 is newer than the installed onnx package supports \(\d+\); upgrade onnx",
    ),
}


@pytest.mark.parametrize(("change", "message"), NEWER.values(), ids=NEWER)
def test_models_from_the_future(change, message):
    """A model newer than the installed packages is refused with its version and the remedy."""
    model = model_of(RELU)
    change(model)

    with pytest.raises(UnsupportedIRVersionError, match=f"<ModelProto>: {message}"):
        loader.load(model)


def _no_type(model):
    model.graph.node[0].attribute.add(name="alpha")


def _wrong_type(model):
    model.graph.node[0].op_type = "LeakyRelu"
    model.graph.node[0].attribute.append(helper.make_attribute("alpha", "much"))


def _no_value(model):
    model.graph.node[0].attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)


def _not_utf8(data):
    return data.replace(b"Relu", b"Re\xff\xfe")


FAULTS = {
    "undefined value": (
        lambda m: m.graph.node[0].input.__setitem__(0, "ghost"),
        r"node 'n' \(Relu\) reads value 'ghost', which no node, input or initializer provides",
    ),
    "double producer": (
        lambda m: m.graph.node.add(op_type="Neg", name="m", input=["x"], output=["y"]),
        "node 'm' writes value 'y', which node 'n' already provides",
    ),
    "cycle": (
        lambda m: m.graph.node[0].input.__setitem__(0, "y"),
        "nodes wait for each other: 'n' reads from 'n'",
    ),
    "output of nobody": (
        lambda m: m.graph.output.add(name="z"),
        "graph output 'z': no node, input or initializer has this output",
    ),
    "nameless output": (lambda m: m.graph.output.add(), "graph output '': no node"),
    "input twice": (lambda m: m.graph.input.add(name="x"), "graph input 'x': is listed twice"),
    "nameless input": (lambda m: m.graph.input.add(), "graph input '': no name"),
    "constant twice": (
        lambda m: m.graph.node.extend(
            helper.make_node("Constant", [], ["c"], name=name, value_int=1) for name in "pq"
        ),
        "node 'q' writes value 'c', which an initializer or a constant already has",
    ),
    "attribute without type": (_no_type, r"node 'n' \(Relu\): attribute 'alpha' has no type"),
    "attribute of wrong type": (
        _wrong_type,
        r"node 'n' \(LeakyRelu\): attribute 'alpha' is of type STRING; must be of type FLOAT",
    ),
    "attribute without value": (_no_value, r"node 'n' \(Relu\): attribute 'then_branch' has no value"),
    "faulty initializer": (
        lambda m: m.graph.initializer.add(name="w", data_type=1, dims=[3], raw_data=b"12345"),
        "initializer 'w'",
    ),
    "unknown element type": (
        lambda m: m.graph.initializer.add(name="w", data_type=99, dims=[3], raw_data=b"123"),
        "initializer 'w': unknown ONNX element type 99",
    ),
}


@pytest.mark.parametrize(("change", "message"), FAULTS.values(), ids=FAULTS)
def test_graphs_that_cannot_run(tmp_path, change, message):
    """A graph that cannot run is refused when it is loaded, with the file and the node."""
    model = model_of(RELU)
    model.graph.node[0].name = "n"
    change(model)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())

    with pytest.raises(GraphError, match=message) as caught:
        loader.load(path)

    assert str(caught.value).startswith(f"{path}: ")


def test_names_that_are_no_text():
    """Names that are no UTF-8 are refused."""
    data = model_of(RELU).SerializeToString()

    with pytest.raises(GraphError, match=r"the text .* is not UTF-8"):
        loader.load(_not_utf8(data))


def test_initializers_that_are_inputs_may_be_fed():
    """An initializer that is listed as an input need not be fed, but may; not so in old files."""
    text = "g (float[3] x, float[3] b) => (float[3] y) { y = Add(x, b) }"
    initializer = {"b": np.ones(3, np.float32)}

    new = loader.load(model_of(HEAD + text, **initializer))
    old = loader.load(model_of(HEAD.replace("10", "3") + text, **initializer))

    assert (["x"], {"b"}) == ([value.name for value in new.inputs], new.overridable)
    assert (["x"], set()) == ([value.name for value in old.inputs], old.overridable)


def test_nodes_get_names_of_their_own():
    """Nameless nodes and nodes of one name get names of their own; a given name is kept where it can be."""
    model = model_of(
        HEAD + "g (float[3] x) => (float[3] y) { a = Relu(x) b = Relu(a) c = Neg(b) y = Neg(c) }"
    )
    for node, name in zip(model.graph.node, ("same", "same", "", "Neg_2"), strict=True):
        node.name = name

    names = [node.name for node in loader.load(model).nodes]

    assert ["same", "same_1", "Neg_2_2", "Neg_2"] == names


def test_types_are_inferred():
    """Values get the type and shape that follow from the inputs', named dimensions included."""
    graph = loader.load(model_of(HEAD + "g (float[N,3] x) => (y) { a = Transpose(x) y = Shape(a) }"))

    assert ("float32", (3, "N")) == (graph.type_of("a").dtype.name, graph.type_of("a").shape)
    assert ("int64", (2,)) == (graph.type_of("y").dtype.name, graph.type_of("y").shape)
    assert "" == graph.type_of("nobody").kind


OPEN = """<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
g (float[M,3] x, bool c) => (float[M,6] y) <float[M,3] a> {
  a = Relu(x) b = f.Twice(a)
  d = If (c) <then_branch = t () => (float[M,3] e) { e = Neg(b) },
    else_branch = s () => (float[M,3] h) { h = Abs(b) }>
  y = Concat <axis = 1> (d, d) }
<domain: "f", opset_import: ["" : 20]> Twice (v) => (w) <float[M,3] k> { k = Add(v, v) w = Neg(k) }"""


@pytest.mark.parametrize("size", [-1, -(2**63)])
def test_a_negative_dimension_is_unknown(size):
    """A size below 0 is open in inputs, outputs, values, branches and functions, and the model runs."""
    model = parser.parse_model(OPEN)
    infos = [*model.graph.input[:1], *model.graph.output, *model.graph.value_info]
    infos += model.functions[0].value_info
    infos += [attribute.g.output[0] for attribute in model.graph.node[2].attribute]
    for info in infos:
        info.type.tensor_type.shape.dim[0].dim_value = size

    graph = loader.load(model)

    assert 6 == len(infos)
    kinds = [kind for each in (graph, *graph.bodies) for kind in each.types.values() if kind.shape]
    assert {3, 6} == {size for kind in kinds for size in kind.shape if isinstance(size, int)}
    for rows in (2, 5):
        feeds = {"x": np.ones((rows, 3), np.float32), "c": np.True_}
        assert (rows, 6) == Network(graph).run(feeds)["y"].shape


def test_both_names_of_the_standard_domain():
    """The domain "ai.onnx" is the same as "", for operators and opsets."""
    model = model_of(RELU)
    model.opset_import[0].domain = model.graph.node[0].domain = "ai.onnx"

    graph = loader.load(model)

    assert {"": 20} == graph.opsets
    assert "" == graph.nodes[0].domain


def test_path_message_and_bytes_give_the_same_graph(tmp_path):
    """A model is the same by its path, as a message and as bytes."""
    model = model_of(RELU.replace("Relu(x)", "MatMul(x, w)"), w=np.ones((3, 300), np.float32))
    data = model.SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)

    graphs = [loader.load(source) for source in (str(tmp_path / "m.onnx"), model, data)]

    assert [[node.operator for node in graphs[0].nodes]] * 3 == [
        [node.operator for node in graph.nodes] for graph in graphs
    ]
    assert all((graph.weights["w"] == 1).all() for graph in graphs)


def test_inputs_that_no_file_shows():
    """An input that the model marks as unlisted has no slot; the operator reads it all the same."""
    model = model_of(
        HEAD + "g (float[2,3] x, int64[2] n) => (float[3,2] y) { a = Relu(x) s = Abs(n) y = Reshape(a, s) }"
    )
    model.graph.node[2].metadata_props.add(key="msdump.full_name", value="Default/Reshape-op0")
    model.graph.node[2].metadata_props.add(key="msdump.unlisted_inputs", value="1")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    graph = loader.load(model)
    y = Network(graph).run({"x": x, "n": np.array([3, 2])})["y"]

    assert ("a", "") == graph.nodes[2].inputs
    np.testing.assert_array_equal(x.reshape(3, 2), y)
