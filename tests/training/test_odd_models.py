"""Training steps of models with names that a step gives itself, and with tensors in attributes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser

import msdump
from msdump.training import eval_graph, step_graph

HEAD = '<ir_version: 10, opset_import: ["": 20]>'
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
T = np.ones((2, 3), np.float32)
DIAGONAL = "0.5, 0, 0, 0, 0.5, 0, 0, 0, 0.5"
COLLIDING = f"""{HEAD}
net (float[2,3] inputs0) => (float[2,3] loss)
<float[3,3] learning_rate = {{{DIAGONAL}}}, float[3] global_step = {{1, 2, 3}},
 float[3] momentum = {{3, 2, 1}}, float[3] inputs1 = {{1, 1, 1}}, float[3] "moments.inputs1" = {{2, 2, 2}},
 float[3] label = {{0, 1, 0}}> {{
  constant = MatMul(inputs0, learning_rate)
  grad = Add(constant, global_step)
  data = Mul(grad, momentum)
  seed = Mul(data, inputs1)
  sum = Add(seed, "moments.inputs1")
  loss = Add(sum, label)
}}"""
PLAIN = f"""{HEAD}
net (float[2,3] x) => (float[2,3] y)
<float[3,3] w0 = {{{DIAGONAL}}}, float[3] w1 = {{1, 2, 3}}, float[3] w2 = {{3, 2, 1}},
 float[3] w3 = {{1, 1, 1}}, float[3] w4 = {{2, 2, 2}}, float[3] w5 = {{0, 1, 0}}> {{
  v0 = MatMul(x, w0)
  v1 = Add(v0, w1)
  v2 = Mul(v1, w2)
  v3 = Mul(v2, w3)
  v4 = Add(v3, w4)
  y = Add(v4, w5)
}}"""
WEIGHTS = ("learning_rate", "global_step", "momentum", "inputs1", "moments.inputs1", "label")
FILLED = f"""{HEAD}
net (float[2,3] x) => (float[2,3] y) <float[3,3] w = {{{DIAGONAL}}}> {{
  count = Constant<value_ints = [3]>()
  ones = ConstantOfShape<value = float[1] {{1}}>(count)
  product = MatMul(x, w)
  y = Add(product, ones)
}}"""


def trained(text):
    """Return the losses and the state of three steps of a model."""
    step = step_graph(parser.parse_model(text), "mse", "momentum:0.01,0.9")
    onnx.checker.check_model(step, full_check=True)
    network = msdump.load(step)
    return [float(network.train_step(X, T)) for _ in range(3)], network


def test_weights_with_names_of_the_step():
    """A model whose weights have the names of inputs and variables of a step trains as under other names."""
    losses, network = trained(PLAIN)

    others, colliding = trained(COLLIDING)
    evaluation = msdump.load(eval_graph(parser.parse_model(COLLIDING), "mse"), state_of=colliding)

    assert losses == others
    assert ["inputs0", "inputs1_1"] == [value.name for value in colliding.graph.inputs]
    state, expected = colliding.state(), network.state()
    for number, name in enumerate(WEIGHTS):
        np.testing.assert_array_equal(expected[f"w{number}"], state[name], strict=True)
    assert [3] == state["global_step_1"].tolist()
    assert float(network.train_step(X, T)) == float(evaluation(X, T)[0])


def test_tensors_in_attributes():
    """An operator with a tensor as attribute is in the step as it is in the model."""
    losses, _ = trained(FILLED)

    expected = np.mean((X * 0.5 + 1 - T) ** 2)
    np.testing.assert_allclose(expected, losses[0], rtol=1e-6)
