"""Constant inputs of operators of training steps next to MindSpore 2.10's own dumps."""

import numpy as np
import pytest
from onnx import numpy_helper

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, ints, label, normals, one_operator
from tests.training.golden_data import dumped
from tests.world import opened

_RNG = np.random.default_rng(31)


_normal = normals(_RNG)


def _apart(*shape):
    """Return elements that are far apart from each other."""
    return (_RNG.permutation(int(np.prod(shape))).reshape(shape) / 7 - 3.04).astype(np.float32)


_IMAGE, _VOLUME, _ROWS = _apart(2, 4, 6, 6), _apart(1, 2, 4, 4, 4), _apart(3, 4)
_CUBE = _normal(4, 6, 5)

CASES = {
    "AvgPool": (
        ("AveragePool", [_IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        {
            "AvgPool": "x Int64[2,2] Int64[2,2] Int64:2 Int64:0",
            "AvgPoolGrad": "x x x Int64[2,2] Int64[2,2] Int64:2 Int64:0",
        },
    ),
    "AvgPool_same": (
        ("AveragePool", [_IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        {
            "AvgPool": "x Int64[3,3] Int64[2,2] Int64:1 Int64:0",
            "AvgPoolGrad": "x x x Int64[3,3] Int64[2,2] Int64:1 Int64:0",
        },
    ),
    "AvgPool_of_volumes": (
        ("AveragePool", [_VOLUME], {"kernel_shape": [2, 2, 2]}),
        {"AvgPool3D": "x", "AvgPool3DGrad": "Int64[1,2,4,4,4] x"},
    ),
    "AdaptiveAvgPool2D": (("GlobalAveragePool", [_IMAGE], {}), {"AdaptiveAvgPool2DGrad": "x Int64[2,4,6,6]"}),
    "AdaptiveAvgPool3D": (
        ("GlobalAveragePool", [_VOLUME], {}),
        {"AdaptiveAvgPool3DGrad": "x Int32[1,2,4,4,4]"},
    ),
    "AdaptiveMaxPool2D": (("GlobalMaxPool", [_IMAGE], {}), {"AdaptiveMaxPool2D": "x Int64[1,1]"}),
    "AdaptiveMaxPool3D": (("GlobalMaxPool", [_VOLUME], {}), {"AdaptiveMaxPool3D": "x Int32[1,1,1]"}),
    "Conv3D": (
        ("Conv", [_normal(1, 2, 3, 3, 3), _normal(2, 2, 2, 2, 2), _normal(2)], {}),
        {"BiasAdd": "x x Int64:14", "BiasAddGrad": "x Int64:14", "Conv3DBackpropFilter": "x x"},
    ),
    "Concat": (
        ("Concat", [_normal(2, 3), _normal(2, 4)], {"axis": 1}),
        {"Concat": "x x Int64:1", "Slice": "x Int64[0,0] Int64[2,3]; x Int64[0,3] Int64[2,4]"},
    ),
    "Split": (
        ("Split", [_normal(2, 6)], {"axis": 1, "num_outputs": 3}, 3),
        {"Split": "x Int64:1 Int64:3", "Concat": "x x x Int64:1"},
    ),
    "Split_of_other_sizes": (
        ("Split", [_normal(2, 6), ints(2, 4)], {"axis": 1}, 2),
        {
            "StridedSlice": "x Int64[0,0] Int64[0,2] Int64[1,1] Int64:3 Int64:1 Int64:0 Int64:0 Int64:0;"
            " x Int64[0,2] Int64[0,6] Int64[1,1] Int64:1 Int64:1 Int64:0 Int64:0 Int64:0",
            "StridedSliceGrad": "x Int64[2,6] Int64[0,0] Int64[0,2] Int64[1,1]",
        },
    ),
    "StridedSlice": (
        ("Slice", [_CUBE, ints(1), ints(3), ints(1)], {}),
        {
            "StridedSlice": "x Int64[0,1] Int64[0,3] Int64[1,1] Int64:1 Int64:1 Int64:0 Int64:0 Int64:0",
            "StridedSliceGrad": "x Int64[4,6,5] Int64[0,1] Int64[0,3] Int64[1,1]",
        },
    ),
    "StridedSlice_from": (
        ("Slice", [_CUBE, ints(1), ints(2**63 - 1), ints(0)], {}),
        {"StridedSlice": "x Int64[1] Int64[0] Int64[1] Int64:0 Int64:1 Int64:0 Int64:0 Int64:0"},
    ),
    "StridedSlice_last": (
        ("Slice", [_CUBE, ints(0), ints(-1), ints(-2)], {}),
        {"StridedSlice": "x Int64[0,0] Int64[0,-1] Int64[1,1] Int64:3 Int64:1 Int64:0 Int64:0 Int64:0"},
    ),
    "StridedSlice_steps": (
        ("Slice", [_CUBE, ints(0, 1), ints(1000, 1000), ints(1, 2), ints(2, 1)], {}),
        {
            "StridedSlice": "x Int64[0,0,1] Int64[0,0,0] Int64[1,2,1]"
            " Int64:3 Int64:7 Int64:0 Int64:0 Int64:0",
            "StridedSliceGrad": "x Int64[4,6,5] Int64[0,0,1] Int64[0,0,0] Int64[1,2,1]",
        },
    ),
    "Elu": (("Elu", [_ROWS], {}), {"Elu": "x Float32:1.0", "EluGrad": "x x"}),
    "CeLU": (("Celu", [_ROWS], {"alpha": 0.5}), {"CeLU": "x Float32:0.5"}),
    "HShrink": (("Shrink", [_ROWS], {}), {"HShrink": "x Float32:0.5", "HShrinkGrad": "x x Float32:0.5"}),
    "SoftShrink": (
        ("Shrink", [_ROWS], {"lambd": 0.25, "bias": 0.25}),
        {"SoftShrink": "x Float32:0.25", "SoftShrinkGrad": "x x Float32:0.25"},
    ),
    "Shrink": (("Shrink", [_ROWS], {"lambd": 0.25, "bias": 0.5}), {"Shrink": "x"}),
    "Softmax": (("Softmax", [_ROWS], {}), {"Softmax": "x Int64[-1]"}),
    "LogSoftmax": (
        ("LogSoftmax", [_ROWS], {}),
        {"LogSoftmax": "x Int64:-1", "LogSoftmaxGrad": "x x Int64:-1"},
    ),
    "ExpandDims": (("Unsqueeze", [_ROWS, ints(1)], {}), {"ExpandDims": "x"}),
    "Squeeze": (("Squeeze", [_normal(3, 1, 4), ints(1)], {}), {"Squeeze": "x"}),
    "Tile": (("Tile", [_ROWS, ints(2, 3)], {}), {"Tile": "x Int64[2,3]"}),
    "BroadcastTo": (("Expand", [_ROWS, ints(2, 3, 4)], {}), {"BroadcastTo": "x Int64[2,3,4]"}),
    "PadV3": (
        ("Pad", [_normal(2, 3, 4), ints(0, 3, 1, 0, 4, 2)], {}),
        {"PadV3": "x Int64[1,2,3,4] Float32:0.0; x Int64[-1,-2,-3,-4] Float32:0.0"},
    ),
    "PadV3_reflect": (
        ("Pad", [_normal(2, 3, 4), ints(0, 0, 1, 0, 0, 1)], {"mode": "reflect"}),
        {"PadV3": "x Int64[1,1]", "PadV3Grad": "x Int64[1,1]"},
    ),
    "Gather": (
        ("Gather", [_ROWS, ints(0, 2)], {"axis": 1}),
        {"Gather": "x Int64[0,2] Int64:1 Int64:0", "UnsortedSegmentSum": "x Int64[0,2]"},
    ),
    "GatherD": (
        ("GatherElements", [_ROWS, np.zeros((3, 2), np.int64)], {"axis": 1}),
        {"GatherD": "x Int64:1 Int64[0,0,0,0,0,0]", "GatherDGradV2": "x Int64:1 Int64[0,0,0,0,0,0] x"},
    ),
    "TopK": (("TopK", [_ROWS, ints(2)], {}, 2), {"TopK": "x Int32:2"}),
    "ReduceSum": (("ReduceSum", [_ROWS, ints(1)], {}), {"ReduceSum": "x Int64[1] Bool:True Bool:False"}),
    "ReduceMean_of_all": (("ReduceMean", [_ROWS], {"keepdims": 0}), {"ReduceMean": "x Int64[] Bool:False"}),
    "ReduceMax": (
        ("ReduceMax", [_ROWS, ints(1)], {"keepdims": 0}),
        {"ReduceMax": "x Int64[1] Bool:False", "ReduceSum": "x Int64[1] Bool:True Bool:False"},
    ),
    "CumSum": (
        ("CumSum", [_ROWS, np.array(1)], {"exclusive": 1}),
        {"CumSum": "x Int64:1 Bool:True Bool:False; x Int64:1 Bool:True Bool:True"},
    ),
    "LayerNorm": (
        ("LayerNormalization", [_ROWS, _normal(4), _normal(4)], {"epsilon": 0.5}),
        {"LayerNorm": "x x x Int64:-1 Int64:-1 Float32:0.5", "LayerNormGrad": "x x x x x Int64:-1 Int64:-1"},
    ),
    "TensorScatterElements": (
        ("ScatterElements", [_ROWS, np.zeros((3, 1), np.int64), _normal(3, 1)], {"axis": 1}),
        {"TensorScatterElements": "x Int64[0,0,0] x Int64:1 Int64:0; x Int64[0,0,0] x Int64:1 Int64:0"},
    ),
    "Triu": (("Trilu", [_ROWS], {}), {"Triu": "x Int64:0; x Int64:0"}),
    "Tril": (("Trilu", [_ROWS, np.array(1)], {"upper": 0}), {"Tril": "x; x"}),
    "ResizeNearestNeighborV2": (
        (
            "Resize",
            [_normal(1, 2, 3, 3), None, None, ints(1, 2, 6, 6)],
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"},
        ),
        {
            "ResizeNearestNeighborV2": "x Int64[6,6] Bool:False Bool:False",
            "ResizeNearestNeighborV2Grad": "x Int64[3,3] Bool:False Bool:False",
        },
    ),
    "ResizeBilinearV2": (
        ("Resize", [_normal(1, 2, 3, 3), None, None, ints(1, 2, 6, 6)], {"mode": "linear"}),
        {"ResizeBilinearV2": "x - Bool:False Bool:True", "ResizeBilinearGrad": "x x Bool:False Bool:True"},
    ),
    "UpsampleNearest3D": (
        ("Resize", [_normal(1, 2, 2, 2, 2), None, None, ints(1, 2, 4, 4, 4)], {"mode": "nearest"}),
        {"UpsampleNearest3D": "x", "UpsampleNearest3DGrad": "x Int64[1,2,2,2,2]"},
    ),
    "UpsampleTrilinear3D": (
        ("Resize", [_normal(1, 2, 2, 2, 2), None, None, ints(1, 2, 4, 4, 4)], {"mode": "linear"}),
        {
            "UpsampleTrilinear3D": "x - - Bool:False",
            "UpsampleTrilinear3DGrad": "x Int64[1,2,2,2,2] - - Bool:False",
        },
    ),
}
"""By name, arguments of ``one_operator`` and, by type, the inputs of operators as ``_text`` writes them."""


def _constants(step):
    """Return the constants of a step graph by name."""
    arrays = {
        node.output[0]: numpy_helper.to_array(attribute.t)
        for node in step.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
    }
    return arrays | {
        item.name: numpy_helper.to_array(item)
        for item in step.graph.initializer
        if item.data_type in {6, 7, 9}  # integers and Bool: no weights
    }


def _text(node, constants):
    """Return the inputs of an operator: ``x``, a tensor, ``-``, none, ``Int64:1``, ``Int64[2,2]``."""
    texts = []
    for name in node.input:
        array = constants.get(name)
        if array is None:
            texts.append("x" if name else "-")
        else:
            dtype = str(array.dtype).capitalize()
            items = ",".join(str(item) for item in array.reshape(-1).tolist())
            texts.append(f"{dtype}[{items}]" if array.ndim else f"{dtype}:{items}")
    return " ".join(texts)


@pytest.mark.parametrize("name", CASES)
def test_constant_inputs(name):
    """Operators of a step have MindSpore's constants in its slots, of its types and ranks."""
    arguments, expected = CASES[name]

    step = step_graph(one_operator(*arguments), WEIGHTED)

    constants = _constants(step)
    texts = dict.fromkeys(expected, "")
    for node in step.graph.node:
        kind = node.name.rpartition("/")[2].partition("_")[0]
        if kind in texts and "_loss_fn" not in node.name:
            texts[kind] += "; " * bool(texts[kind]) + _text(node, constants)
    assert expected == texts


def test_dumped_constants(tmp_path):
    """A dump on CPU has a file for each constant input, none for an input that kernels do not read."""
    arguments, _ = CASES["AvgPool"]
    step = step_graph(one_operator(*arguments), WEIGHTED)

    with opened(tmp_path) as door:
        door.dump(step, {"inputs0": label(step)}, net_name="Net", naming="2.7")
        _, _, files = dumped(door.rank)

    slots = {
        name.partition(".")[0]: inputs for name, inputs in files["0/0"].items() if name.startswith("AvgPool")
    }
    window = [[2, 2], [2, 2], 2, 0]
    assert window == [slots["AvgPool"][f"input.{slot}"].tolist() for slot in range(1, 5)]
    assert window == [slots["AvgPoolGrad"][f"input.{slot}"].tolist() for slot in range(3, 7)]
    assert {"AvgPool": 6, "AvgPoolGrad": 8} == {kind: len(inputs) for kind, inputs in slots.items()}
