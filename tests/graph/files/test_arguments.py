"""Attributes under MindSpore's names."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from msdump.graph.files.arguments import arguments, kernel_args, kernel_args_json, tensor_text

F32 = "float32"
IMAGE = {"x": (F32, 1, 3, 224, 224), "w": (F32, 64, 3, 7, 7)}
UNKNOWN = {}

CONVOLUTION = {
    "kernel_size": (7, 7),
    "mode": 1,
    "out_channel": 64,
    "input_names": ["x", "w"],
    "pad": (0, 0, 0, 0),
    "pad_mod": "valid",
    "format": "NCHW",
    "pad_list": (0, 0, 0, 0),
    "groups": 1,
    "stride": (1, 1, 1, 1),
    "group": 1,
    "dilation": (1, 1, 1, 1),
    "output_names": ["output"],
}
OF_UNKNOWN_SHAPES = {
    name: value
    for name, value in CONVOLUTION.items()
    if name not in {"kernel_size", "out_channel", "pad_list"}
}

# op_type, attributes, types, expected arguments
CASES = {
    "conv with pads": (
        "Conv",
        {"kernel_shape": (7, 7), "strides": (2, 2), "pads": (3, 2, 1, 0), "dilations": (1, 1), "group": 1},
        IMAGE,
        CONVOLUTION
        | {"pad": (3, 1, 2, 0), "pad_mod": "pad", "pad_list": (3, 1, 2, 0), "stride": (1, 1, 2, 2)},
    ),
    "conv without attributes": ("Conv", {}, IMAGE, CONVOLUTION),
    "conv of unknown shapes, same": (
        "Conv",
        {"auto_pad": "SAME_UPPER", "strides": (2,)},
        UNKNOWN,
        OF_UNKNOWN_SHAPES | {"pad_mod": "same", "stride": (1, 1, 2)},
    ),
    "gemm": (
        "Gemm",
        {"transB": 1, "alpha": 0.5},
        UNKNOWN,
        {"transpose_a": False, "transpose_b": True, "alpha": 0.5},
    ),
    "max pool": (
        "MaxPool",
        {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1},
        IMAGE,
        {
            "kernel_size": (1, 1, 3, 3),
            "strides": (1, 1, 2, 2),
            "pad_mode": "VALID",
            "pad_list": (0, 0, 0, 0),
            "format": "NCHW",
            "ceil_mode": 1,
        },
    ),
    "softmax": ("Softmax", {}, UNKNOWN, {"axis": (-1,)}),
    "reduce": ("ReduceMean", {"axes": (1, 2)}, UNKNOWN, {"axis": (1, 2), "keep_dims": True}),
    "batch norm": (
        "BatchNormalization",
        {"epsilon": 0.001, "momentum": 0.75},
        UNKNOWN,
        {"is_training": False, "epsilon": 0.001, "momentum": 0.25, "format": "NCHW"},
    ),
    "cast": ("Cast", {"to": 10}, UNKNOWN, {"dst_type": "Float16"}),
    "dropout": ("Dropout", {"ratio": 0.25}, UNKNOWN, {"keep_prob": 0.75}),
    "lrn": (
        "LRN",
        {"size": 5, "alpha": 0.5},
        UNKNOWN,
        {"depth_radius": 2, "bias": 1.0, "alpha": 0.1, "beta": 0.75},
    ),
    "split": ("Split", {"split": (1, 2)}, UNKNOWN, {"axis": 0, "output_num": 1, "size_splits": (1, 2)}),
    "unknown to the table": ("Hardmax", {"axis": 1, "s": b"t"}, UNKNOWN, {"axis": 1, "s": "t"}),
    "subgraph": (
        "If",
        {"then_branch": SimpleNamespace(name="yes", node=[])},
        UNKNOWN,
        {"then_branch": "@yes"},
    ),
}


@pytest.mark.parametrize(("op_type", "attributes", "types", "expected"), CASES.values(), ids=CASES)
def test_arguments_have_mindspore_names(make_node, make_graph, *, op_type, attributes, types, expected):
    """Attributes take MindSpore's names and forms, in the order of the table; the others keep ONNX's."""
    node = make_node(op_type, ("x", "w"), attributes=attributes)

    values = arguments(node, make_graph([node], types))

    assert list(expected.items()) == list(values.items())


# auto_pad, size, extent, stride, dilation: top, bottom
SAME = {
    "odd total above": ("SAME_LOWER", 6, 2, 1, 1, (1, 0)),
    "odd total below": ("SAME_UPPER", 6, 2, 1, 1, (0, 1)),
    "stride": ("SAME_UPPER", 13, 3, 2, 1, (1, 1)),
    "dilation": ("SAME_UPPER", 13, 3, 1, 2, (2, 2)),
    "stride beyond the window": ("SAME_UPPER", 8, 1, 2, 1, (0, 0)),
}


@pytest.mark.parametrize(("auto_pad", "size", "extent", "stride", "gap", "expected"), SAME.values(), ids=SAME)
def test_same_padding_is_computed(make_node, make_graph, *, auto_pad, size, extent, stride, gap, expected):
    """pad_list holds the paddings that automatic padding amounts to."""
    attributes = {"auto_pad": auto_pad, "strides": (stride, 1), "dilations": (gap, 1)}
    node = make_node("Conv", ("x", "w"), attributes=attributes)

    values = arguments(node, make_graph([node], {"x": (F32, 1, 1, size, 9), "w": (F32, 1, 1, extent, 1)}))

    assert (*expected, 0, 0) == values["pad_list"]


@pytest.mark.parametrize(
    ("window", "channels", "form"),
    [((3,), 8, "NCL"), ((3, 3), 8, "NCHW"), ((3, 3, 3), 6, "NCDHW")],
    ids=["row", "image", "volume"],
)
def test_transposed_convolution(make_node, make_graph, window, channels, form):
    """A ConvTranspose has the arguments of a convolution's gradient, of volumes its own channels."""
    node = make_node("ConvTranspose", ("x", "w"), attributes={"group": 2})

    values = arguments(node, make_graph([node], {"w": (F32, 8, 3, *window)}))

    assert (channels, form) == (values["out_channel"], values["format"])
    assert ["out_backprop", "filter", "input_sizes"] == values["input_names"]
    assert values["pad_mode"] == "VALID"


