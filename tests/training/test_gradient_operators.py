"""Operators of gradients against MindSpore's own, written as calls: types, operands in their slots, order."""

import numpy as np
import onnx
import pytest

from msdump.training import step_graph
from tests.training.cells import in_cells
from tests.training.differences import WEIGHTED, number, one_operator

_X = np.array([[0.5, -1.5, 2.5], [1.25, 0.75, -0.25]], np.float32)
_Y = np.array([[1.5, 0.5, 2.5], [-1.25, 2.0, 0.5]], np.float32)
_ROW = np.array([1.5, -0.5, 2.0], np.float32)
_CHOICE = np.array([[True], [False]])
_ROOT = float(np.float32(2 / np.sqrt(np.pi)))

_CALLS = {
    "abs": (("Abs", [_X], {}), "Sign(x) Mul(dy, Sign)"),
    "exp": (("Exp", [_X], {}), "Mul(dy, y)"),
    "reciprocal": (("Reciprocal", [_X], {}), "Neg(dy) Mul(y, y) Mul(Neg, Mul)"),
    "selu": (("Selu", [_X], {"alpha": 1.5, "gamma": 2.0}), "EluGrad(dy, y) Mul(EluGrad, 2.0)"),
    "silu": (
        ("Swish", [_X], {}, 1, 24),
        "Sigmoid(x) Mul(x, dy) Mul(Sigmoid, dy) SigmoidGrad(Sigmoid, Mul) Add(SigmoidGrad, Mul)",
    ),
    "sin": (("Sin", [_X], {}), "Cos(x) Mul(dy, Cos)"),
    "cos": (("Cos", [_X], {}), "Sin(x) Neg(Sin) Mul(dy, Neg)"),
    "tan": (("Tan", [_X], {}), "Square(y) Add(1.0, Square) Mul(dy, Add)"),
    "sinh": (("Sinh", [_X], {}), "Cosh(x) Mul(Cosh, dy)"),
    "cosh": (("Cosh", [_X], {}), "Sinh(x) Mul(Sinh, dy)"),
    "atanh": (("Atanh", [_X / 3], {}), "Square(x) Sub(1.0, Square) Div(dy, Sub)"),
    "erf": (("Erf", [_X], {}), f"Mul(dy, {_ROOT}) Pow(x, 2.0) Neg(Pow) Exp(Neg) Mul(Mul, Exp)"),
    "softsign": (("Softsign", [_X], {}), "Abs(x) Add(1.0, Abs) Square(Add) Div(1.0, Square) Mul(dy, Div)"),
    "mul_by_number": (("Mul", [_X, number(0.5)], {}), "Mul(dy, 0.5)"),
    "mul_of_number": (("Mul", [number(0.5), _X], {}), "Mul(0.5, dy)"),
    "mul_by_row": (("Mul", [_X, _ROW], {}), "Mul(p1, dy) Mul(x, dy) ReduceSum(Mul, [0], False, False)"),
    "div": (("Div", [_X, _Y], {}), "Div(dy, p1) Neg(dy) Div(y, p1) Mul(Neg, Div)"),
    "pow_of_number": (("Pow", [_X, number(3)], {}), "Pow(x, 2.0) Mul(Pow, 3.0) Mul(dy, Mul)"),
    "max": (
        ("Max", [_X, _Y], {}),
        (
            "Equal(x, p1) Div(dy, 2.0) Select(Equal, Div, dy) FillV2([2, 3], 0.0)"
            " Less(x, p1) Select(Less, FillV2, Select) Greater(x, p1) Select(Greater, FillV2, Select)"
        ),
    ),
    "min_of_number": (
        ("Min", [_X, number(1)], {}),
        (
            "Equal(x, 1.0) Div(dy, 2.0) Select(Equal, Div, dy) FillV2([2, 3], 0.0)"
            " Greater(x, 1.0) Select(Greater, FillV2, Select)"
        ),
    ),
    "where": (
        ("Where", [_CHOICE, _X, _Y], {}),
        "ZerosLike(dy) Select([[True], [False]], dy, ZerosLike) Select([[True], [False]], ZerosLike, dy)",
    ),
    "softmax": (
        ("Softmax", [_X], {"axis": 1}),
        "Mul(y, dy) ReduceSum(Mul, [-1], True, False) Sub(dy, ReduceSum) Mul(y, Sub)",
    ),
    "softmax_of_columns": (
        ("Softmax", [_X], {"axis": 0}),
        (
            "Transpose(y) Transpose(dy) Mul(Transpose, Transpose) ReduceSum(Mul, [-1], True, False)"
            " Sub(Transpose, ReduceSum) Mul(Transpose, Sub) Transpose(Mul)"
        ),
    ),
    "reduce_max": (
        ("ReduceMax", [_X, np.array([1])], {"keepdims": 1}),
        "Equal(y, x) Cast(Equal) ReduceSum(Cast, [1], True, False) Div(dy, ReduceSum) Mul(Div, Cast)",
    ),
    "tile": (("Tile", [_X, np.array([1, 2])], {}), "Reshape(dy) ReduceSum(Reshape, [0, 2], False, False)"),
    "top_k": (
        ("TopK", [_X, np.array([2])], {}, 2),
        "Add(y1, [[0], [3]]) Reshape(Add) Reshape(dy) ScatterNd(Reshape, Reshape) Reshape(ScatterNd)",
    ),
    "top_k_of_columns": (
        ("TopK", [_X, np.array([2])], {"axis": 0}, 2),
        (
            "Transpose(y1) Transpose(dy) Add(Transpose, [[0], [2], [4]]) Reshape(Add) Reshape(Transpose)"
            " ScatterNd(Reshape, Reshape) Reshape(ScatterNd) Transpose(Reshape)"
        ),
    ),
    "scatter_elements_add": (
        ("ScatterElements", [_X, np.array([[0, 2]]), _Y[:1, :2]], {"axis": 1, "reduction": "add"}),
        "ZerosLike(p2) TensorScatterElements(dy, [[0, 2]], ZerosLike, 1, 1) GatherD(dy, 1, [[0, 2]])",
    ),
    "scatter_max": (
        ("ScatterND", [_X, np.array([[1]]), _Y[:1]], {"reduction": "max"}),
        (
            "Equal(x, y) Cast(Equal) GatherNd(y, [[1]]) Equal(p2, GatherNd) Cast(Equal)"
            " ScatterNd([[1]], Cast) Add(Cast, ScatterNd) Cast(Add) Cast(Cast) Mul(dy, Cast)"
            " RealDiv(Mul, Cast) RealDiv(dy, Cast) GatherNd(RealDiv, [[1]]) Cast(Cast) Mul(GatherNd, Cast)"
        ),
    ),
    "norm": (
        ("ReduceL2", [_X, np.array([0, 1])], {"keepdims": 0}),
        (
            "ExpandDims(dy) ExpandDims(ExpandDims) ExpandDims(y) ExpandDims(ExpandDims)"
            " RealDiv(ExpandDims, ExpandDims) Mul(x, RealDiv)"
        ),
    ),
    "pad": (("Pad", [_X, np.array([0, 1, 0, 2])], {}), "PadV3(dy, [-1, -2], 0.0)"),
    "resize_rows": (
        ("Resize", [_X.reshape(1, 2, 3), None, None, np.array([1, 2, 6])], {}),
        "UpsampleNearest1DGrad(dy, [1, 2, 3])",
    ),
    "resize_images": (
        ("Resize", [_X.reshape(1, 1, 2, 3), None, None, np.array([1, 1, 2, 6])], {}),
        "ResizeNearestNeighborV2Grad(dy, [2, 3], False, True)",
    ),
    "gather_elements": (
        ("GatherElements", [_X, np.array([[0, 2]])], {"axis": 1}),
        "GatherDGradV2(x, 1, [[0, 2]], dy)",
    ),
}
"""MindSpore's rules. Operands are x and p1, results y and y1; dy is the gradient of the first result.

A type stands for the result of the last operator of this type.
"""


