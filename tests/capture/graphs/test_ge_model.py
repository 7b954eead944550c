"""GE's graph files of a compiled graph."""

import numpy as np
import onnx
import onnx.parser
import pytest
from google.protobuf import text_format

from msdump.capture import HostView, graph_files
from msdump.encode import ge
from msdump.execute import emulated
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel
from tests.encode.ge_oracle import attributes, parsed
from tests.world import GRAPHS

FILES = sorted(path.stem for path in GRAPHS.glob("*.onnx"))
NET = """
<ir_version: 10, opset_import: ["": 20]>
net (float[1,16,8,8] x, bool p) => (y) <float[16,16,3,3] w> {
    [conv1] c = Conv<group = 1, pads = [1, 1, 1, 1]>(x, w)
    [conv1_relu] r = Relu(c)
    [shape] s = Flatten(r)
    [choice] y = If(p) <
        then_branch = inner () => (float[1,1024] a) { [up] a = Exp(s) },
        else_branch = inner () => (float[1,1024] b) { [down] b = Neg(s) }
    >
}
"""


def device(graph, **context):
    """Return the emulated device of a compiled graph."""
    where = Context(DeviceTarget.ASCEND, JitLevel.O2, keeps_node_names=True, **context)
    return emulated(graph, None, where)


def net():
    """Return a network with a fused kernel, a change of shape, a branch and a weight."""
    model = onnx.parser.parse_model(NET.replace("<float[16,16,3,3] w>", ""))
    ones = np.ones((16, 16, 3, 3), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(ones, "w"))
    return loader.load(model)


@pytest.fixture(scope="module")
def told():
    """Return the ModelDef of the network, read by protobuf."""
    return parsed(b"".join(ge.text(graph_files.model(device(net())))))


@pytest.fixture(scope="module")
def operators(told):
    """Return the operators of its main graph by name."""
    return {operator.name: operator for operator in told.graph[0].op}


def test_graphs(told):
    """The model has the name of its main graph; each branch is a graph of its own."""
    assert "net" == told.name
    assert ["net", "inner_1", "inner_2"] == [graph.name for graph in told.graph]
    assert ["x:0", "p:0"] == list(told.graph[0].input)
    assert ["choice:0"] == list(told.graph[0].output)


def test_operators(told):
    """Inputs, constants, operators in execution order and the output, numbered."""
    operators = told.graph[0].op

    kinds = [
        "Data",
        "Data",
        "Const",
        "Cast",
        "TransData",
        "Conv2D",
        "TransData",
        "Flatten",
        "If",
        "NetOutput",
    ]
    assert kinds == [operator.type for operator in operators]
    assert list(range(len(operators))) == [operator.id for operator in operators]


def test_producers(operators):
    """Every operator names the outputs that it reads."""
    producers = {name: list(operator.input) for name, operator in operators.items()}

    assert {
        "x": [""],
        "p": [""],
        "w": [],
        "trans_Cast_0": ["x:0"],
        "trans_TransData_1": ["trans_Cast_0:0"],
        "conv1conv1_relu": ["trans_TransData_1:0", "w:0"],
        "trans_TransData_2": ["conv1conv1_relu:0"],
        "shape": ["trans_TransData_2:0"],
        "choice": ["p:0"],
        "Node_Output": ["choice:0"],
    } == producers


def test_originals(operators):
    """A kernel names the operators of the model that it stands for; inserted operators name none."""
    found = {name: attributes(op)["_datadump_original_op_names"] for name, op in operators.items()}

    assert ["conv1", "conv1_relu"] == found["conv1conv1_relu"]
    assert ["shape"] == found["shape"]
    assert ["x"] == found["x"]
    assert [[], [], [], []] == [
        found[name] for name in ("w", "trans_Cast_0", "trans_TransData_1", "Node_Output")
    ]


def test_outputs_tell_their_origin(operators):
    """An output names the model's output that it is, with the model's type."""
    (output,) = operators["conv1conv1_relu"].output_desc

    assert {
        "_datadump_origin_name": "conv1_relu",
        "_datadump_origin_output_index": 0,
        "_datadump_origin_data_type": "DT_FLOAT",
        "_datadump_origin_format": "NCHW",
        "origin_format": "NCHW",
        "origin_shape": [1, 16, 8, 8],
    } == attributes(output)


def test_tensors(operators):
    """Tensors have the device's type, shape, format and size; constants are laid out as they are read."""
    kernel = operators["conv1conv1_relu"]

    def shown(tensor):
        return tensor.dtype, list(tensor.shape.dim), tensor.layout, tensor.size

    assert (2, [1, 1, 8, 8, 16], "NC1HWC0", 2048) == shown(kernel.input_desc[0])
    assert (2, [9, 1, 16, 16], "FRACTAL_Z", 4608) == shown(kernel.input_desc[1])
    assert (1, [1, 1, 8, 8, 16], "NC1HWC0", 4096) == shown(kernel.output_desc[0])
    assert shown(kernel.input_desc[1]) == shown(operators["w"].output_desc[0])
    assert (1, [1, 16, 8, 8], "NCHW", 4096) == shown(operators["x"].output_desc[0])
    assert (11, [], "ND", 1) == shown(operators["p"].output_desc[0])


