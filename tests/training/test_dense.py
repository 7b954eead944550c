"""Gradients of dense layers against numerical differences."""

import numpy as np
import pytest
from onnx import numpy_helper

from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED, gradients_of, normals

_RNG = np.random.default_rng(3)


_normal = normals(_RNG)


def _layer(shape, weight, *, transposed=False, bias=False):
    """Return a product of an input with a weight, transposed by an operator of its own, and a bias."""
    read, size = ("turned", weight[0]) if transposed else ("w", weight[1])
    rows = ",".join(map(str, shape[:-1]))
    lines = [
        "[Transpose] turned = Transpose<perm = [1, 0]>(w)" if transposed else "",
        f"[MatMul] {'h' if bias else 'y'} = MatMul(x, {read})",
        "[Add] y = Add(h, b)" if bias else "",
    ]
    arrays = {"w": _normal(*weight)} | ({"b": _normal(size)} if bias else {})
    model = parsed(
        f"net (float[{rows},{shape[-1]}] x) => (float[{rows},{size}] y) {{ {' '.join(lines)} }}", **arrays
    )
    for node in model.graph.node:
        node.name = f"fc/{node.name}"
    return model


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
    gradients = gradients_of(step, {"inputs0": x, "inputs1": dy})
    dw = x.reshape(-1, width).T @ dy.reshape(-1, dy.shape[-1])
    np.testing.assert_allclose(dw.T if is_turned else dw, gradients["w"], rtol=1e-4, atol=1e-5)
    if "b" in gradients:
        np.testing.assert_allclose(dy.reshape(-1, dy.shape[-1]).sum(0), gradients["b"], rtol=1e-4, atol=1e-5)
