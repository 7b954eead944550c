"""Gradients of models with axes of any size: they equal the gradients of a step of fixed sizes."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, gradients_of, ints, label, number, one_operator
from tests.training.tables import operator_cases

_RNG = np.random.default_rng(17)
_X = _RNG.uniform(0.2, 0.9, (5, 3, 4)).astype(np.float32)
_ROW = _RNG.uniform(0.5, 1.5, 4).astype(np.float32)
_NAMES = ("N", "S")


_UNARY = ("Exp", "Sqrt", "Tanh", "Erf", "Relu", "Gelu", "HardSwish", "Mish", "Selu", "Identity", "Softmax")
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_FORMS = {
    "batch": ([ints(0)], {"keepdims": 0}),
    "last": ([ints(-1)], {"keepdims": 0}),
    "last_kept": ([ints(-1)], {}),
    "both": ([ints(0, 2)], {"keepdims": 0}),
    "all": ([], {"keepdims": 0}),
}
_PRODUCT = ("ReduceProd", [_X, ints(1, 2)], {"keepdims": 0})
_CASES = {
    **{op_type: (op_type, [_X], {}) for op_type in (*_UNARY, "LogSoftmax")},
    **{op_type: (op_type, [_X, _ROW], {}) for op_type in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "PRelu")},
    "Clip": ("Clip", [_X, number(0.3), number(0.6)], {}),
    "CumSum": ("CumSum", [_X, np.array(0, np.int64)], {}),
    "Softmax_of_batch": ("Softmax", [_X], {"axis": 0}),
    **{f"TopK_{axis}": ("TopK", [_X, ints(2)], {"axis": axis}, 2) for axis in range(3)},
    **{
        f"{op_type}_{form}": (op_type, [_X, *axes], attributes)
        for op_type in _REDUCTIONS
        for form, (axes, attributes) in _FORMS.items()
    },
}
_LAYERS = [
    *(f"convolutions-CASES-{name}" for name in ("2d", "2d_same_upper", "2d_strides_leave_rows")),
    *(f"convolutions-TRANSPOSED-{name}" for name in ("2d_output_shape", "3d")),
    *(f"convolutions-POOLING-{name}" for name in ("max_2d_ceil", "average_2d_pads", "average_3d")),
    *(f"convolutions-POOLING-global_{name}" for name in ("average_2d", "average_1d", "max_3d")),
    *(f"normalization-CASES-{name}" for name in ("last_axis", "without_shift", "broadcast_scale")),
    *(f"normalization-BY_RUNTIME-{name}" for name in ("group", "lrn")),
    *(f"resize-CASES-{name}" for name in ("nearest", "nearest_sizes", "linear_3d", "linear_crop")),
    *(f"grid_sample-CASES-{name}" for name in ("2d_linear_border_0", "3d_nearest_zeros_1")),
    *(f"attention-CASES-{name}" for name in ("heads", "side_by_side_grouped_causal", "float_mask")),
]


def _freed(model, names):
    """Return a model with an input times a trained number as first parameter, and values of the input."""
    x = numpy_helper.to_array(model.graph.initializer[0])
    gain = np.ones((1,) * x.ndim, np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(gain, "gain"))
    shape = [*names, *x.shape[len(names) :]]
    model.graph.input.append(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape))
    model.graph.node.insert(0, helper.make_node("Mul", ["x", "gain"], ["p0"], name="scaling"))
    return model, x


@pytest.mark.parametrize(
    ("case", "names"),
    [(case, _NAMES[:1]) for case in (*_CASES, *_LAYERS)] + [(case, _NAMES) for case in _CASES],
    ids=str,
)
def test_gradients(case, names):
    """A step for any size of the batch gives the gradients of the step for this size."""
    model, x = _freed(one_operator(*(_CASES.get(case) or operator_cases()[case])), names)
    fixed = step_graph(model, WEIGHTED, sizes={name: x.shape[axis] for axis, name in enumerate(names)})
    weights = np.random.default_rng(7).uniform(0.5, 1.5, label(fixed, 1).shape).astype(np.float32)
    feeds = {"inputs0": x, "inputs1": weights}

    free = step_graph(model, WEIGHTED)

    shape = [size.dim_param for size in free.graph.input[0].type.tensor_type.shape.dim]
    assert list(names) == shape[: len(names)]
    expected, gradients = gradients_of(fixed, feeds), gradients_of(free, feeds)
    assert expected.keys() == gradients.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(expected[name], gradient, rtol=1e-5, atol=1e-6, err_msg=name)


def test_product_over_a_free_size_is_refused():
    """A product needs the sizes of the axes that it reduces, and says so."""
    model, _ = _freed(one_operator(*_PRODUCT), _NAMES)

    with pytest.raises(GraphError, match="its gradient needs fixed sizes"):
        step_graph(model, WEIGHTED)

    assert step_graph(model, WEIGHTED, sizes={"S": 3}).graph.node