def test_what_has_no_task(told, operators):
    """Operators without a task are marked; operators of branches run on streams of their own."""
    tasks = {name: "_no_task" in attributes(operator) for name, operator in operators.items()}

    assert {"shape", "choice"} == {name for name, is_settled in tasks.items() if is_settled}
    assert ["inner_1", "inner_2"] == list(operators["choice"].subgraph_name)
    streams = [
        op.stream_id
        for graph in told.graph
        for op in graph.op
        if op.name in {"conv1conv1_relu", "up", "down"}
    ]
    assert [0, 1, 2] == streams


def test_arguments(operators):
    """Operators keep the model's attributes."""
    found = attributes(operators["conv1conv1_relu"])

    assert (1, [1, 1, 1, 1]) == (found["group"], found["pads"])
    assert "NC1HWC0" == attributes(operators["trans_TransData_1"])["dst_format"]


def test_data():
    """Constants have their elements if the data are wanted."""
    told = parsed(b"".join(ge.text(graph_files.model(device(net()), with_data=True))))

    (weight,) = (operator for operator in told.graph[0].op if operator.type == "Const")

    (value,) = (entry.value.t for entry in weight.attr if entry.key == "value")
    assert np.ones((16, 16, 3, 3), np.float32).tobytes() == value.data
    assert [16, 16, 3, 3] == list(value.desc.shape.dim)


def test_before_compilation():
    """A graph before placement has the host's formats, and no tasks."""
    told = parsed(b"".join(ge.text(graph_files.model(HostView(net())))))

    kinds = [operator.type for operator in told.graph[0].op]
    assert ["Data", "Data", "Const", "Conv2D", "ReLU", "Flatten", "If", "NetOutput"] == kinds
    assert {"NCHW", "ND"} == {d.layout for op in told.graph[0].op for d in (*op.input_desc, *op.output_desc)}
    assert not any("_no_task" in attributes(operator) for operator in told.graph[0].op)


@pytest.mark.parametrize("with_data", [True, False], ids=["data", "no data"])
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_network(name, with_data):
    """Files of every small graph can be read by protobuf and by ONNX, and no producer is missing."""
    made = graph_files.model(device(loader.load(GRAPHS / f"{name}.onnx")), with_data=with_data)

    told = parsed(b"".join(ge.text(made)))
    shown = text_format.Parse(b"".join(ge.text(ge.onnx_model(made))).decode(), onnx.ModelProto())

    assert [op.name for op in told.graph[0].op] == [node.name for node in shown.graph.node]
    for graph in told.graph:
        outputs = {f"{op.name}:{slot}" for op in graph.op for slot in range(len(op.output_desc))}
        assert outputs | {""} >= {source for op in graph.op for source in op.input}


def test_words_of_onnx():
    """In ONNX's words types stand behind ge:, tensors in attributes, branches in attributes too."""
    made = graph_files.model(device(net()))

    shown = text_format.Parse(b"".join(ge.text(ge.onnx_model(made))).decode(), onnx.ModelProto())

    nodes = {node.name: node for node in shown.graph.node}
    kernel = nodes["conv1conv1_relu"]
    found = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in kernel.attribute}
    assert ("ge:Conv2D", ["trans_TransData_1:0", "w:0"]) == (kernel.op_type, list(kernel.input))
    assert ["conv1conv1_relu:0"] == list(kernel.output)
    assert [b"conv1", b"conv1_relu"] == found["_datadump_original_op_names"]
    assert b"DT_FLOAT16" == found["input_desc_dtype:0"]
    assert ([1, 1, 8, 8, 16], b"NC1HWC0") == (found["input_desc_shape:0"], found["input_desc_layout:0"])
    assert ([16, 16, 3, 3], b"NCHW") == (
        found["input_desc_origin_shape:1"],
        found["input_desc_origin_layout:1"],
    )
    branches = [a.g.name for a in nodes["choice"].attribute if a.type == onnx.AttributeProto.GRAPH]
    assert ["inner_1", "inner_2"] == branches
    assert [("x:0", 1), ("p:0", 9)] == [
        (value.name, value.type.tensor_type.elem_type) for value in shown.graph.input
    ]
    inner = [[value.name for value in a.g.output] for a in nodes["choice"].attribute if a.HasField("g")]
    assert [["up:0"], ["down:0"]] == inner
    assert ["choice:0"] == [value.name for value in shown.graph.output]


def test_only_relations():
    """Without anything else operators have names, types and producers."""
    made = ge.onnx_model(graph_files.model(device(net())), only_relations=True)

    shown = text_format.Parse(b"".join(ge.text(made)).decode(), onnx.ModelProto())

    assert not any(node.attribute for node in shown.graph.node)
    assert "conv1conv1_relu:0" in [output for node in shown.graph.node for output in node.output]
