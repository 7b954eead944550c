"""Mixed precision and loss scales: types and scopes of a step, and which steps change the weights."""

import numpy as np
import onnx
import pytest

import msdump
from msdump import env
from msdump.training import step_graph
from tests.training.mlp import batch, mlp

BACKBONE = "Default/network-WithLossCell/_backbone-MLP"


def _step(**choices):
    options = {"optimizer": "momentum:0.1,0.9"} | choices
    return step_graph(mlp(has_norm=options.pop("has_norm", False)), **options)


def _operators(model, start):
    """Return the types of the operators with a prefix of their names, in order, behind their place."""
    return [
        node.name.removeprefix(start).rsplit("/", 1)[0] + "/" + node.op_type
        for node in model.graph.node
        if node.name.startswith(start) and node.op_type != "Constant"
    ]


def _types(model):
    """Return the element type of every value, by name."""
    values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def test_network_in_float16_has_casts_where_amp_has_them():
    """Inputs are cast in the network's scope, weights in their layers', a LayerNorm stays in float32."""
    model = _step(precision="float16", has_norm=True, device_target="Ascend")

    assert _operators(model, BACKBONE) == [
        "/Cast",
        *("/fc1-Dense/Cast", "/fc1-Dense/Cast", "/fc1-Dense/MatMul", "/fc1-Dense/BiasAdd"),
        "/norm-_OutputTo16/_backbone-LayerNorm/Cast",
        "/norm-_OutputTo16/_backbone-LayerNorm/LayerNorm",
        "/norm-_OutputTo16/Cast",
        "/relu-ReLU/Relu",
        *("/fc2-Dense/Cast", "/fc2-Dense/Cast", "/fc2-Dense/MatMul", "/fc2-Dense/BiasAdd"),
    ]
    types = _types(model)
    halves = {node.op_type for node in model.graph.node if node.output and types.get(node.output[0]) == 10}
    assert {"Cast", "MatMul", "BiasAdd", "Relu", "BiasAddGrad", "ReluGrad"} == halves


def test_layers_in_float16_hand_their_type_on():
    """A layer with a type of its own casts its inputs; operators behind it compute in that type."""
    model = _step(precision={"fc1": "float16"}, device_target="Ascend")

    assert _operators(model, BACKBONE) == [
        *("/fc1-Dense/Cast", "/fc1-Dense/Cast", "/fc1-Dense/Cast"),
        *("/fc1-Dense/MatMul", "/fc1-Dense/BiasAdd", "/relu-ReLU/Relu"),
        *("/fc2-Dense/Cast", "/fc2-Dense/Cast", "/fc2-Dense/MatMul", "/fc2-Dense/BiasAdd"),
    ]


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"precision": "float16"},
        {"precision": "bfloat16"},
        {"precision": {"fc1": "float16", "fc2": "float16"}},
        {"precision": "float16", "loss_scale": 1024},
        {"precision": "float16", "loss_scale": "dynamic:1024"},
        {"precision": "float16", "loss_scale": "dynamic:1024", "device_target": "Ascend"},
    ],
    ids=str,
)
def test_losses_fall_alike_in_every_precision(choices):
    """Half types and scales move the losses of the first steps by their rounding alone."""
    exact = msdump.load(_step())
    network = msdump.load(_step(**choices))
    tolerance = 0.02 if choices.get("precision") == "bfloat16" else 0.003

    for step in range(3):
        loss = np.asarray(_first(network.train_step(*batch(step))))

        assert loss.dtype == np.float32
        assert loss == pytest.approx(float(exact.train_step(*batch(step))), rel=tolerance)
    for name, array in network.state().items():
        np.testing.assert_allclose(array, exact.state().get(name, array), atol=10 * tolerance, err_msg=name)


def _first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("ranks", [1, 2])
def test_saturation_is_asked_of_the_device(ranks):
    """The status is lowered behind the loss, read behind the last gradient, and lowered again.

    With several ranks their statuses are added first, so that no AllReduce counts for the next step.
    """
    choices = {"loss_scale": "dynamic", "precision": "float16", "device_target": "Ascend"}
    model = _step(**choices, overflow_mode="saturation_mode", data_parallel=ranks if ranks > 1 else False)

    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    order = [node.name for node in nodes]
    start = order.index("Default/NPUClearFloatStatusV2")
    loss = max(number for number, node in enumerate(nodes) if model.graph.output[0].name in node.output)
    assert start == loss + 1
    assert all(name.startswith("Gradients/") for name in order[start + 1 : order.index("Default/Reciprocal")])
    end = order.index("Default/NPUGetFloatStatusV2")
    clear, total = "NPUClearFloatStatusV2", "AllReduce"
    behind = [clear, "Equal"] if ranks == 1 else [total, "Equal", clear]
    found = [node.op_type for node in nodes[end + 1 : order.index("Default/If")] if node.name.count("/") == 1]
    assert [*behind, "ReduceAll", "Not", "Not"] == found
    assert not any(name.startswith("Gradients/") for name in order[end:])


def test_overflow_mode_is_that_of_the_device(monkeypatch):
    """Without a choice the environment's counts on Ascend, and nowhere else; a static scale has no check."""
    monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, "SATURATION_MODE")
    choices = {"loss_scale": "dynamic", "precision": "float16"}

    def checks(**changes):
        types = {node.op_type for node in _step(**choices | changes).graph.node}
        return types & {"AllFinite", "IsFinite", "NPUClearFloatStatusV2", "NPUGetFloatStatusV2"}

    assert {"NPUClearFloatStatusV2", "NPUGetFloatStatusV2"} == checks(device_target="Ascend")
    assert {"AllFinite"} == checks(device_target="Ascend", overflow_mode="INFNAN_MODE")
    assert {"IsFinite"} == checks(device_target="CPU")
    assert set() == checks(device_target="Ascend", loss_scale=1024)


@pytest.mark.parametrize("op_type", ["CastLike", "Cast"])
def test_casts_of_the_model_keep_their_meaning(op_type):
    """A cast says its type itself; one to the type of another tensor follows that tensor."""
    model = mlp()
    (relu,) = [node for node in model.graph.node if node.op_type == "Relu"]
    cast = onnx.helper.make_node(op_type, ["r_before"], ["r"], name="cast")
    if op_type == "Cast":
        cast.attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT))
    else:
        cast.input.append("h")
    relu.output[0] = "r_before"
    model.graph.node.insert([*model.graph.node].index(relu) + 1, cast)

    types = _types(step_graph(model, precision={"fc1": "float16"}, device_target="Ascend"))

    assert (10, {"Cast": 1, "CastLike": 10}[op_type]) == (types["r_before"], types["r"])
