"""Identities of tensors: the values of a model and the outputs of a graph file."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from msdump.judge.pair import read_identities
from msdump.read import FolderKind
from msdump.record import IO
from tests.judge.compare import compared
from tests.texts import parsed

GRAPHS = Path(__file__).resolve().parents[4] / "graphs"
OUT, IN = IO.OUTPUT, IO.INPUT
DUMPS, GOLDEN, TENSORS, COMPILED = FolderKind


@pytest.fixture(scope="module")
def lenet():
    """Return the identities that the model gives a dump and golden tensors."""
    return read_identities(str(GRAPHS / "lenet.onnx"), DUMPS, GOLDEN)


@pytest.mark.parametrize(
    ("dumped", "golden"),
    [
        (("Default_conv1-Conv2d_Conv2D-op0", OUT, 0), ("conv1_Conv_node_0", OUT, 0)),
        (("Default_conv1-Conv2d_Conv2D-op0", IN, 0), ("input_conv1_Conv_node_0", OUT, 0)),
        (("Default_conv2-Conv2d_Conv2D-op0", IN, 1), ("input_conv2_Conv_node_3", OUT, 1)),
        (("Default_conv2-Conv2d_Conv2D-op0", IN, 0), ("max_pool2d_MaxPool_node_2", OUT, 0)),
        (("conv1_Conv_node_0relu_Relu_node_1", OUT, 0), ("relu_Relu_node_1", OUT, 0)),
        (("conv1_Conv_node_0", OUT, 0), ("conv1_Conv_node_0", OUT, 0)),
        (("x", OUT, 0), ("input_conv1_Conv_node_0", OUT, 0)),
        (("conv1_weight", OUT, 0), ("input_conv1_Conv_node_0", OUT, 1)),
    ],
    ids=["output", "graph input", "weight", "producer", "fused", "node name", "data", "parameter"],
)
def test_names_of_the_same_value(lenet, dumped, golden):
    """An operator's tensor and onnxruntime's of the same value have the same identity."""
    found = lenet.dumped(*dumped)

    assert found is not None
    assert found == lenet.golden(*golden)


@pytest.mark.parametrize("place", [("nothing", OUT, 0), ("conv1_Conv_node_0", OUT, 7), ("", IN, 0)])
def test_what_the_model_has_not(lenet, place):
    """A name without a tensor of the model has no identity."""
    assert lenet.dumped(*place) is None
    assert lenet.golden(*place) is None


def test_values_of_a_loop_are_not_those_outside():
    """A value inside a loop has an identity of its own, whatever it is called outside."""
    found = read_identities(str(GRAPHS / "loop.onnx"), TENSORS, TENSORS)

    inside, outside = (
        found.dumped("Default_Loop_0_body_Add-op0", OUT, 0),
        found.dumped("Default_Loop-op0", OUT, 0),
    )
    assert inside is not None
    assert outside is not None
    assert inside[0] != outside[0]


def test_graph_file(tmp_path):
    """A graph file gives the original output of outputs, and of inputs through the compiler's own casts."""
    rules = compared.graph(
        tmp_path / "graph.json",
        compared.operator("a/conv", "Conv2D", 1, ["x:0"], ["c", "r"], [("r", 0, "NCHW")]),
        compared.operator("floor", "Cast", 2, ["a/conv:0"], ["floor"], [("floor", 0, "ND")]),
        compared.operator("trans_Cast_0", "Cast", 3, ["floor:0"], []),
        compared.operator("fc", "MatMul", 4, ["trans_Cast_0:0"], ["m"], [("m", 1, "ND")]),
        compared.operator("ring", "Cast", 5, ["ring:0"], []),
    )

    found = read_identities(str(rules), DUMPS, GOLDEN)

    assert found.golden("r", OUT, 0) == found.dumped("a_conv", OUT, 0) == found.dumped("floor", IN, 0)
    assert found.golden("floor", OUT, 0) == found.dumped("floor", OUT, 0)
    assert found.golden("floor", OUT, 0) == found.dumped("trans_Cast_0", OUT, 0) == found.dumped("fc", IN, 0)
    assert found.golden("m", OUT, 1) == found.dumped("fc", OUT, 0)
    assert found.dumped("a_conv", IN, 0) is None
    assert found.dumped("ring", OUT, 0) is None
    assert found.dumped("unknown", OUT, 0) is None


@pytest.mark.parametrize(("kind", "slot"), [(DUMPS, 1), (COMPILED, 1), (TENSORS, 2)])
def test_absent_inputs(tmp_path, kind, slot):
    """A compiled graph does not number the inputs that an operator leaves out, MindSpore's other dumps do."""
    path = tmp_path / "resize.onnx"
    text = 'g (float[1,1,2,2] x, float[4] sizes) => (y) { [up] y = Resize<mode = "nearest">(x, , sizes) }'
    onnx.save(parsed(text), path)

    read = read_identities(str(path), kind, GOLDEN)

    name = "Default_ResizeNearestNeighborV2-op0"
    assert ("0", "sizes") == read.dumped(name, IN, slot) == read.golden("up", IN, 2)
    assert read.dumped(name, IN, 3 - slot) is None
