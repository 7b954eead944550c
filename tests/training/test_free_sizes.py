"""Gradients of models whose batch has any size: what one step gives, that of a fixed size gives."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, outputs_of

_RNG = np.random.default_rng(17)
_WEIGHT = _RNG.uniform(0.2, 0.9, (1, 4)).astype(np.float32)
_ROW = _RNG.uniform(0.5, 1.5, 4).astype(np.float32)
_BATCH = 5


def _axes(*axes: int) -> np.ndarray:
    return np.array(axes, np.int64)


_UNARY = (
    "Exp",
    "Sqrt",
    "Tanh",
    "Erf",
    "Relu",
    "Gelu",
    "HardSwish",
    "Mish",
    "Selu",
    "Identity",
    "Softmax",
    "LogSoftmax",
)
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_FORMS = {
    "batch": ([_axes(0)], {"keepdims": 0}),
    "last": ([_axes(-1)], {"keepdims": 0}),
    "last_kept": ([_axes(-1)], {}),
    "both": ([_axes(0, 2)], {"keepdims": 0}),
    "all": ([], {"keepdims": 0}),
}
MODELS = {
    **{op_type: (op_type, [], {}) for op_type in _UNARY},
    **{op_type: (op_type, [_ROW], {}) for op_type in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "PRelu")},
    "Clip": ("Clip", [np.array(0.3, np.float32), np.array(0.6, np.float32)], {}),
    "CumSum": ("CumSum", [np.array(0, np.int64)], {}),
    "Softmax_of_batch": ("Softmax", [], {"axis": 0}),
    "ReduceProd_last": ("ReduceProd", [_axes(1, 2)], {"keepdims": 0}),
    **{
        f"{op_type}_{form}": (op_type, axes, attributes)
        for op_type in _REDUCTIONS
        for form, (axes, attributes) in _FORMS.items()
    },
}


_SIZES = {"N": _BATCH, "S": 3}


def _model(
    names: tuple[str, ...], op_type: str, arrays: list[np.ndarray], attributes: dict[str, object]
) -> onnx.ModelProto:
    """Return a model with an operator behind a product of a batch and a weight; some sizes have names."""
    nodes = [
        helper.make_node("Mul", ["x", "weight"], ["product"]),
        helper.make_node(
            op_type, ["product", *(f"p{slot}" for slot in range(len(arrays)))], ["y"], **attributes
        ),
    ]
    weights = [numpy_helper.from_array(array, f"p{slot}") for slot, array in enumerate(arrays)]
    graph = helper.make_graph(
        nodes,
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*names, *(_BATCH, 3, 4)[len(names) :]])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(_WEIGHT, "weight"), *weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _gradients(step: onnx.ModelProto, shape: tuple[int, ...]) -> list[np.ndarray]:
    bindings = {entry.key: entry.value for entry in step.training_info[0].update_binding}
    names = [value for key, value in bindings.items() if key.startswith("moments.")]
    rng = np.random.default_rng(3)
    feeds = {"inputs0": rng.uniform(0.5, 1.0, (_BATCH, 3, 4)), "inputs1": rng.uniform(0.5, 1.5, shape)}
    return outputs_of(step, names, {name: array.astype(np.float32) for name, array in feeds.items()})


@pytest.mark.parametrize("names", [("N",), ("N", "S")], ids=["one", "two"])
@pytest.mark.parametrize("case", sorted(set(MODELS) - {"ReduceProd_last"}))
def test_batch_of_any_size(case, names):
    """A step for any size of the batch gives the gradients of the step for this size."""
    model = _model(names, *MODELS[case])
    fixed = step_graph(model, WEIGHTED, sizes=_SIZES)
    shape = tuple(size.dim_value for size in fixed.graph.input[1].type.tensor_type.shape.dim)

    free = step_graph(model, WEIGHTED)

    assert (
        list(names)
        == [size.dim_param for size in free.graph.input[0].type.tensor_type.shape.dim][: len(names)]
    )
    for expected, gradient in zip(_gradients(fixed, shape), _gradients(free, shape), strict=True):
        np.testing.assert_allclose(expected, gradient, rtol=1e-5, atol=1e-6)


def test_product_over_a_free_size_is_refused():
    """A product needs the sizes of the axes that it reduces, and says so."""
    model = _model(("N", "S"), *MODELS["ReduceProd_last"])

    with pytest.raises(GraphError, match="its gradient needs fixed sizes"):
        step_graph(model, WEIGHTED)

    assert step_graph(model, WEIGHTED, sizes={"S": 3}).graph.node