def _calls(step):
    """Return the operators of the gradients of the model's own operators as calls."""
    # the labels of the weighted loss are the gradient of the result
    titles = {"p0": "x", "y0": "y", "inputs0": "dy"}
    for node in step.graph.node:
        scope, _, name = node.name.rpartition("/")
        primitive = name.partition("_")[0]
        if node.op_type == "Constant":
            titles[node.output[0]] = str(onnx.numpy_helper.to_array(node.attribute[0].t).tolist())
        elif "/Grad_" in scope:
            yield f"{primitive}({', '.join(titles.get(name, name) for name in node.input)})"
            titles[node.output[0]] = primitive


@pytest.mark.parametrize("case", _CALLS)
def test_calls(case):
    """The gradient of an operator is composed of the operators that MindSpore composes it of."""
    arguments, expected = _CALLS[case]

    assert " ".join(_calls(step_graph(one_operator(*arguments), WEIGHTED))) == expected


_TWICE = """twice (float[2,3] x) => (float[2,3] y) {
    ["fc-Dense"] h = MatMul(x, w)
    ["fc-Dense"] y = MatMul(h, w)
}"""


@pytest.mark.parametrize(("decay", "added"), [(0.0, []), (0.5, ["optimizer.Mul"])])
def test_sums_of_sums(decay, added):
    """The gradients of a layer that is used twice and the product of the weight decay are one sum."""
    model = in_cells(_TWICE, "Net", w=np.eye(3, dtype=np.float32))

    step = step_graph(model, "mse", f"momentum:0.1,0.9,weight_decay={decay}")

    sums = [list(node.input) for node in step.graph.node if node.op_type == "Sum"]
    assert sums == [[*added, "Grad_MatMul.MatMul_2", "Grad_MatMul.MatMul_1"]]


