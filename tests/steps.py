"""Training steps of a linear layer, small enough to be followed in numpy."""

import numpy as np
import onnx
from onnx import parser

import msdump

OPSETS = 'opset_import: ["": 20, "mindspore.ops": 1]'

FUNCTIONS = """
<domain: "mindspore.ops", opset_import: ["": 20]>
MatMul (a, b, ta, tb) => (c) { c = MatMul(a, b) }
<domain: "mindspore.ops", overload: "ta", opset_import: ["": 20]>
MatMul (a, b, ta, tb) => (c) { at = Transpose(a) c = MatMul(at, b) }
<domain: "mindspore.ops", opset_import: ["": 20]>
ApplyMomentum (var, accum, lr, grad, mu) => (new, newaccum) {
  kept = Mul(accum, mu)
  newaccum = Add(kept, grad)
  change = Mul(lr, newaccum)
  new = Sub(var, change)
}
<domain: "mindspore.ops", opset_import: ["": 20]>
AssignAdd (var, value) => (new) { new = Add(var, value) }
"""

FORWARD = """
  [fc] y = mindspore.ops.MatMul(x, w, no, no)
  [sub] d = Sub(y, t)
  [square] sq = Mul(d, d)
  [loss] loss = ReduceMean<keepdims=0>(sq)
"""

BACKWARD = """
  [count] step_new = mindspore.ops.AssignAdd(step, one)
  [grad] g = mindspore.ops.MatMul:ta(x, d, yes, no)
  [update] w_new, m_new = mindspore.ops.ApplyMomentum(w, m, lr, g, mu)
"""

WEIGHT = "float[3,2] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}"
FLAGS = "bool no = {0}, bool yes = {1}"
STATE = (
    "float[3,2] m = {0, 0, 0, 0, 0, 0}, float lr = {0.1}, float mu = {0.9},"
    " int32[1] step = {0}, int32 one = {1}"
)
NEW = "float[3,2] w_new, float[3,2] m_new, int32[1] step_new"
BINDING = {"w": "w_new", "m": "m_new", "step": "step_new"}

PLAIN = f"""
<ir_version: 10, {OPSETS}>
linear (float[n,3] x, float[n,2] t) => (float loss, {NEW})
<{WEIGHT}, {FLAGS}, {STATE}> {{{FORWARD}{BACKWARD}}}
{FUNCTIONS}
"""
"""Forward, backward and update in one graph; the outputs are bound by who loads it."""

X, T = (np.random.default_rng(3).standard_normal((4, size)).astype(np.float32) for size in (3, 2))

START = {"w": np.linspace(0.1, 0.6, 6, dtype=np.float32).reshape(3, 2), "m": np.zeros((3, 2), np.float32)}


def message(text):
    """Return the model of a text, checked."""
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def plain(text=PLAIN, **options):
    """Return the network of the plain form."""
    return msdump.load(message(text), **({"update_binding": BINDING} | options))


def with_training_info(initialization=""):
    """Return a model with training_info of the backward part and the update."""
    model = message(
        f"<ir_version: 10, {OPSETS}> linear (float[n,3] x, float[n,2] t) => (float loss)"
        f" <{WEIGHT}, {FLAGS}> {{{FORWARD}}} {FUNCTIONS}"
    )
    info = model.training_info.add()
    algorithm = f"algorithm () => ({NEW}) <{STATE}> {{{BACKWARD}}}"
    info.algorithm.CopyFrom(parser.parse_graph(algorithm))
    bind(info.update_binding, BINDING)
    if initialization:
        info.initialization.CopyFrom(parser.parse_graph(initialization))
    return model


def bind(entries, pairs):
    """Add bindings to a field of training_info."""
    for name, output in pairs.items() if isinstance(pairs, dict) else pairs:
        entries.add(key=name, value=output)


def expected(steps, state=None):
    """Return the losses of some steps on X and T, and the state after each, as numpy computes them."""
    state = state or START
    losses, states = [], []
    for step in range(steps):
        w, difference = state["w"], X @ state["w"] - T
        m = np.float32(0.9) * state["m"] + X.T @ difference
        state = {"w": w - np.float32(0.1) * m, "m": m, "step": np.array([step + 1], np.int32)}
        losses.append((difference**2).mean())
        states.append(state)
    return losses, states
