"""Optimizers over several steps against their formulas; their variables, texts, and updates in place."""

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import msdump
from msdump.graph import loader
from msdump.training import OPTIMIZERS, step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED, bindings_of, one_operator
from tests.training.mlp import mlp
from tests.world import GRAPHS

_RNG = np.random.default_rng(5)
_STEPS = 4
_WEIGHT = _RNG.standard_normal((3, 4))
# the loss is the sum of weights * y, so that the gradient is the step's input
_GRADIENTS = [_RNG.standard_normal((3, 4)) for _ in range(_STEPS)]


def _model(dtype=np.float32, shape=(3, 4)):
    return one_operator("Reshape", [_WEIGHT.astype(dtype).reshape(shape), np.array([3, 4])], {})


def _states(step, gradients, **fed):
    """Yield the variables of a step graph behind each step."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    bindings = bindings_of(step)
    state = {tensor.name: numpy_helper.to_array(tensor) for tensor in step.graph.initializer}
    for gradient in gradients:
        for tensor in step.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(state[tensor.name]), tensor.name))
        session = onnxruntime.InferenceSession(step.SerializeToString(), settings)
        results = session.run(list(bindings.values()), {"inputs0": gradient, **fed})
        state |= dict(zip(bindings, results, strict=True))
        yield dict(state)


def _sgd(w, g, s, t, *, rate, momentum=0.0, dampening=0.0, decay=0.0, nesterov=False):
    g = g + decay * w
    if momentum:
        s["accum"] = g if t == 1 else momentum * s["accum"] + (1 - dampening) * g
        g = g + momentum * s["accum"] if nesterov else s["accum"]
    return w - rate * g


def _momentum(w, g, s, t, *, rate, momentum=0.9, decay=0.0, nesterov=False):
    g = g + decay * w
    s["moments"] = momentum * s.get("moments", 0) + g
    return w - rate * (g + momentum * s["moments"] if nesterov else s["moments"])


def _moved(s, names, g, beta1, beta2):
    first, second = names
    s[first] = beta1 * s.get(first, 0) + (1 - beta1) * g
    s[second] = beta2 * s.get(second, 0) + (1 - beta2) * g * g
    return s[first], s[second]


def _adam(w, g, s, t, *, rate, beta1=0.9, beta2=0.999, decay=0.0, nesterov=False):
    g = g + decay * w
    m, v = _moved(s, ("moment1", "moment2"), g, beta1, beta2)
    rate *= np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return w - rate * (beta1 * m + (1 - beta1) * g if nesterov else m) / (np.sqrt(v) + 1e-8)


def _adam_weight_decay(w, g, s, t, *, rate, beta1=0.9, beta2=0.999, decay=0.0):
    m, v = _moved(s, ("adam_m", "adam_v"), g, beta1, beta2)
    return w - rate * (m / (np.sqrt(v) + 1e-6) + decay * w)


def _rmsprop(w, g, s, t, *, rate, decay=0.9, momentum=0.0, share=0.0, centered=False):
    g = g + share * w
    s["mean_square"] = decay * s.get("mean_square", 1) + (1 - decay) * g * g
    if centered:
        s["mean_grad"] = decay * s.get("mean_grad", 0) + (1 - decay) * g
    root = np.sqrt(s["mean_square"] - s.get("mean_grad", 0) ** 2 + 1e-10)
    s["moment"] = momentum * s.get("moment", 0) + rate * g / root
    return w - s["moment"]


def _adagrad(w, g, s, t, *, rate, accum=0.1, moves=True):
    s["accum"] = s.get("accum", accum) + (g * g if moves else 0 * g)
    return w - rate * g / np.sqrt(s["accum"])


FORMULAS = {
    "sgd:0.1,0.9": (_sgd, {"rate": 0.1, "momentum": 0.9}),
    "sgd:0.1,0.9,dampening=0.5": (_sgd, {"rate": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "sgd:0.1,0.9,0.01,nesterov=true": (_sgd, {"rate": 0.1, "momentum": 0.9, "decay": 0.01, "nesterov": True}),
    "sgd:0.1,weight_decay=0.1": (_sgd, {"rate": 0.1, "decay": 0.1}),
    "momentum:0.01,weight_decay=0.1": (_momentum, {"rate": 0.01, "decay": 0.1}),
    "momentum:0.01,use_nesterov=true": (_momentum, {"rate": 0.01, "nesterov": True}),
    "adam:0.01,0.8,0.9": (_adam, {"rate": 0.01, "beta1": 0.8, "beta2": 0.9}),
    "adam:0.01,weight_decay=0.1": (_adam, {"rate": 0.01, "decay": 0.1}),
    "adam:0.01,use_nesterov=1": (_adam, {"rate": 0.01, "nesterov": True}),
    "adamw:0.01,0.8,0.9,weight_decay=0.1": (
        _adam_weight_decay,
        {"rate": 0.01, "beta1": 0.8, "beta2": 0.9, "decay": 0.1},
    ),
    "rmsprop:0.1,0.8,0.5,weight_decay=0.1": (
        _rmsprop,
        {"rate": 0.1, "decay": 0.8, "momentum": 0.5, "share": 0.1},
    ),
    "rmsprop:0.1,0.8,0.5,centered=true": (
        _rmsprop,
        {"rate": 0.1, "decay": 0.8, "momentum": 0.5, "centered": True},
    ),
    "adagrad:0.1": (_adagrad, {"rate": 0.1}),
    "adagrad:0.1,0.4,update_slots=false": (_adagrad, {"rate": 0.1, "accum": 0.4, "moves": False}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("text", FORMULAS)
def test_updates(text, dtype):
    """Parameter and moments follow the formulas over several steps."""
    formula, numbers = FORMULAS[text]
    weight, expected = _WEIGHT.astype(dtype), {}
    steps = _states(step_graph(_model(dtype), WEIGHTED, text), [item.astype(dtype) for item in _GRADIENTS])

    for count, (gradient, state) in enumerate(zip(_GRADIENTS, steps, strict=True), 1):
        weight = formula(weight, gradient, expected, count, **numbers)

        np.testing.assert_allclose(state["p0"], weight, rtol=2e-5, atol=1e-6)
        for name, moment in expected.items():
            np.testing.assert_allclose(state[f"{name}.p0"], moment, rtol=1e-5, atol=1e-6)
        assert state["global_step"] == count


PARTS = [
    {"clip_gradients": "global_norm:2.0"},
    {"clip_gradients": "value:-1,0.75"},
    {"accumulate": "mean:2"},
    {"loss_scale": 1024},
    {"loss_scale": "dynamic:1024"},
    {"data_parallel": 1},
]


@pytest.mark.parametrize("choices", [*({"optimizer": text} for text in FORMULAS), *PARTS], ids=str)
def test_windows_of_one_element(choices):
    """Weights of a 1x1 convolution, for which numbers are reshaped, get the values that a matrix gets."""
    states = []
    for shape in ((3, 4), (3, 4, 1, 1)):
        step = step_graph(_model(shape=shape), WEIGHTED, **{"optimizer": "momentum:0.1,0.9,0.5"} | choices)
        network = msdump.load(step)
        for gradient in _GRADIENTS:
            network.train_step(gradient.astype(np.float32))
        states.append({name: array.reshape(-1).tolist() for name, array in network.state().items()})

    assert states[0] == states[1]
    assert states[0]["p0"] != _WEIGHT.astype(np.float32).reshape(-1).tolist()


@pytest.mark.parametrize("text", [f"{name}:0.1" for name in OPTIMIZERS])
def test_learning_rate_is_an_input(text):
    """A caller may feed another learning rate for one step."""
    gradients = [_GRADIENTS[0].astype(np.float32)]
    fed = next(
        _states(step_graph(_model(), WEIGHTED, text), gradients, learning_rate=np.zeros((), np.float32))
    )
    kept = next(_states(step_graph(_model(), WEIGHTED, text), gradients))

    np.testing.assert_array_equal(_WEIGHT.astype(np.float32), fed["p0"])
    assert not np.array_equal(_WEIGHT.astype(np.float32), kept["p0"])


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, ["Mul 100", "Sum", "Mul 0.001", "ApplyMomentum"]),
        ({"groups": {"*": "weight_decay=0"}}, ["Mul 0.001", "ApplyMomentum"]),
        ({"accumulate": 2}, ["Mul 0.1", "Sum", "ApplyMomentum"]),
        ({"clip_gradients": "value:-1,1"}, ["Mul 0.1", "Sum", "ApplyMomentum"]),
    ],
    ids=str,
)
def test_products_of_a_static_scale(choices, expected):
    """The optimizer divides by the scale, or the training cell does for parts in front of the optimizer."""
    text = "momentum:0.1,0.9,0.1"
    step = step_graph(mlp(), optimizer=text, loss_scale=1000, trainable="fc2.weight", **choices)
    graphs = [step.graph, *(each.g for node in step.graph.node for each in node.attribute)]
    nodes = [node for graph in graphs for node in graph.node]
    numbers = {
        node.output[0]: f" {numpy_helper.to_array(node.attribute[0].t):g}"
        for node in nodes
        if node.op_type == "Constant" and not node.attribute[0].t.dims
    }
    found = {
        scope: [
            node.op_type + numbers.get(node.input[1], "")
            for node in nodes
            if node.name.startswith(scope) and node.op_type in {"Mul", "Sum", "ApplyMomentum"}
        ]
        for scope in ("Default/optimizer-Momentum/", "Default/Mul")
    }

    assert expected == found["Default/optimizer-Momentum/"]
    assert ["Mul 0.001"] * ("Mul 0.001" not in expected) == found["Default/Mul"]


def _normalized(scale, shift):
    """Return a dense layer and a normalisation with given names of scale and shift."""
    text = f"""net (float[3,4] x) => (float[3,5] y) {{
        ["fc/Gemm"] h = Gemm<transB = 1>(x, "fc.weight", "fc.bias")
        ["norm/BatchNormalization"] y = BatchNormalization(h, "{scale}", "{shift}", "norm.mean", "norm.var")
    }}"""
    ones = np.ones(5, np.float32)
    names = ("fc.bias", scale, shift, "norm.mean", "norm.var")
    return parsed(text, **{"fc.weight": np.ones((5, 4), np.float32)}, **dict.fromkeys(names, ones))


def _decays(decayed, model):
    """Return the parameters that weight decay applies to."""
    nodes = step_graph(model, WEIGHTED, f"momentum:weight_decay=0.5,decayed={decayed}").graph.node
    return {node.input[0] for node in nodes if node.op_type == "Mul" and "optimizer" in node.name}


@pytest.mark.parametrize(
    ("decayed", "expected"),
    [
        ("weights", {"fc.weight", "fc.bias"}),
        ("matrices", {"fc.weight"}),
        ("all", {"fc.weight", "fc.bias", "norm.a", "norm.b"}),
    ],
)
def test_decayed(decayed, expected):
    """Scale and shift of a normalisation are known by the input that reads them."""
    assert expected == _decays(decayed, _normalized("norm.a", "norm.b"))


def test_decayed_by_name():
    """MindSpore's names of scale and shift count wherever they are read."""
    model = one_operator("Mul", [np.ones(3, np.float32), np.ones(3, np.float32)], {})
    for tensor, name in zip(model.graph.initializer, ("layer.gamma", "weight"), strict=True):
        tensor.name = name
    model.graph.node[0].input[:] = ["layer.gamma", "weight"]

    assert {"weight"} == _decays("weights", model)


