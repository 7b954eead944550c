"""Training with ONNX's own operator for gradients, Gradient."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import msdump
from msdump.errors import GraphError, UnsupportedOpError

RATE = np.float32(0.1)


def _model(algorithm, binding):
    """Return a model of a dense layer with an algorithm in text form."""
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>
        net (float[3,2] x) => (float[3,4] y)
            <float[2,4] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[4] b = {0.5, 0.5, 0.5, 0.5}> {
            [product] p = MatMul(x, w)
            [bias] y = Add(p, b)
        }""")
    training = model.training_info.add()
    training.algorithm.CopyFrom(parser.parse_graph(algorithm))
    for name, value in binding.items():
        training.update_binding.add(key=name, value=value)
    return model


DESCENT = """algorithm (float[3,4] target) => (float loss, float[2,4] w_new, float[4] b_new, int64 n_new)
    <float rate = {0.1}, int64 n = {0}, int64 one = {1}> {
    [difference] d = Sub(y, target)
    [square] s = Mul(d, d)
    [loss] loss = ReduceSum<keepdims = 0>(s)
    [gradient] dw, db = ai.onnx.preview.training.Gradient
        <xs = ["w", "b"], zs = ["x", "target"], y = "loss">(w, b, x, target)
    [wstep] wr = Mul(dw, rate)
    [bstep] br = Mul(db, rate)
    [wnew] w_new = Sub(w, wr)
    [bnew] b_new = Sub(b, br)
    [count] n_new = Add(n, one)
}"""
BINDING = {"w": "w_new", "b": "b_new", "n": "n_new"}


def test_steps(tmp_path):
    """Steps follow the gradient as numpy computes it, and count."""
    path = tmp_path / "net.onnx"
    onnx.save(_model(DESCENT, BINDING), path)
    network = msdump.load(path)
    generator = np.random.default_rng(0)
    w, b = (network.state()[name].astype(np.float64) for name in "wb")

    for step in range(3):
        x = generator.standard_normal((3, 2)).astype(np.float32)
        target = generator.standard_normal((3, 4)).astype(np.float32)
        _, loss = network.train_step(x, target)
        difference = x @ w + b - target
        np.testing.assert_allclose(np.sum(difference**2), loss, rtol=1e-5)
        w, b = w - RATE * x.T @ (2 * difference), b - RATE * 2 * difference.sum(0)
        state = network.state()
        np.testing.assert_allclose(w, state["w"], rtol=1e-4)
        np.testing.assert_allclose(b, state["b"], rtol=1e-4)
        assert step + 1 == state["n"]

    names = {operator.full_name.rpartition("-op")[0] for operator in network.training.operators}
    assert {"Gradients/Default/Grad_MatMul/MatMul", "Gradients/Default/Grad_BiasAdd/BiasAddGrad"} <= names


def test_inference_is_as_if_there_were_no_training(tmp_path):
    """A call runs the model's own graph, with the weights that training has changed."""
    network = msdump.load(_model(DESCENT, BINDING))
    x, target = np.ones((3, 2), np.float32), np.zeros((3, 4), np.float32)

    before = network(x)
    network.train_step(x, target)
    after = network(x)

    np.testing.assert_array_equal([[6.5, 8.5, 10.5, 12.5]] * 3, before)
    np.testing.assert_allclose(x @ network.state()["w"] + network.state()["b"], after, rtol=1e-6)
    assert ["Default/MatMul-op0", "Default/BiasAdd-op0"] == [each.full_name for each in network.operators]


def _changed(text, before, after):
    assert before in text
    return text.replace(before, after)


FAULTS = {
    "other values": (
        _changed(DESCENT, "(w, b, x, target)\n", "(b, b, x, target)\n"),
        GraphError,
        "its inputs .* are not the values",
    ),
    "a value that is not there": (
        _changed(DESCENT, 'y = "loss">', 'y = "los">'),
        GraphError,
        "no value 'los' stands before it",
    ),
    "no rule": (
        _changed(DESCENT, "d = Sub(y, target)", "d0 = Sub(y, target)  d = Det(d0)"),
        UnsupportedOpError,
        "Det has no gradient rule",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault):
    """A gradient that cannot be derived is an error when the model is loaded."""
    text, kind, message = FAULTS[fault]
    model = _model(text, BINDING)
    if fault == "no rule":
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 2]))
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 4]))
        model.training_info[0].algorithm.input[0].CopyFrom(
            helper.make_tensor_value_info("target", onnx.TensorProto.FLOAT, [4, 4])
        )

    with pytest.raises(kind, match=message):
        msdump.load(model)


def test_a_variable_without_influence():
    """The gradient of a value that the loss does not depend on is zero."""
    text = _changed(DESCENT, "s = Mul(d, d)", "s = Mul(target, target)")
    network = msdump.load(_model(text, BINDING))
    before = network.state()["w"]

    network.train_step(np.ones((3, 2), np.float32), np.ones((3, 4), np.float32))

    np.testing.assert_array_equal(before, network.state()["w"])
