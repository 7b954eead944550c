"""Gradients of images and volumes that are read at the places of a grid."""

import itertools

import numpy as np
import onnx
import pytest

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, one_operator

_RNG = np.random.default_rng(41)


def _case(sizes, mode, padding, align, opset=20):
    """Return a case of an image of some sizes that is read inside and outside, never at an edge of elements.

    An image is not smooth where places are whole or half numbers of elements.
    """
    x = _RNG.standard_normal((2, 2, *sizes)).astype(np.float32)
    extents = np.array(sizes[::-1])
    places = _RNG.integers(-2, extents + 1, (2, *(2,) * len(sizes), len(sizes)))
    places = places + _RNG.uniform(0.1, 0.4, places.shape)
    grid = 2 * places / (extents - 1) - 1 if align else (2 * places + 1) / extents - 1
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
    return "GridSample", [x, grid.astype(np.float32)], attributes, 1, opset


_PADDINGS = ("zeros", "border", "reflection")

CASES = {
    f"{len(sizes)}d_{mode}_{padding}_{align}": _case(sizes, mode, padding, align)
    for sizes, mode, padding, align in itertools.product(
        [(3, 4), (2, 3, 4)], ["nearest", "linear"], _PADDINGS, [0, 1]
    )
} | {"opset_18": _case((3, 4), "bilinear", "zeros", 0, 18)}

COVERED = {("", "GridSample")}


@pytest.mark.parametrize(("case", "rank"), [("2d_linear_border_1", 2), ("3d_nearest_reflection_0", 3)])
def test_slots(case, rank):
    """Forward and gradient are operators of MindSpore with inputs for the ways of reading."""
    step = step_graph(one_operator(*CASES[case]), WEIGHTED, trainable=["p1"])

    arrays = {
        node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t)
        for node in step.graph.node
        if node.op_type == "Constant"
    }
    slots = {
        node.op_type: [arrays[name].tolist() if name in arrays else name for name in node.input]
        for node in step.graph.node
        if node.op_type.startswith("GridSampler")
    }
    numbers = {2: [0, 1, True], 3: [1, 2, False]}[rank]
    assert slots == {
        f"GridSampler{rank}D": ["p0", "p1", *numbers],
        f"GridSampler{rank}DGrad": ["inputs0", "p0", "p1", *numbers, [0, 1]],
    }


def test_cubic():
    """MindSpore has no cubic interpolation: the operator stays as it is, and has no gradient."""
    op_type, arrays, attributes, *others = CASES["2d_linear_zeros_0"]

    with pytest.raises(GraphError, match="layer/GridSampler2D: the interpolation 'cubic' has no gradient"):
        step_graph(one_operator(op_type, arrays, attributes | {"mode": "cubic"}, *others), WEIGHTED)