_READ_TWICE = """sums (float[2,3] x) => (float[2,3] y) {
    a = Sum(x, w, v)
    b = Sum(a, a)
    c = Sum(w, b)
    y = Sum(v, c, x)
}"""


def test_sums_that_stay():
    """A sum with two readers stays, and so does a sum that is an operand in the middle."""
    weights = {name: np.ones((2, 3), np.float32) for name in "wv"}

    step = step_graph(in_cells(_READ_TWICE, "Net", **weights), "mse")

    forward = [
        list(node.input) for node in step.graph.node if "_backbone" in node.name.partition("Gradients")[0]
    ]
    assert forward == [["inputs0", "w", "v"], ["w", "a", "a"], ["v", "c", "inputs0"]]


_ALIKE = """alike (float[2,3] x) => (float[2,3] y) {
    ["a-Dense"] a = Gemm(x, w, b)
    ["b-Dense"] c = Gemm(x, v, d)
    s = Mul(a, a)
    y = Add(s, c)
}"""

_LAYERS = {name: np.ones((3, 3) if name in "wv" else 3, np.float32) for name in "wbvd"}


def test_equal_gradients():
    """Gradient operators of one type that read the same values are one operator with two readers."""
    products = [
        list(node.input)
        for node in step_graph(in_cells(_ALIKE, "Net", **_LAYERS), "mse").graph.node
        if "/Grad_Mul/" in node.name
    ]

    assert products == [["a", "Grad_Square.Mul_1"]]


def test_equal_gradients_of_biases():
    """Two biases that are added to one tensor have one gradient."""
    model = in_cells(_ALIKE.replace("s = Mul(a, a)", "s = Identity(a)"), "Net", **_LAYERS)

    step = step_graph(model, "mse")

    updates = [node.input[3] for node in step.graph.node if node.op_type == "ApplyMomentum"]
    assert updates[0] == updates[2]
    assert sum("BiasAddGrad" in node.name for node in step.graph.node) == 1