def test_order():
    """Adam's kinds go through the parameters forwards, the others backwards, as in MindSpore."""
    model = _normalized("norm.gamma", "norm.beta")
    order = ["fc.weight", "fc.bias", "norm.gamma", "norm.beta"]
    orders = {
        text: [
            node.input[0]
            for node in step_graph(model, WEIGHTED, text).graph.node
            if node.op_type == operator_type
        ]
        for text, operator_type in [
            ("sgd", "SGD"),
            ("momentum", "ApplyMomentum"),
            ("adam", "Adam"),
            ("adamw", "AdamWeightDecay"),
            ("rmsprop", "ApplyRMSProp"),
            ("rmsprop:centered=true", "ApplyCenteredRMSProp"),
            ("adagrad", "ApplyAdagrad"),
        ]
    }

    forwards = {"adam", "adamw"}
    assert {text: order if text in forwards else order[::-1] for text in orders} == orders


OPTIMIZER_TEXTS = (
    *("sgd:0.1", "momentum:0.1,0.9", "adam:0.001,weight_decay=0.02", "adamw:0.001"),
    *("rmsprop", "rmsprop:centered=true", "adagrad"),
)

_NORMALIZED = """
<ir_version: 10, opset_import: ["": 20]>
net (float[4,2,3,3] x) => (float[4,18] logits)
<float[2] scale = {1, 1}, float[2] bias = {0, 0}, float[2] mean = {0, 0}, float[2] variance = {1, 1}> {
  y = BatchNormalization(x, scale, bias, mean, variance)
  logits = Flatten(y)
}
"""


@pytest.mark.parametrize("optimizer", OPTIMIZER_TEXTS)
@pytest.mark.parametrize("model", [str(GRAPHS / "mini.onnx"), _NORMALIZED], ids=["mini", "normalized"])
def test_every_update_is_bound_to_the_input_that_it_writes(model, optimizer):
    """An input that an operator writes in place is a variable, bound to the output that the table names."""
    source = model if model.endswith(".onnx") else parser.parse_model(model)

    graph = loader.load(step_graph(source, optimizer=optimizer))

    written = {}
    for node in graph.nodes:
        assert len(node.declared_outputs) == (node.update.declared or len(node.outputs))
        pairs = zip(node.inputs, node.inputs_after_run, strict=True)
        written |= {old: new for old, new in pairs if new != old}
    # beta powers are written by an operator of their own; the others read its result
    assert graph.bindings == written
