"""The tables of operators: MindSpore's names, and the rows that a new operator takes."""

import re

import onnx.parser
import pytest

from msdump.device import operators as device_operators
from msdump.device import placement
from msdump.graph import Use, compile_graph, loader, moves, operators, primitive_name
from msdump.graph.files.arguments import kernel_args

# (operator, its use, MindSpore's name)
CASES = {
    "conv 2d": ("Conv", Use(input_ranks=(4, 4)), "Conv2D"),
    "conv 1d": ("Conv", Use(input_ranks=(3, 3)), "Conv1D"),
    "conv 3d": ("Conv", Use(input_ranks=(5, 5)), "Conv3D"),
    "conv 3d by its weight": ("Conv", Use(input_ranks=(None, 5)), "Conv3D"),
    "conv 3d by its window": ("Conv", Use(attributes={"kernel_shape": (3, 3, 3)}), "Conv3D"),
    "transposed conv 1d": ("ConvTranspose", Use(input_ranks=(3, 3)), "Conv1DBackpropInput"),
    "gemm": ("Gemm", Use(input_ranks=(2, 2, 1)), "Dense"),
    "matmul of matrices": ("MatMul", Use(input_ranks=(2, 2)), "MatMul"),
    "matmul of a batch": ("MatMul", Use(input_ranks=(3, 2)), "BatchMatMul"),
    "matmul of one known batch": ("MatMul", Use(input_ranks=(None, 3)), "BatchMatMul"),
    "bias after matmul": ("Add", Use(producers=("MatMul", None), initializer_ranks=(None, 1)), "BiasAdd"),
    "bias after conv": ("Add", Use(producers=("Conv", None), initializer_ranks=(None, 1)), "BiasAdd"),
    "sum with a matrix": ("Add", Use(producers=("MatMul", None), initializer_ranks=(None, 2)), "Add"),
    "sum of two matmuls": ("Add", Use(producers=("MatMul", "MatMul"), initializer_ranks=(None, None)), "Add"),
    "global average pool": ("GlobalAveragePool", Use(input_ranks=(4,)), "AdaptiveAvgPool2D"),
    "average pool 1d": ("AveragePool", Use(input_ranks=(3,)), "AvgPool1D"),
    "global max pool 1d": ("GlobalMaxPool", Use(input_ranks=(3,)), "MaxPool1D"),
    "clip to 0..6 by inputs": ("Clip", Use(scalars=(None, 0.0, 6.0)), "ReLU6"),
    "clip to 0..6 by attributes": ("Clip", Use(attributes={"min": 0.0, "max": 6.0}), "ReLU6"),
    "clip to 0..1": ("Clip", Use(scalars=(None, 0.0, 1.0)), "ClipByValue"),
    "resize linear": ("Resize", Use(input_ranks=(4,), attributes={"mode": "linear"}), "ResizeBilinearV2"),
    "resize linear, bytes": ("Resize", Use(attributes={"mode": b"linear"}), "ResizeBilinearV2"),
    "resize 3d": ("Resize", Use(input_ranks=(5,), attributes={"mode": "linear"}), "UpsampleTrilinear3D"),
    "upsample": ("Upsample", Use(input_ranks=(3,)), "UpsampleNearest1D"),
    "mod": ("Mod", Use(), "FloorMod"),
    "fmod": ("Mod", Use(attributes={"fmod": 1}), "Mod"),
    "lower triangle": ("Trilu", Use(attributes={"upper": 0}), "Tril"),
    "shift": ("BitShift", Use(attributes={"direction": "RIGHT"}), "RightShift"),
    "scatter, adding": ("ScatterND", Use(attributes={"reduction": "add"}), "TensorScatterAdd"),
    "hard shrink": ("Shrink", Use(), "HShrink"),
    "soft shrink": ("Shrink", Use(attributes={"bias": 0.5, "lambd": 0.5}), "SoftShrink"),
    "l2 norm": ("LpNormalization", Use(), "L2Normalize"),
    "no entry": ("TfIdfVectorizer", Use(), "TfIdfVectorizer"),
}


@pytest.mark.parametrize(("op_type", "use", "expected"), CASES.values(), ids=CASES)
def test_operators_take_mindspore_names(op_type, use, expected):
    """An ONNX operator has MindSpore's name for this use."""
    assert expected == primitive_name(op_type, "", use)


@pytest.mark.parametrize(
    ("op_type", "domain", "expected"),
    [
        ("Relu", "ai.onnx", "ReLU"),
        ("Relu", "my.domain", "Relu"),
        ("Gelu", "com.microsoft", "GeLU"),
        ("FusedConv", "com.microsoft", "FusedConv"),
    ],
)
def test_foreign_domains_keep_their_names(op_type, domain, expected):
    """The table speaks of ai.onnx; an operator of another domain keeps its name unless it is listed."""
    assert expected == primitive_name(op_type, domain, Use())


@pytest.mark.parametrize("op_type", operators.OPERATORS)
def test_names_suit_file_names(op_type):
    """Every entry gives an identifier, also where nothing is known about the use."""
    domain, _, name = op_type.rpartition("::")

    primitive = primitive_name(name, domain, Use())

    assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", primitive)


MODEL = """
<ir_version: 10, opset_import: ["": 20]>
g (float[1,16,8,8] x, float[16,16,3,3] w) => (float[1,16,6,6] y) {
  c = Conv(x, w)
  [snake] y = Snake<alpha = 2.0>(c)
}
"""


@pytest.fixture
def _snake(monkeypatch):
    """An activation that no version of ONNX has, in both tables."""
    arguments = (operators.ArgumentRule("frequency", "alpha", lambda node, _graph: node.attributes["alpha"]),)
    row = operators.Operator("SnakeV2", arguments, fusion=operators.Fusion.ACTIVATION)
    monkeypatch.setitem(operators.OPERATORS, "Snake", row)
    monkeypatch.setitem(device_operators.FORMATS_OF, "SnakeV2", device_operators.Elementwise())


@pytest.mark.usefixtures("_snake")
def test_a_row_in_each_table_makes_an_operator_known():
    """Name, arguments, fusion, element types and formats of an operator follow from its two rows."""
    graph = loader.load(onnx.parser.parse_model(MODEL))
    conv, snake = graph.nodes

    assert ("Default/SnakeV2-op0", {"frequency": "2"}) == (
        snake.operator.full_name,
        kernel_args(snake, graph),
    )
    assert not moves("Snake")
    assert ["Default/Conv2D-op0SnakeV2-op0"] == [
        node.operator.full_name for node in compile_graph(graph).nodes
    ]
    placed = placement.place(graph).nodes[1]
    assert ["NC1HWC0"] * 2 == [tensor.format for tensor in (*placed.inputs, *placed.outputs)]
    assert conv.operator.op_type == "Conv2D"


def test_an_operator_without_rows_keeps_its_name_and_the_host_format():
    """Without rows an operator is dumped under its ONNX name and attributes, in the host's format."""
    graph = loader.load(onnx.parser.parse_model(MODEL))
    snake = graph.nodes[1]

    assert ("Default/Snake-op0", {"alpha": "2"}) == (snake.operator.full_name, kernel_args(snake, graph))
    assert ["DefaultFormat"] == [tensor.format for tensor in placement.place(graph).nodes[1].outputs]
