"""Training steps of models with odd names, attributes or types; models without a gradient."""

import pathlib

import numpy as np
import onnx
import pytest
from onnx import parser

import msdump
from msdump.errors import ExecutionError, GraphError, UnsupportedOpError
from msdump.graph.primitives import op
from msdump.training import eval_graph, step_graph
from msdump.training.losses import Loss
from tests.texts import parsed
from tests.training.differences import WEIGHTED, one_operator

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

CALLING = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
net (float[2,3] x) => (float[2,3] y)
<float[3,3] w = {0.5, 0, 0, 0, 0.5, 0, 0, 0, 0.5}, float[3] b = {0, 1, 0}> {
  [first] h = own.Dense(x, w, b)
  [second] y = own.Dense(h, w, b)
}
<domain: "own", opset_import: ["": 17]> Dense (x, w, b) => (y) {
  product = MatMul(x, w)
  y = Add(product, b)
}"""
UNTYPED = """<ir_version: 10, opset_import: ["": 21]>
net (float[1,2,3,3] x) => (float[1,2,3,3] y)
<float[2,2,1,1] w = {1, 2, 3, 4}, float[2] gamma = {1, 1}, float[2] beta = {0, 0}> {
  norm = GroupNormalization<num_groups = 1>(x, gamma, beta)
  y = Conv(norm, w)
}"""
UNREADABLE = {
    "missing": (lambda _path: None, "model.onnx: the model cannot be read: No such file or directory"),
    "folder": (pathlib.Path.mkdir, "model.onnx: the model cannot be read: Is a directory"),
    "empty": (pathlib.Path.touch, "model.onnx: the file is empty; give an ONNX model"),
    "text": (lambda path: path.write_text("127.0.0.1 localhost"), "model.onnx: no protobuf message"),
}


def trained(text):
    """Return the losses and the state of three steps of a model."""
    step = step_graph(parser.parse_model(text), "mse", "momentum:0.01,0.9")
    onnx.checker.check_model(step, full_check=True)
    network = msdump.load(step)
    return [float(network.train_step(X, T)) for _ in range(3)], network


def test_weights_with_names_of_the_step():
    """A model with weights named as inputs and variables of a step trains as under other names."""
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


def test_functions_of_an_old_model():
    """The functions of a model that is converted to a newer opset are trained operator by operator."""
    model = parser.parse_model(CALLING)
    before = model.SerializeToString(deterministic=True)

    network = msdump.load(step_graph(model, "mse"))
    loss = network.train_step(X, T)

    b = np.array([0, 1, 0])
    np.testing.assert_allclose(np.mean(((X / 2 + b) / 2 + b - T) ** 2), loss, rtol=1e-6)
    assert before == model.SerializeToString(deterministic=True)
    assert ["first", "second"] == [
        operator.full_name.split("/")[3]
        for operator in network.operators
        if operator.full_name.endswith("MatMul-op0") and "Gradients" not in operator.full_name
    ]


@pytest.mark.parametrize("make_graph", [step_graph, eval_graph])
@pytest.mark.parametrize(("write", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_model(tmp_path, make_graph, write, message):
    """A model that cannot be read is an error that names it."""
    write(tmp_path / "model.onnx")

    with pytest.raises(GraphError, match=message):
        make_graph(tmp_path / "model.onnx")


def test_model_that_cannot_be_converted():
    """A model of an opset that ONNX cannot convert is refused with a remedy."""
    model = parser.parse_model(PLAIN.replace('"": 20', '"": 3'))

    with pytest.raises(GraphError, match="has opset 3 and cannot be converted to opset 20"):
        step_graph(model, "mse")


@pytest.mark.parametrize("label", [-1, 3, 2**31 - 1, -(2**31)])
def test_labels_outside_of_the_classes(label):
    """A label that is no class is an error, and changes nothing."""
    network = msdump.load(step_graph(parser.parse_model(PLAIN)))
    before = network.state()

    with pytest.raises(ExecutionError, match="SparseSoftmaxCrossEntropyWithLogits"):
        network.train_step(X, np.array([0, label], np.int32))

    after = network.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_half_types_behind_values_of_unknown_type():
    """A Conv that ONNX has not in bfloat16 stays float32 where ONNX infers no type for its input."""
    step = step_graph(parser.parse_model(UNTYPED), "mse", precision="bfloat16")

    onnx.checker.check_model(step, full_check=True)
    types = {value.name: value.type.tensor_type.elem_type for value in step.graph.value_info}
    assert {onnx.TensorProto.FLOAT} == {
        types[node.output[0]] for node in step.graph.node if node.op_type == "Conv"
    }


@pytest.mark.parametrize("trainable", ["w1", ["w1"]])
def test_one_parameter_is_trained(trainable):
    """One name trains that parameter, as a list of it does; all others stay as they are."""
    network = msdump.load(step_graph(parser.parse_model(PLAIN), "mse", "sgd:0.1", trainable=trainable))
    before = network.state()

    network.train_step(X, T)

    after = network.state()
    changed = {
        name for name in after if name.startswith("w") and not np.array_equal(before[name], after[name])
    }
    assert {"w1"} == changed


TRACE = 'File "/net/model.py", line 12, in forward\n    return self.head(x)\n'
BRANCH = "b () => (float d) { d = Det(w) }"
MODELS = {
    "MatrixDeterminant": ("", "Det(w)", "ai.onnx.Det has no gradient rule"),
    "If-op0": (
        "bool choice",
        f"If (choice) <then_branch = {BRANCH}, else_branch = {BRANCH}>",
        "If, a branch or loop, has no gradient rule",
    ),
}


@pytest.mark.parametrize("operator", MODELS)
def test_missing_rule(operator):
    """An operator without a rule is named, with its scope and the line of the program that made it."""
    inputs, call, reason = MODELS[operator]
    text = f'net ({inputs}) => (float y) {{ ["head/node"] y = {call} }}'
    model = parsed(text, w=np.eye(2, dtype=np.float32))
    model.graph.node[0].metadata_props.add(key="pkg.onnxscript.stack_trace", value=TRACE)

    with pytest.raises(UnsupportedOpError) as refused:
        step_graph(model, WEIGHTED)

    assert f"head/{operator}: {reason}" in str(refused.value)
    assert 'File "/net/model.py", line 12, in forward; return self.head(x);' in str(refused.value)


def test_a_new_value_of_no_variable():
    """A new value under a name that no variable has is refused with the closest one, and with the remedy."""

    def write(output, labels):
        op.bindings["beta2_powers"] = output
        return WEIGHTED.write(output, labels)

    loss = Loss("Renaming", WEIGHTED.label, write)
    with pytest.raises(GraphError, match=r"\(did you mean 'beta2_power'\?\); use the names of the tensors"):
        step_graph(one_operator("Neg", [np.ones(2, np.float32)], {}), loss, "adam")