def test_softmax_of_old_opsets_flattens_from_axis_1(make_node, make_graph):
    """Before opset 13 the axis of a Softmax is 1 by default."""
    node = make_node("Softmax")

    values = arguments(node, make_graph([node], opset=12))

    assert values == {"axis": (1,)}


def test_foreign_operators_keep_their_attributes(make_node, make_graph):
    """An operator of another domain is not translated, whatever it is called."""
    node = make_node("MatMul", attributes={"transA": 1}, domain="my.domain")

    assert arguments(node, make_graph([node])) == {"transA": 1}


def test_a_bias_has_a_format(make_node, make_graph):
    """An Add that is called BiasAdd has BiasAdd's arguments."""
    node = make_node("Add", primitive="BiasAdd")

    assert arguments(node, make_graph([node])) == {"format": "NCHW"}


def test_kernel_args_of_matmul(make_node, make_graph):
    """The kernel arguments of a MatMul are its two flags, as text, indented by four."""
    node = make_node("MatMul")

    data = kernel_args_json(node, make_graph([node]))

    assert data == b'{\n    "transpose_a": "False",\n    "transpose_b": "False"\n}'


def test_kernel_args_are_sorted_texts(make_node, make_graph):
    """Every value is text, sequences are in brackets, and the keys are sorted."""
    node = make_node("Conv", ("x", "w"), attributes={"pads": (1, 1, 1, 1), "wörd": 0.1})

    values = kernel_args(node, make_graph([node], IMAGE))

    assert sorted(values) == list(values)
    assert values["kernel_size"] == "[7 7]"
    assert values["input_names"] == "[x w]"
    assert values["pad_mode"] == "pad"
    assert values["mode"] == "1"
    assert json.loads(kernel_args_json(node, make_graph([node], IMAGE)))["wörd"] == "0.1"


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(1.5, np.float32), "Tensor(shape=[], dtype=Float32, value=1.5)"),
        (np.array([[1, 2], [3, 4]]), "Tensor(shape=[2, 2], dtype=Int64, value=[[1 2] [3 4]])"),
        (np.zeros(0, bool), "Tensor(shape=[0], dtype=Bool, value=[])"),
        (np.array([True, False]), "Tensor(shape=[2], dtype=Bool, value=[True False])"),
        (np.array(["a", "b"], object), "Tensor(shape=[2], dtype=String, value=[a b])"),
        (np.zeros(17, np.int8), "Tensor(shape=[17], dtype=Int8, value=[...])"),
    ],
    ids=["scalar", "matrix", "empty", "bool", "text", "long"],
)
def test_tensors_are_written_out_while_short(array, expected):
    """A constant of up to 16 elements shows them."""
    assert expected == tensor_text(array)
