"""The .ir text of a graph."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from msdump.graph import SourceLine, ValueType
from msdump.graph.files import ir_text

F32 = "float32"
CONV = {"kernel_shape": (3, 3), "auto_pad": "SAME_UPPER", "strides": (1, 1), "dilations": (1, 1), "group": 1}

WHOLE = """\
# IR entry: @kernel_graph0
# Total subgraphs: 1

# Attrs:

# Total params: 2
# Params:
%para1_conv3.weight: <Ref[Tensor[Float32]], (384, 256, 3, 3), ref_key=conv3.weight, is_parameter>\
  :  has_default  :  <Float32xDefaultFormat[const vector][384, 256, 3, 3]>  :  IsWeight: true
%para2_x: <Tensor[Float32], (32, 256, 13, 13)> : [32, 256, 13, 13]\
  :  <Float32xDefaultFormat[const vector][32, 256, 13, 13]>  :  IsWeight: false

Node counting information:
Total number of nodes: 8
Total number of cnodes: 3

subgraph attr:
subgraph instance: kernel_graph0 : 0x0

subgraph @kernel_graph0() {
  %0(y) = Conv2D(%para2_x, %para1_conv3.weight) {instance name: conv3} primitive_attrs: {\
kernel_size: (3, 3), mode: 1, out_channel: 384, input_names: [x, w], pad: (0, 0, 0, 0), pad_mod: same,\
 format: NCHW, pad_list: (1, 1, 1, 1), groups: 1, stride: (1, 1, 1, 1), group: 1,\
 dilation: (1, 1, 1, 1), output_names: [output]}
      : (<Tensor[Float32], (32, 256, 13, 13)>, <Tensor[Float32], (384, 256, 3, 3)>)\
 -> (<Tensor[Float32], (32, 384, 13, 13)>)
      : (<Float32xDefaultFormat[const vector][32, 256, 13, 13]>,\
 <Float32xDefaultFormat[const vector][384, 256, 3, 3]>)\
 -> (<Float32xDefaultFormat[const vector][32, 384, 13, 13]>)
      : full_name_with_scope: (Default/conv3-Conv2d/Conv2D-op12)
      # In file main.py(20)/        y = net(x)/
      # In file ./train.py(175)/        x = self.conv3(x)/
  %1(CNode_1) = MakeTuple(%0)
      : (<Tensor[Float32], (32, 384, 13, 13)>)\
 -> (<Tuple[Tensor[Float32]], TupleShape((32, 384, 13, 13))>)
      : full_name_with_scope: (Default/MakeTuple-op0)
  Return(%1)
      : (<Tuple[Tensor[Float32]], TupleShape((32, 384, 13, 13))>)
      : full_name_with_scope: (Default/Return-op0)
}
# Order:
#   1: @kernel_graph0:Return{[0]: ValueNode<Primitive> Return, [1]: %1}
"""


@pytest.fixture
def conv_graph(make_node, make_graph):
    """Return the third convolution of an AlexNet."""
    node = make_node(
        "Conv",
        ("x", "conv3.weight"),
        attributes=CONV,
        name="conv3",
        primitive="Conv2D",
        scope="Default/conv3-Conv2d",
        number=12,
        source=(
            SourceLine("main.py", 20, "y = net(x)"),
            SourceLine("./train.py", 175, "  x = self.conv3(x)"),
        ),
    )
    types = {"x": (F32, 32, 256, 13, 13), "y": (F32, 32, 384, 13, 13)}
    weight = np.broadcast_to(np.float32(0), (384, 256, 3, 3))
    return make_graph([node], types, weights={"conv3.weight": weight})


def test_whole_text(conv_graph):
    """A graph is written as parameters, counts and statements with host, device, name and source lines."""
    assert ir_text.text(conv_graph, 0) == WHOLE


def test_device_line_shows_the_device_view(conv_graph):
    """The second line below a statement has dtype, format and dimensions on the device."""

    def view(value, node):
        assert node.op_type == "Conv"
        return {
            "x": ("Float16", "NC1HWC0", (32, 16, 13, 13, 16)),
            "conv3.weight": ("Float16", "FracZ", (144, 24, 16, 16)),
            "y": ("Float32", "NC1HWC0", (32, 24, 13, 13, 16)),
        }[value]

    lines = ir_text.text(conv_graph, 0, view).splitlines()

    assert (
        "      : (<Float16xNC1HWC0[const vector][32, 16, 13, 13, 16]>,"
        " <Float16xFracZ[const vector][144, 24, 16, 16]>)"
        " -> (<Float32xNC1HWC0[const vector][32, 24, 13, 13, 16]>)"
    ) in lines


# inputs, outputs, types, constants: the call, the host line
STATEMENTS = {
    "unknown dimensions": (
        (("x",), ("y",), {"x": (F32, "batch", None, 3), "y": (F32, ...)}, {}),
        "  %0(y) = Op(%para1_x)",
        "      : (<Tensor[Float32], (-1, -1, 3)>) -> (<Tensor[Float32], (-2)>)",
    ),
    "sequence and optional": (
        (("x",), ("y",), {"x": ValueType(kind="sequence"), "y": ValueType(kind="optional")}, {}),
        "  %0(y) = Op(%para1_x)",
        "      : (<List, NoShape>) -> (<Optional, NoShape>)",
    ),
    "absent input": (
        (("x", "", "x"), ("y",), {"x": ("int8", 2), "y": ("int8", 2)}, {}),
        "  %0(y) = Op(%para1_x, None, %para1_x)",
        "      : (<Tensor[Int8], (2)>, <None, NoShape>, <Tensor[Int8], (2)>) -> (<Tensor[Int8], (2)>)",
    ),
    "constant input": (
        (("x", "k"), ("y",), {"x": (F32, 2), "y": (F32, 2)}, {"k": np.array([1, -1])}),
        "  %0(y) = Op(%para1_x, Tensor(shape=[2], dtype=Int64, value=[1 -1]))",
        "      : (<Tensor[Float32], (2)>, <Tensor[Int64], (2)>) -> (<Tensor[Float32], (2)>)",
    ),
    "two outputs": (
        (("x",), ("y", "z"), {"x": (F32, 4), "y": (F32, 2), "z": (F32, 2)}, {}),
        "  %0(y) = Op(%para1_x)",
        "      : (<Tensor[Float32], (4)>) -> (<Tuple[Tensor[Float32]*2], TupleShape((2), (2))>)",
    ),
    "outputs of different types": (
        (("",), ("y", "", "z"), {"y": ("int8",), "z": ValueType(kind="sequence")}, {}),
        "  %0(y) = Op(None)",
        "      : (<None, NoShape>) -> (<Tuple[Tensor[Int8],Unknown,List], TupleShape((), NoShape, NoShape)>)",
    ),
}


@pytest.mark.parametrize(("case", "call", "host"), STATEMENTS.values(), ids=STATEMENTS)
def test_statement_lines(make_node, make_graph, *, case, call, host):
    """Operands and types of a statement are written whatever is known about them."""
    inputs, outputs, types, constants = case
    graph = make_graph([make_node("Op", inputs, outputs, name="op")], types, constants=constants)

    lines = ir_text.text(graph, 0).splitlines()

    assert f"{call} {{instance name: op}} primitive_attrs: {{}}" in lines
    assert host in lines


def test_items_of_a_tuple_are_taken_where_they_are_read(make_node, make_graph):
    """Each output of an operator with several that is read becomes a TupleGetItem with its index."""
    split = make_node("Split", ("x",), ("a", "b", "c"), scope="Default/s")
    join = make_node("Concat", ("c", "a"), ("y",), {"axis": 0})
    graph = make_graph([split, join], {"x": (F32, 3), "a": (F32, 1), "b": (F32, 1), "c": (F32, 1)})

    calls = [line.strip() for line in ir_text.text(graph, 0).splitlines() if line.startswith("  %")]

    assert calls == [
        "%0(a) = Split(%para1_x) {instance name: split} primitive_attrs: {axis: 0, output_num: 3}",
        "%1(a) = TupleGetItem(%0, 0)",
        "%2(c) = TupleGetItem(%0, 2)",
        "%3(y) = Concat(%2, %1) {instance name: concat} primitive_attrs: {axis: 0}",
        "%4(CNode_4) = MakeTuple(%3)",
    ]


def test_items_are_numbered_in_the_scope_of_their_tuple(make_node, make_graph):
    """The TupleGetItems of an operator are named in its scope, from 0."""
    split = make_node("Split", ("x",), ("a", "b"), scope="Default/s")
    graph = make_graph([split], outputs=("a", "b"))

    names = re.findall(r"full_name_with_scope: \((.*)\)", ir_text.text(graph, 0))

    assert names == [
        "Default/s/Split-op0",
        "Default/s/TupleGetItem-op0",
        "Default/s/TupleGetItem-op1",
        "Default/MakeTuple-op0",
        "Default/Return-op0",
    ]


def test_attributes_are_spelt_as_in_the_documents(make_node, make_graph):
    """Flags are true and false, floats short, tuples in parentheses; subgraphs appear by name only."""
    attributes = {
        "flag": True,
        "ratio": 0.1,
        "one": (0,),
        "none": (),
        "names": ["x", "w"],
        "tensor": np.array([1, 2], np.int8),
        "text": "a\nb",
        "body": SimpleNamespace(name="then", node=[]),
    }
    graph = make_graph([make_node("Op", attributes=attributes, domain="d")])

    text = ir_text.text(graph, 0)

    assert (
        "primitive_attrs: {flag: true, ratio: 0.1, one: (0), none: (), names: (x, w),"
        " tensor: Tensor(shape=[2], dtype=Int8, value=[1 2]), text: a\\nb, body: @then}\n"
    ) in text


def test_a_line_break_in_a_name_breaks_no_line(make_node, make_graph):
    """Names of a model are written on one line whatever they hold."""
    node = make_node("Op", ("x",), ("y\ny",), name="o\no", scope="Default/a\nb")
    graph = make_graph([node], outputs=("y\ny",))

    lines = ir_text.text(graph, 0).splitlines()

    assert "  %0(y\\ny) = Op(%para1_x) {instance name: o\\no} primitive_attrs: {}" in lines
    assert "      : full_name_with_scope: (Default/a\\nb/Op-op0)" in lines


def test_constants_are_no_parameters(make_graph):
    """Weights are parameters before the inputs; values of Constant nodes are none."""
    graph = make_graph(
        [], weights={"w": np.zeros(2, np.float32), "b": np.zeros((), np.int8)}, constants={"k": np.zeros(1)}
    )

    names = re.findall(r"^%(para\d+_\w+):.* IsWeight: (\w+)$", ir_text.text(graph, 0), re.MULTILINE)

    assert names == [("para1_w", "true"), ("para2_b", "true"), ("para3_x", "false")]
