"""Gradients of layers whose batch is of free size."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from msdump.training import step_graph
from tests.training import test_attention, test_convolutions, test_layer_norm, test_pooling, test_resize
from tests.training.differences import WEIGHTED, analytic, one_operator, outputs_of

CASES = {
    f"{module.__name__.rpartition('_')[2]}_{case}": table[case]
    for module, table, cases in (
        (test_convolutions, test_convolutions.CASES, ("2d", "2d_same_upper", "2d_strides_leave_rows")),
        (test_convolutions, test_convolutions.TRANSPOSED, ("2d_output_shape", "3d")),
        (test_pooling, test_pooling.CASES, ("max_2d_ceil", "average_2d_pads", "average_3d", "lp_1d")),
        (test_pooling, test_pooling.CASES, ("global_average_2d", "global_average_1d", "global_max_3d")),
        (test_layer_norm, test_layer_norm.CASES, ("last_axis", "without_shift", "broadcast_scale")),
        (test_layer_norm, test_layer_norm.BY_RUNTIME, ("group", "lrn")),
        (test_resize, test_resize.CASES, ("nearest", "nearest_sizes", "linear_3d", "linear_crop")),
        (test_attention, test_attention.CASES, ("heads", "side_by_side_grouped_causal", "float_mask")),
    )
    for case in cases
}


def _freed(model: onnx.ModelProto, x: np.ndarray) -> onnx.ModelProto:
    """Return a model whose first parameter, scaled by one that is trained, is an input of free batch."""
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    freed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((1,) * x.ndim, np.float32), "gain"))
    freed.graph.input.append(helper.make_tensor_value_info("x", 1, ["batch", *x.shape[1:]]))
    freed.graph.node.insert(0, helper.make_node("Mul", ["x", "gain"], ["p0"], name="scaling"))
    return freed


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """They are those of a batch of known size."""
    arguments, shape = CASES[case]
    model = one_operator(*arguments)
    x = numpy_helper.to_array(model.graph.initializer[0])
    weights = np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)
    expected = analytic(model, weights)

    step = step_graph(_freed(model, x), WEIGHTED, "momentum:0.0,0.9")

    bindings = {entry.key: entry.value for entry in step.training_info[0].update_binding}
    names = [name for name in bindings if name.startswith("moments.")]
    feeds = {"inputs0": x, "inputs1": weights}
    arrays = outputs_of(step, [bindings[name] for name in names], feeds)
    gradients = {name.removeprefix("moments."): array for name, array in zip(names, arrays, strict=True)}
    expected["gain"] = np.sum(expected.pop("p0") * x).reshape((1,) * x.ndim)
    assert expected.keys() == gradients.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(expected[name], gradient, rtol=1e-4, atol=1e-4, err_msg=name)
