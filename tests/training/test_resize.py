"""Gradients of resizing against differences of onnxruntime's own results."""

import numpy as np
import pytest

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, one_operator

_RNG = np.random.default_rng(37)


def _resize(shape, result, scales=(), roi=(), **attributes):
    """Return a case: shapes of input and result; sizes take the place of scales where there are none."""
    x = _RNG.standard_normal(shape).astype(np.float32)
    sizes = None if scales else np.array([result[axis] for axis in attributes.get("axes", range(len(shape)))])
    given = np.array(scales, np.float32) if scales else None
    corners = np.array(roi, np.float32) if roi else None
    arrays = [x, corners, given] if scales else [x, corners, None, sizes]
    return "Resize", arrays, attributes


CASES = {
    "nearest": _resize((1, 2, 3, 3), (1, 2, 6, 6), (1, 1, 2, 2)),
    "nearest_sizes": _resize((2, 1, 3, 4), (2, 1, 5, 7)),
    "nearest_1d": _resize((2, 2, 5), (2, 2, 8)),
    "nearest_3d": _resize((1, 1, 2, 2, 3), (1, 1, 4, 4, 3), (1, 1, 2, 2, 1)),
    "linear": _resize((1, 2, 3, 4), (1, 2, 6, 8), (1, 1, 2, 2), mode="linear"),
    "linear_crop": _resize(
        (1, 1, 4, 5),
        (1, 1, 3, 4),
        roi=(0, 0, 0.2, 0.1, 1, 1, 0.7, 0.8),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=3.0,
    ),
    "linear_1d": _resize((2, 2, 5), (2, 2, 8), mode="linear"),
    "linear_3d": _resize((1, 1, 2, 3, 2), (1, 1, 4, 5, 3), mode="linear"),
    "cubic": _resize((1, 2, 4, 3), (1, 2, 8, 6), (1, 1, 2, 2), mode="cubic"),
}


NAMES = {
    "nearest": "ResizeNearestNeighborV2Grad",
    "linear": "ResizeBilinearGrad",
    "cubic": "ResizeBicubicGrad",
    "nearest_1d": "UpsampleNearest1DGrad",
    "nearest_3d": "UpsampleNearest3DGrad",
    "linear_1d": "UpsampleLinear1DGrad",
    "linear_3d": "UpsampleTrilinear3DGrad",
}


@pytest.mark.parametrize("case", NAMES)
def test_names(case):
    """The gradient has MindSpore's name."""
    step = step_graph(one_operator(*CASES[case]), WEIGHTED)

    assert NAMES[case] in {node.op_type for node in step.graph.node}


def test_kept_aspect_ratio():
    """A Resize that keeps the aspect ratio is refused."""
    op_type, arrays, _ = CASES["nearest_sizes"]

    with pytest.raises(GraphError, match="a kept aspect ratio has no gradient"):
        step_graph(one_operator(op_type, arrays, {"keep_aspect_ratio_policy": "not_larger"}), WEIGHTED)
