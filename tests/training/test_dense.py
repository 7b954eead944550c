"""Gradients of dense layers against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, check, one_operator, outputs_of

_RNG = np.random.default_rng(3)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


CASES = {
    "Gemm": (("Gemm", [_normal(3, 4), _normal(4, 5), _normal(5)], {}), (3, 5)),
    "Gemm_transposed": (
        (
            "Gemm",
            [_normal(4, 3), _normal(5, 4), _normal(5)],
            {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
        ),
        (3, 5),
    ),
    "Gemm_without_bias": (("Gemm", [_normal(3, 4), _normal(5, 4)], {"transB": 1}), (3, 5)),
    "MatMul": (("MatMul", [_normal(3, 4), _normal(4, 5)], {}), (3, 5)),
    "MatMul_weight": (("MatMul", [_normal(2, 3, 4), _normal(4, 5)], {}), (2, 3, 5)),
    "MatMul_stacks": (("MatMul", [_normal(2, 3, 4), _normal(2, 4, 5)], {}), (2, 3, 5)),
    "MatMul_broadcast": (("MatMul", [_normal(2, 1, 3, 4), _normal(5, 4, 2)], {}), (2, 5, 3, 2)),
    "MatMul_matrix_and_stack": (("MatMul", [_normal(3, 4), _normal(2, 4, 5)], {}), (2, 3, 5)),
    "MatMul_one_and_stack": (("MatMul", [_normal(1, 3, 4), _normal(2, 4, 5)], {}), (2, 3, 5)),
    "MatMul_vector_left": (("MatMul", [_normal(4), _normal(4, 5)], {}), (5,)),
    "MatMul_vector_right": (("MatMul", [_normal(3, 4), _normal(4)], {}), (3,)),
    "MatMul_vectors": (("MatMul", [_normal(4), _normal(4)], {}), ()),
    "MatMul_stack_and_vector": (("MatMul", [_normal(2, 3, 4), _normal(4)], {}), (2, 3)),
    "MatMul_vector_and_stack": (("MatMul", [_normal(4), _normal(2, 4, 3)], {}), (2, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)


def _layer(shape, weight, *, transposed=False, bias=False):
    """Return a product of an input with a weight, transposed by an operator of its own, and a bias."""
    nodes, read = [], "w"
    initializers = {"w": _normal(*weight)}
    if transposed:
        nodes.append(helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0], name="fc/Transpose"))
        read = "turned"
    nodes.append(helper.make_node("MatMul", ["x", read], ["h" if bias else "y"], name="fc/MatMul"))
    size = weight[0] if transposed else weight[1]
    if bias:
        initializers["b"] = _normal(size)
        nodes.append(helper.make_node("Add", ["h", "b"], ["y"], name="fc/Add"))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info("y", 1, [*shape[:-1], size])],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


_DENSE = ["Reshape", "MatMul", "BiasAdd", "Reshape"]
LAYERS = {
    "bias": (_layer([2, 3, 4], (4, 5), bias=True), _DENSE),
    "linear": (_layer([2, 3, 4], (5, 4), transposed=True, bias=True), _DENSE),
    "linear_without_bias": (_layer([2, 3, 4], (5, 4), transposed=True), ["Reshape", "MatMul", "Reshape"]),
    "matrix": (_layer([3, 4], (5, 4), transposed=True, bias=True), ["MatMul", "BiasAdd"]),
    "matmul": (_layer([2, 3, 4], (4, 5)), ["Expand", "BatchMatMul"]),
    "free_batch": (_layer(["n", 3, 4], (5, 4), transposed=True, bias=True), _DENSE),
    "free_sizes": (
        _layer(["n", "m", 4], (5, 4), transposed=True, bias=True),
        ["Transpose", "BatchMatMul", "Add"],
    ),
    "free_matmul": (_layer(["n", "m", 4], (4, 5)), ["BatchMatMul"]),
    "large_weight": (_layer([2, 3, 1024], (1024, 3000)), ["BatchMatMul"]),
}


@pytest.mark.parametrize("case", LAYERS)
def test_layers(case):
    """A dense layer is MindSpore's in types, and its gradients are right with free sizes, too."""
    model, types = LAYERS[case]
    width = model.graph.input[0].type.tensor_type.shape.dim[-1].dim_value
    batch = (3,) if len(model.graph.input[0].type.tensor_type.shape.dim) == 2 else (2, 3)
    weight = numpy_helper.to_array(model.graph.initializer[0])
    is_turned = model.graph.node[0].op_type == "Transpose"
    x, dy = _normal(*batch, width), _normal(*batch, weight.shape[0 if is_turned else 1])

    step = step_graph(model, WEIGHTED)

    forward = [node.op_type for node in step.graph.node if node.name.startswith("Default/network-WithLoss")]
    assert types == forward[: len(types)]
    bindings = {entry.key: entry.value for entry in step.training_info[0].update_binding}
    names = [name for name in ("moments.w", "moments.b") if name in bindings]
    gradients = dict(
        zip(
            names,
            outputs_of(step, [bindings[name] for name in names], {"inputs0": x, "inputs1": dy}),
            strict=True,
        )
    )
    dw = x.reshape(-1, width).T @ dy.reshape(-1, dy.shape[-1])
    np.testing.assert_allclose(dw.T if is_turned else dw, gradients["moments.w"], rtol=1e-4, atol=1e-5)
    if "moments.b" in gradients:
        np.testing.assert_allclose(
            dy.reshape(-1, dy.shape[-1]).sum(0), gradients["moments.b"], rtol=1e-4, atol=1e-5
        )
